//! The driver of one turn: follows the events of the session and of its sub-agents until OpenCode says how the turn ended.
//!
//! The end comes from OpenCode's words, never from a timeout of ours, but for a model that is silent for too long. The
//! other clocks here pace re-reading when a session is idle and its messages are not final yet.

mod children;
mod command;
mod tree;
mod joins;
mod member;
mod missed;
mod readings;
mod signals;
mod start;
mod invalid_responses;
mod unprompted;
mod watchdog;
mod written;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use longshore_engine::port::Session;
use longshore_engine::queue;
use longshore_model::{AgentEvent, Outcome, SessionId};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::tree::SessionTree;
use self::joins::{Joiner, Joins};
use self::missed::MissedEvents;
use self::signals::Signal;
pub(crate) use self::start::{PATIENCE, Starter, start};
use self::invalid_responses::{CHECK_AFTER, InvalidResponses};
pub(crate) use self::unprompted::Unused;
pub use self::watchdog::Watchdog;
use self::watchdog::{Limits, Silence};
use crate::api::EventKind;
use crate::clear;
use crate::client::Client;
use crate::outcome;
use crate::reader::{Lease, Routed, InvalidResponseAlarm};
use crate::reconcile::{self, Depth, Reading};
use crate::translate::Evidence;

/// Pause before OpenCode is asked again after it did not answer: doubled up to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How long a turn that was given up may take to stop. Then it ends without a last word of OpenCode.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// So many pieces of text are taken in before they are told. They are one report then, if they are of one block.
const MAX_TAKEN: usize = 64;

#[derive(Debug)]
struct Driver {
    client: Client,
    session: Session,
    lease: Lease,
    tree: SessionTree,
    events: queue::Sender<AgentEvent>,
    joins: Arc<Joins>,
    /// What the translator knows of the messages that join.
    joins_seen: u64,
    /// What is to be read before anything is said about the end.
    must_read: Option<Depth>,
    missed: MissedEvents,
    limits: Limits,
    silence: Silence,
    given_up: Option<GivenUp>,
    strange: InvalidResponses,
    /// The turn ends, and what is still asked for has time until then.
    ending: Option<Instant>,
    /// How long the agent's own reports wait for messages of sub-agents that OpenCode does not show.
    patience: Duration,
    /// Since when they wait: so far they were read, or came by the stream.
    caught_up_at: Instant,
    /// The turn was stopped, by a watchdog or somebody else.
    is_stopped: bool,
    written_files: bool,
    /// It was taken up again, and not all that was missed is told yet.
    is_catching_up: bool,
}

/// A watchdog stopped the turn. It is followed to its end, which is then told as this.
#[derive(Debug)]
struct GivenUp {
    outcome: Outcome,
    until: Instant,
}

/// Nobody listens to the turn any more.
struct ReceiverGone;

/// What a step took in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Consumed {
    /// Pieces of text: they end nothing, and nobody comes into doubt by them.
    Text,
    Other,
}

impl Driver {
    /// Runs until the turn ends, nobody listens, or the gateway stops. OpenCode goes on in the latter cases.
    async fn run(mut self: Box<Self>, joiner: Box<Joiner>, invalid_alarm: InvalidResponseAlarm, stop: CancellationToken) {
        let events = self.events.clone();
        // These have something to say rarely, and are asked only then: there are turns with a thousand events a second.
        let rare = async move {
            tokio::select! {
                () = events.closed() => {}
                () = stop.cancelled() => {}
                () = joiner.run() => {}
            }
        };
        let mut rare: FuturesUnordered<_> = std::iter::once(rare).collect();
        tokio::select! {
            biased;
            _ = self.drive(invalid_alarm) => {}
            _ = rare.next() => {}
        }
    }

    async fn drive(&mut self, invalid_alarm: InvalidResponseAlarm) -> Result<(), ReceiverGone> {
        let check_after = CHECK_AFTER.min(self.limits.strange());
        let mut signals = signals::signals(self.joins.news(), invalid_alarm, check_after);
        // One for the whole turn: where something is due earlier it is set anew, and else when it rings.
        let mut alarm = pin!(sleep_until(Instant::now()));
        loop {
            if self.missed.take_due() {
                self.tree.must_read_all();
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
                return Box::pin(self.end(outcome)).await;
            }
            // A sub-agent may be in doubt now.
            if self.tree.next_to_read().is_none() {
                if std::mem::take(&mut self.is_catching_up) {
                    self.send(None, AgentEvent::CaughtUp).await?;
                }
                while self.step(&mut signals, alarm.as_mut()).await == Consumed::Text && self.can_stream_text() {
                    self.flush().await?;
                }
            }
        }
    }

    /// Waits for the next thing and takes it in, and whatever text waits behind it.
    async fn step(
        &mut self,
        signals: &mut (impl Stream<Item = Signal> + Unpin),
        mut alarm: Pin<&mut Sleep>,
    ) -> Consumed {
        let mut routed = loop {
            if let Some(routed) = self.lease.try_next() {
                break routed;
            }
            let due = self.due();
            if let Some(due) = due
                && (due < alarm.deadline() || alarm.is_elapsed())
            {
                alarm.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                routed = self.lease.next() => break routed,
                signal = signals.next() => match signal {
                    // Nobody says what happens, so it is asked for.
                    Some(Signal::InvalidResponses) => {
                        self.take(Routed::Reconnected);
                        return Consumed::Other;
                    }
                    _ => return Consumed::Other,
                },
                () = alarm.as_mut(), if due.is_some() => {
                    if self.ring().await {
                        return Consumed::Other;
                    }
                }
            }
        };
        self.silence.reset();
        for _ in 1..MAX_TAKEN {
            if self.take(routed) == Consumed::Other {
                return Consumed::Other;
            }
            match self.lease.try_next() {
                Some(next) => routed = next,
                None => return Consumed::Text,
            }
        }
        self.take(routed)
    }

    /// When something is to be done though nothing comes.
    fn due(&self) -> Option<Instant> {
        let dues = [self.missed.due(), self.tree.due(), self.silent_until()];
        dues.into_iter().flatten().min()
    }

    fn silent_until(&self) -> Option<Instant> {
        self.given_up.as_ref().map(|given_up| given_up.until).or(self.silence.due())
    }

    /// Does what is due, if something is.
    async fn ring(&mut self) -> bool {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.missed.due()) {
            return true;
        }
        if is_due(self.tree.due()) {
            if self.tree.read_due() {
                self.want(Depth::Messages);
            }
            return true;
        }
        if !is_due(self.silent_until()) {
            return false;
        }
        let is_watched = self.given_up.is_none() && !self.tree.root.is_idle_or_failed();
        if is_watched && self.lease.is_connected() && !self.tree.may_be_silent() {
            Box::pin(self.give_up(outcome::silent(self.silence.limit()))).await;
        }
        self.silence.reset();
        true
    }

    /// Nothing is in doubt and nothing is about to end, so text can be told as it comes.
    fn can_stream_text(&self) -> bool {
        self.given_up.is_none()
            && self.must_read.is_none()
            && self.missed.due().is_none()
            && self.tree.next_to_read().is_none()
    }

    fn take(&mut self, routed: Routed) -> Consumed {
        let mut taken = Consumed::Other;
        match routed {
            Routed::Event { child, event } => {
                if event.kind == EventKind::PartDelta {
                    taken = Consumed::Text;
                }
                let understood = match &child {
                    None => {
                        let root = &mut self.tree.root.translator;
                        self.joins.tell(&mut self.joins_seen, root);
                        root.handle(&event)
                    }
                    Some(child) => self.tree.event(child, &event),
                };
                if let Err(cause) = understood {
                    let session = child.as_ref().map_or(&self.session.id, |child| &child.session);
                    skipped(session, event.kind, &cause);
                    if !event.is_json() {
                        self.lease.report_malformed();
                    }
                    self.miss();
                    taken = Consumed::Other;
                }
            }
            Routed::Missed => self.miss(),
            Routed::Reconnected | Routed::Lagged => {
                self.tree.gap();
                self.tree.must_read_all();
                self.want(Depth::Everything);
                self.missed.asked();
            }
        }
        if taken == Consumed::Text {
            return taken;
        }
        self.joins.look_at(&self.tree.root.translator);
        if self.tree.root.translator.take_must_read_asks() {
            self.want(Depth::Everything);
        } else if self.tree.root.translator.must_reread() {
            self.want(Depth::Messages);
        }
        taken
    }

    /// An event could not be read. What comes after it is not taken for what follows on what was told.
    fn miss(&mut self) {
        self.tree.gap();
        self.missed.note();
    }

    fn want(&mut self, depth: Depth) {
        self.must_read = self.must_read.max(Some(depth));
    }

    /// Tells what is new, and reads what must be read first. Gives an outcome when OpenCode no longer has the session.
    async fn catch_up(&mut self) -> Result<Option<Outcome>, ReceiverGone> {
        // To tell may be to read: a sub-agent that is called again is asked how it ended before.
        self.caught_up_at = Instant::now();
        self.flush().await?;
        if self.must_read.is_none() && self.tree.next_to_read().is_none() {
            return Ok(None);
        }
        // This needs much room, which a turn does not have to hold all the time.
        Box::pin(self.read_and_report()).await
    }

    async fn read_and_report(&mut self) -> Result<Option<Outcome>, ReceiverGone> {
        loop {
            self.flush().await?;
            if let Some(depth) = self.must_read.take() {
                if let Some(outcome) = self.reread(depth).await {
                    return Ok(Some(outcome));
                }
                self.flush().await?;
                if depth == Depth::Everything {
                    while let Some(at) = self.tree.next_to_read() {
                        self.read_child(at).await;
                        self.flush().await?;
                    }
                    self.start_unnamed(false).await?;
                }
            } else if let Some(at) = self.tree.next_to_read() {
                self.read_child(at).await;
            } else {
                return Ok(None);
            }
        }
    }

    /// Asks whether the turn is over.
    async fn judge(&mut self) -> Result<Option<Outcome>, ReceiverGone> {
        if !self.tree.children.is_empty() {
            Box::pin(self.judge_children()).await?;
        }
        let is_stopped = self.is_stopped();
        self.joins.tell(&mut self.joins_seen, &mut self.tree.root.translator);
        let outcome = self.tree.root.judge(is_stopped);
        if let Some(given_up) = &self.given_up {
            let is_over = outcome.is_some() || Instant::now() >= given_up.until;
            return Ok(is_over.then(|| given_up.outcome.clone()));
        }
        if outcome.is_none()
            && let Some(outcome) = self.limits.reached(&self.tree.root)
        {
            tracing::warn!(session = %self.session.id, "a model that answers without end was stopped");
            Box::pin(self.give_up(outcome)).await;
        }
        // Somebody may have joined just now.
        Ok(outcome.filter(|_| self.joins.close(self.joins_seen)))
    }

    /// Stops a turn that does not come to an end by itself.
    async fn give_up(&mut self, outcome: Outcome) {
        self.joins.shut().await;
        self.joins.tell(&mut self.joins_seen, &mut self.tree.root.translator);
        self.is_stopped = true;
        let until = Instant::now() + LAST_WORDS;
        self.given_up = Some(GivenUp { outcome, until });
        self.abort(None, until).await;
    }

    /// Stops what runs in a session of the tree, within the time that is left for it.
    async fn abort(&self, member: Option<usize>, until: Instant) {
        let session = self.tree.session_of(member);
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
        self.is_stopped || self.lease.aborted_by_gateway()
    }

    /// Reads from OpenCode what the stream did not bring. While OpenCode does not answer, it waits.
    async fn reread(&mut self, depth: Depth) -> Option<Outcome> {
        let mut pause = FIRST_RETRY;
        loop {
            self.joins.tell(&mut self.joins_seen, &mut self.tree.root.translator);
            let followed = self.tree.live_sessions();
            let root = &mut self.tree.root.translator;
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
                    self.joins.look_at(&self.tree.root.translator);
                    self.strange.over();
                    self.caught_up_at = Instant::now();
                    for found in &found {
                        self.note_found(found);
                    }
                    self.tree.note_returned_calls();
                    return None;
                }
                Reading::Gone => {
                    return Some(match self.tree.root.translator.evidence() {
                        Evidence::None => outcome::session_gone(),
                        _ => self.tree.root.forced_outcome(self.lease.aborted_by_gateway()),
                    });
                }
                Reading::NoAnswer(cause) => {
                    tracing::debug!(session = %self.session.id, %cause, "OpenCode did not say where the turn stands");
                    let limit = self.limits.strange();
                    if self.strange.is_too_long(&cause, limit) {
                        tracing::warn!(session = %self.session.id, %cause, "a turn is not followed any more");
                        return Some(outcome::invalid_responses(&cause.into_error("tell how the turn stands"), limit));
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
    async fn flush(&mut self) -> Result<(), ReceiverGone> {
        // A turn that always finds room lets others have their turn too.
        tokio::task::coop::consume_budget().await;
        for event in self.tree.root.translator.take() {
            // Mostly text, and there is room for it.
            if let Some(event) = self.try_report_text(event)? {
                Box::pin(self.tell(None, event)).await?;
            }
        }
        if self.tree.children.is_empty() {
            return Ok(());
        }
        Box::pin(self.flush_children()).await
    }

    async fn flush_children(&mut self) -> Result<(), ReceiverGone> {
        let mut at = 0;
        // More may become known on the way.
        while at < self.tree.children.len() {
            self.flush_child(at).await?;
            at += 1;
        }
        Ok(())
    }

    async fn end(&mut self, outcome: Outcome) -> Result<(), ReceiverGone> {
        self.is_stopped |= matches!(outcome, Outcome::Canceled { .. });
        self.set_end_deadline();
        self.finish_children().await?;
        if self.is_stopped || self.tree.has_stopped_child {
            self.clear_asks().await;
        }
        let root = &mut self.tree.root.translator;
        let outcome = if root.may_lack_text() { outcome::lacking_text(outcome) } else { outcome };
        root.close();
        let written = root.take_written();
        self.flush().await?;
        self.report_written_files(None, written).await?;
        self.send(None, AgentEvent::Ended(outcome)).await
    }

    /// Whoever stopped the turn left its asks in OpenCode's lists. They are rejected before the end is told, which lets the
    /// next turn begin.
    async fn clear_asks(&self) {
        let known = self.tree.children.iter().map(|child| child.session.as_str().to_owned());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a call of it gives.
    fn size_of_its_future<A, B, C, D, F: Future>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// There is one for each turn that runs, for as long as it runs. What is rarely needed is in a box.
    #[test]
    fn a_driver_is_small() {
        let (driver, run) = (size_of::<Driver>(), size_of_its_future(Driver::run));
        assert!(driver <= 1_536 && run <= 2_304, "{driver} bytes, and {run} to run it");
    }
}
