//! The driver of one turn: follows the events of the session and of its sub-agents until OpenCode says how the turn ended.
//!
//! The end comes from OpenCode's words, never from a timeout of ours, but for a model that is silent for too long. The
//! other clocks here pace re-reading when a session is idle and its messages are not final yet.

mod children;
mod family;
mod joins;
mod member;
mod missed;
mod readings;
mod start;
mod strange;
mod unused;
mod watchdog;
mod written;

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::Session;
use longshore_model::{AgentEvent, Outcome, SessionId};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::family::Family;
use self::joins::{Joiner, Joins};
use self::missed::Missed;
pub(crate) use self::start::{PATIENCE, Starter, start};
use self::strange::{LOOK_AFTER, Strange};
pub(crate) use self::unused::Unused;
use self::watchdog::Silence;
pub use self::watchdog::Watchdog;
use crate::api::EventKind;
use crate::clear;
use crate::client::Client;
use crate::outcome;
use crate::reader::{Lease, Routed, Strangers};
use crate::reconcile::{self, Depth, Reading};
use crate::translate::Evidence;

/// Pause before OpenCode is asked again after it did not answer: doubled up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How long a turn that was given up may take to stop. Then it ends without a last word of OpenCode.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Driver {
    client: Client,
    session: Session,
    lease: Lease,
    family: Family,
    events: mpsc::Sender<AgentEvent>,
    joins: Arc<Joins>,
    /// What the translator knows of the messages that join.
    joins_seen: u64,
    /// What is to be read before anything is said about the end.
    must_read: Option<Depth>,
    missed: Missed,
    watchdog: Watchdog,
    silence: Silence,
    given_up: Option<GivenUp>,
    strange: Strange,
    strangers: Strangers,
    /// The turn ends, and what is still asked for has time until then.
    ending: Option<Instant>,
    /// How long the agent's own reports wait for messages of sub-agents that OpenCode does not show.
    patience: Duration,
    /// Since when they wait: so far they were read, or came by the stream.
    all_is_told: Instant,
    /// The turn was stopped, by a watchdog or somebody else.
    is_stopped: bool,
    written_files: bool,
    /// It was taken up again, and not all that was missed is told yet.
    is_behind: bool,
}

/// A watchdog stopped the turn. It is followed to its end, which is then told as this.
#[derive(Debug)]
struct GivenUp {
    outcome: Outcome,
    until: Instant,
}

/// Nobody listens to the turn any more.
struct Unheard;

impl Driver {
    /// Runs until the turn ends, nobody listens, or the gateway stops. OpenCode goes on in the latter cases.
    async fn run(mut self, joiner: Joiner, stop: CancellationToken) {
        let events = self.events.clone();
        tokio::select! {
            () = events.closed() => {}
            () = stop.cancelled() => {}
            () = joiner.run() => {}
            _ = self.drive() => {}
        }
    }

    async fn drive(&mut self) -> Result<(), Unheard> {
        loop {
            if self.missed.take_due() {
                self.family.must_read_all();
                self.want(Depth::Everything);
            }
            let outcome = match self.catch_up().await? {
                Some(outcome) => {
                    // What is on its way to OpenCode is known before the end is told.
                    self.joins.shut().await;
                    Some(outcome)
                }
                // What could not be read may belong before the end.
                None if self.missed.due().is_some() && self.given_up.is_none() => None,
                None => self.judge().await?,
            };
            if let Some(outcome) = outcome {
                return self.end(outcome).await;
            }
            // A sub-agent may be in doubt now.
            if self.family.next_to_read().is_none() {
                if std::mem::take(&mut self.is_behind) {
                    self.send(None, AgentEvent::CaughtUp).await?;
                }
                self.step().await;
            }
        }
    }

    /// Waits for the next thing and takes it in.
    async fn step(&mut self) {
        let given_up = self.given_up.as_ref().map(|given_up| given_up.until);
        let (due, silent) = (self.family.due(), given_up.or(self.silence.due()));
        let missed = self.missed.due();
        tokio::select! {
            biased;
            routed = self.lease.next() => {
                self.silence.broken();
                self.take(routed);
            }
            () = self.joins.changed() => {}
            // Nobody says what happens, so it is asked for.
            () = self.strangers.stay(LOOK_AFTER.min(self.watchdog.strange)) => self.take(Routed::Reconnected),
            () = sleep_until(missed.unwrap_or_else(Instant::now)), if missed.is_some() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if self.family.read_due() {
                    self.want(Depth::Messages);
                }
            }
            () = sleep_until(silent.unwrap_or_else(Instant::now)), if silent.is_some() => {
                let is_watched = self.given_up.is_none() && !self.family.root.is_at_rest();
                if is_watched && self.lease.is_connected() && !self.family.may_be_silent() {
                    self.give_up(outcome::silent(self.silence.limit())).await;
                }
                self.silence.broken();
            }
        }
    }

    fn take(&mut self, routed: Routed) {
        let root = &mut self.family.root.translator;
        match routed {
            Routed::Event { child: None, kind, body } => {
                self.joins.tell(&mut self.joins_seen, root);
                if let Err(cause) = root.event(kind, &body) {
                    skipped(&self.session.id, kind, &cause);
                    self.miss();
                }
            }
            Routed::Event { child: Some(child), kind, body } => {
                if let Err(cause) = self.family.event(&child, kind, body) {
                    skipped(&child.session, kind, &cause);
                    self.miss();
                }
            }
            Routed::Missed => self.miss(),
            Routed::Reconnected => {
                self.family.gap();
                self.family.must_read_all();
                self.want(Depth::Everything);
                self.missed.asked();
            }
        }
        self.joins.look_at(&self.family.root.translator);
        if self.family.root.translator.must_ask() {
            self.want(Depth::Everything);
        } else if self.family.root.translator.must_reread() {
            self.want(Depth::Messages);
        }
    }

    /// An event could not be read. What comes after it is not taken for what follows on what was told.
    fn miss(&mut self) {
        self.family.gap();
        self.missed.note();
    }

    fn want(&mut self, depth: Depth) {
        self.must_read = self.must_read.max(Some(depth));
    }

    /// Tells what is new, and reads what must be read first. Gives an outcome when OpenCode no longer has the session.
    async fn catch_up(&mut self) -> Result<Option<Outcome>, Unheard> {
        self.all_is_told = Instant::now();
        loop {
            self.flush().await?;
            if let Some(depth) = self.must_read.take() {
                if let Some(outcome) = self.reread(depth).await {
                    return Ok(Some(outcome));
                }
                self.flush().await?;
                if depth == Depth::Everything {
                    while let Some(at) = self.family.next_to_read() {
                        self.read_child(at).await;
                        self.flush().await?;
                    }
                    self.start_unnamed(false).await?;
                }
            } else if let Some(at) = self.family.next_to_read() {
                self.read_child(at).await;
            } else {
                return Ok(None);
            }
        }
    }

    /// Asks whether the turn is over.
    async fn judge(&mut self) -> Result<Option<Outcome>, Unheard> {
        self.judge_children().await?;
        let is_stopped = self.is_stopped();
        self.joins.tell(&mut self.joins_seen, &mut self.family.root.translator);
        let outcome = self.family.root.judge(is_stopped);
        if let Some(given_up) = &self.given_up {
            let is_over = outcome.is_some() || Instant::now() >= given_up.until;
            return Ok(is_over.then(|| given_up.outcome.clone()));
        }
        if outcome.is_none()
            && let Some(outcome) = self.watchdog.limits(&self.family.root)
        {
            tracing::warn!(session = %self.session.id, "a model that answers without end was stopped");
            self.give_up(outcome).await;
        }
        // Somebody may have joined just now.
        Ok(outcome.filter(|_| self.joins.close(self.joins_seen)))
    }

    /// Stops a turn that does not come to an end by itself.
    async fn give_up(&mut self, outcome: Outcome) {
        self.joins.shut().await;
        self.joins.tell(&mut self.joins_seen, &mut self.family.root.translator);
        self.is_stopped = true;
        let until = Instant::now() + LAST_WORDS;
        self.given_up = Some(GivenUp { outcome, until });
        self.abort(None, until).await;
    }

    /// Stops what runs in a session of the family, within the time that is left for it.
    async fn abort(&self, member: Option<usize>, until: Instant) {
        let session = self.family.session_of(member);
        // When it fails twice, the next turn waits for the session to be idle, and says that it is busy.
        for _ in 0..2 {
            match timeout_at(until, self.client.abort(&self.session.directory, session.as_str())).await {
                Ok(Ok(())) => return,
                Ok(Err(cause)) => {
                    tracing::warn!(%session, %cause, "a turn that was given up could not be stopped");
                }
                Err(_) => {
                    tracing::warn!(%session, "a turn that was given up could not be stopped in time");
                    return;
                }
            }
        }
    }

    /// The gateway wanted the turn to stop.
    fn is_stopped(&self) -> bool {
        self.is_stopped || self.lease.aborted_by_us()
    }

    /// Reads from OpenCode what the stream did not bring. While OpenCode does not answer, it waits.
    async fn reread(&mut self, depth: Depth) -> Option<Outcome> {
        let mut pause = FIRST_RETRY;
        loop {
            self.joins.tell(&mut self.joins_seen, &mut self.family.root.translator);
            let followed = self.family.live_sessions();
            let root = &mut self.family.root.translator;
            let reading = reconcile::read(&self.client, &self.session, root, depth, &followed);
            let reading = match &self.given_up {
                Some(given_up) => match timeout_at(given_up.until, reading).await {
                    Ok(reading) => reading,
                    Err(_) => return Some(given_up.outcome.clone()),
                },
                None => reading.await,
            };
            match reading {
                Reading::Done(found) => {
                    self.joins.look_at(&self.family.root.translator);
                    self.strange.over();
                    self.all_is_told = Instant::now();
                    for found in &found {
                        self.note_found(found);
                    }
                    self.family.look_for_returns();
                    return None;
                }
                Reading::Gone => {
                    return Some(match self.family.root.translator.evidence() {
                        Evidence::None => outcome::session_gone(),
                        _ => self.family.root.last_word(self.lease.aborted_by_us()),
                    });
                }
                Reading::NoAnswer(cause) => {
                    tracing::debug!(session = %self.session.id, %cause, "OpenCode did not say where the turn stands");
                    let limit = self.watchdog.strange;
                    if self.strange.is_too_long(&cause, limit) {
                        tracing::warn!(session = %self.session.id, %cause, "a turn is not followed any more");
                        return Some(outcome::strange(&cause.into_error("tell how the turn stands"), limit));
                    }
                    let until = self.given_up.as_ref().map(|given_up| given_up.until);
                    let next = Instant::now() + pause;
                    sleep_until(until.map_or(next, |until| until.min(next))).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }

    /// Tells all that is new.
    async fn flush(&mut self) -> Result<(), Unheard> {
        for event in self.family.root.translator.take() {
            self.tell(None, event).await?;
        }
        let mut at = 0;
        // More may become known on the way.
        while at < self.family.children.len() {
            self.flush_child(at).await?;
            at += 1;
        }
        Ok(())
    }

    async fn end(&mut self, outcome: Outcome) -> Result<(), Unheard> {
        self.is_stopped |= matches!(outcome, Outcome::Canceled { .. });
        self.begin_to_end();
        self.finish_all().await?;
        if self.is_stopped || self.family.has_stopped_child {
            self.clear_asks().await;
        }
        let root = &mut self.family.root.translator;
        let outcome = if root.may_lack_text() { outcome::lacking_text(outcome) } else { outcome };
        root.close();
        let written = root.take_written();
        self.flush().await?;
        self.hand_over(None, written).await?;
        self.send(None, AgentEvent::Ended(outcome)).await
    }

    /// Whoever stopped the turn left its asks in OpenCode's lists. They are rejected before the end is told, which lets the
    /// next turn begin.
    async fn clear_asks(&self) {
        let known = self.family.children.iter().map(|child| child.session.as_str().to_owned());
        let client = self.client.for_ends();
        let clearing = clear::asks(&client, &self.session, known.collect());
        if timeout(LAST_WORDS, clearing).await.is_err() {
            tracing::debug!(session = %self.session.id, "asks of a stopped turn may be left in OpenCode");
        }
    }
}

fn skipped(session: &SessionId, kind: EventKind, cause: &serde_json::Error) {
    tracing::warn!(
        %session, ?kind, line = cause.line(), column = cause.column(),
        "an event was not understood and was skipped"
    );
}
