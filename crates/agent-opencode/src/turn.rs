//! The driver of one turn: follows the events of the session and of its sub-agents until OpenCode reports how the turn ended.
//!
//! The end of a turn is always reported by OpenCode and never assumed after a timeout, except at the watchdog's limits, such as a
//! model that is silent for too long. The other timers in this module decide when to read an idle session again whose messages are
//! not final yet.

mod children;
mod command;
mod invalid_responses;
mod joins;
mod member;
mod missed;
mod readings;
mod signals;
mod start;
mod tree;
mod unprompted;
mod watchdog;
mod written;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use longshore_engine::ProtectedPaths;
use longshore_engine::port::Session;
use longshore_engine::queue;
use longshore_model::{AgentEvent, Outcome, SessionId};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::invalid_responses::{CHECK_AFTER, InvalidResponses};
use self::joins::{Joiner, Joins};
use self::missed::MissedEvents;
use self::signals::Signal;
pub(crate) use self::start::{STREAM_TIMEOUT, Starter, start};
use self::tree::SessionTree;
pub(crate) use self::unprompted::UnpromptedSessions;
pub use self::watchdog::Watchdog;
use self::watchdog::{Limits, Silence};
use crate::api::EventKind;
use crate::clear;
use crate::client::Client;
use crate::directories::DirectoryUse;
use crate::outcome;
use crate::reader::{InvalidResponseAlarm, Lease, Routed};
use crate::reconcile::{self, Depth, Reading};
use crate::translate::{Evidence, Translator};

/// The first and the longest pause before the next request if OpenCode did not respond. The pause doubles each time.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How long a turn that the watchdog stopped may take to end. After that it ends without OpenCode's own report.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of text deltas that are consumed before they are reported. Deltas of the same block become one report.
const MAX_TEXT_BATCH: usize = 64;

#[derive(Debug)]
struct Driver {
    client: Client,
    session: Session,
    lease: Lease,
    tree: SessionTree,
    events: queue::Sender<AgentEvent>,
    joins: Arc<Joins>,
    /// The version of `joins` that the translator last received.
    joins_seen: u64,
    /// The number of the OpenCode process that received the prompt.
    process: u32,
    /// The read from OpenCode that must be made before the end of the turn can be judged.
    must_read: Option<Depth>,
    missed: MissedEvents,
    limits: Limits,
    silence: Silence,
    given_up: Option<Box<GivenUp>>,
    invalid_responses: InvalidResponses,
    /// The deadline for reading the messages of the sub-agents. Set when the turn ends.
    end_deadline: Option<Instant>,
    /// How long the agent's own reports are held back while OpenCode does not show the messages of a sub-agent.
    patience: Duration,
    /// The last time at which no report was held back. Reports that wait for a sub-agent's messages have waited since then.
    caught_up_at: Instant,
    /// Whether the watchdog or a user has stopped the turn.
    is_stopped: bool,
    written_files: bool,
    protected: Arc<ProtectedPaths>,
    /// Whether the turn was resumed after a restart and the missed events are not all reported yet.
    is_catching_up: bool,
}

/// The state of a turn that the watchdog stopped. The driver still follows the turn to its end, and then reports this outcome.
#[derive(Debug)]
struct GivenUp {
    outcome: Outcome,
    until: Instant,
}

/// The receiver of the turn's events was dropped.
struct Closed;

/// The kind of entry that [`Driver::consume`] handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Consumed {
    /// A text delta, which cannot end the turn or require a read.
    Text,
    Other,
}

impl Driver {
    /// Runs until the turn ends, the receiver is dropped, or the gateway stops. In the latter two cases the turn continues in
    /// OpenCode.
    async fn run(
        mut self: Box<Self>,
        joiner: Box<Joiner>,
        invalid_alarm: InvalidResponseAlarm,
        stop: CancellationToken,
        _in_use: Option<DirectoryUse>,
    ) {
        let events = self.events.clone();
        // These futures are rarely ready and some turns have a thousand events a second, so they are polled only when woken.
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

    async fn drive(&mut self, invalid_alarm: InvalidResponseAlarm) -> Result<(), Closed> {
        let check_after = CHECK_AFTER.min(self.limits.invalid_responses());
        let (address, process) = (self.client.address().clone(), self.process);
        let mut signals =
            signals::signals(self.joins.changes(), invalid_alarm, check_after, address, process);
        // One timer for the whole turn. It is reset only if a deadline is earlier than its own, or after it has fired.
        let mut alarm = pin!(sleep_until(Instant::now()));
        loop {
            if self.missed.take_due() {
                self.tree.must_read_all();
                self.require_read(Depth::Everything);
            }
            let outcome = match self.catch_up().await? {
                Some(outcome) => {
                    // A message may be on its way to OpenCode. Its delivery must be known before the end is reported.
                    self.joins.close_and_wait().await;
                    Some(outcome)
                }
                // The end waits for a read that is due, because an event that could not be parsed may have come before the end.
                None if self.missed.due().is_some() && self.given_up.is_none() => None,
                None => self.check_end().await?,
            };
            if let Some(outcome) = outcome {
                return Box::pin(self.end(outcome)).await;
            }
            // The messages of a sub-agent may have to be read before the next event is handled.
            if self.tree.next_to_read().is_none() {
                if std::mem::take(&mut self.is_catching_up) {
                    self.send(None, AgentEvent::CaughtUp).await?;
                }
                while self.consume_next(&mut signals, alarm.as_mut()).await == Consumed::Text
                    && self.can_stream_text()
                {
                    self.flush().await?;
                }
            }
        }
    }

    /// Waits for the next event or signal and handles it, together with the text deltas that are queued behind it.
    async fn consume_next(
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
                    // The stream delivers no events, so the state is read from OpenCode instead. A new process of OpenCode shows
                    // everything that the killed turn left behind before it serves a stream.
                    Some(Signal::InvalidResponses | Signal::NewProcess) => {
                        self.consume(Routed::Reconnected);
                        return Consumed::Other;
                    }
                    _ => return Consumed::Other,
                },
                () = alarm.as_mut(), if due.is_some() => {
                    if self.handle_due().await {
                        return Consumed::Other;
                    }
                }
            }
        };
        self.silence.reset();
        for _ in 1..MAX_TEXT_BATCH {
            if self.consume(routed) == Consumed::Other {
                return Consumed::Other;
            }
            match self.lease.try_next() {
                Some(next) => routed = next,
                None => return Consumed::Text,
            }
        }
        self.consume(routed)
    }

    /// The next time at which the driver must act even if no event arrives.
    fn due(&self) -> Option<Instant> {
        let dues = [self.missed.due(), self.tree.due(), self.silent_until()];
        dues.into_iter().flatten().min()
    }

    fn silent_until(&self) -> Option<Instant> {
        self.given_up.as_ref().map(|given_up| given_up.until).or(self.silence.due())
    }

    /// Handles the deadlines that have passed. Returns false if none has.
    async fn handle_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        if is_due(self.missed.due()) {
            return true;
        }
        if is_due(self.tree.due()) {
            if self.tree.mark_due() {
                self.require_read(Depth::Messages);
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

    /// Whether text can be reported as it arrives: no read is needed, and the turn was not stopped.
    fn can_stream_text(&self) -> bool {
        self.given_up.is_none()
            && self.must_read.is_none()
            && self.missed.due().is_none()
            && self.tree.next_to_read().is_none()
    }

    fn consume(&mut self, routed: Routed) -> Consumed {
        let mut consumed = Consumed::Other;
        match routed {
            Routed::Event { child, event } => {
                if event.kind == EventKind::PartDelta {
                    consumed = Consumed::Text;
                }
                let understood = match &child {
                    None => {
                        let root = &mut self.tree.root.translator;
                        self.joins.update_translator(&mut self.joins_seen, root);
                        root.handle(&event)
                    }
                    Some(child) => self.tree.handle_event(child, &event),
                };
                if let Err(cause) = understood {
                    let session = child.as_ref().map_or(&self.session.id, |child| &child.session);
                    warn_skipped(session, event.kind, &cause);
                    if !event.is_json() {
                        self.lease.report_malformed();
                    }
                    self.note_missed();
                    consumed = Consumed::Other;
                }
            }
            Routed::Missed => self.note_missed(),
            Routed::Reconnected | Routed::Lagged => {
                self.tree.gap();
                self.tree.must_read_all();
                self.require_read(Depth::Everything);
                self.missed.note_read();
            }
        }
        if consumed == Consumed::Text {
            return consumed;
        }
        self.joins.note_begun(&self.tree.root.translator);
        if self.tree.root.translator.take_must_read_asks() {
            self.require_read(Depth::Everything);
        } else if self.tree.root.translator.must_reread() {
            self.require_read(Depth::Messages);
        }
        consumed
    }

    /// Called when an event could not be parsed. Later deltas may then not continue the text that was reported.
    fn note_missed(&mut self) {
        self.tree.gap();
        self.missed.note();
    }

    fn require_read(&mut self, depth: Depth) {
        self.must_read = self.must_read.max(Some(depth));
    }

    /// Reports all new events. If an event shows that more is needed, such as the messages of a session, reads that from OpenCode.
    /// Returns an outcome if the turn has ended, for example because OpenCode no longer has the session.
    async fn catch_up(&mut self) -> Result<Option<Outcome>, Closed> {
        // Reporting may need reads too: before a sub-agent is called again, the driver reads how its previous call ended.
        self.caught_up_at = Instant::now();
        self.flush().await?;
        if self.must_read.is_none() && self.tree.next_to_read().is_none() {
            return Ok(None);
        }
        // Boxed, because this future is large and a turn rarely needs it.
        Box::pin(self.read_and_report()).await
    }

    async fn read_and_report(&mut self) -> Result<Option<Outcome>, Closed> {
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

    /// Checks whether the turn is over.
    async fn check_end(&mut self) -> Result<Option<Outcome>, Closed> {
        if !self.tree.children.is_empty() {
            Box::pin(self.check_children()).await?;
        }
        let is_stopped = self.is_stopped();
        self.joins.update_translator(&mut self.joins_seen, &mut self.tree.root.translator);
        let outcome = self.tree.root.check_end(is_stopped);
        if let Some(given_up) = &self.given_up {
            let is_over = outcome.is_some() || Instant::now() >= given_up.until;
            return Ok(is_over.then(|| given_up.outcome.clone()));
        }
        if outcome.is_none()
            && let Some(outcome) = self.limits.reached(&self.tree.root)
        {
            tracing::warn!(session = %self.session.id, "stopped a turn because its model does not finish");
            Box::pin(self.give_up(outcome)).await;
        }
        // If a message joined at this moment, the turn does not end.
        Ok(outcome.filter(|_| self.joins.close_if_unchanged(self.joins_seen)))
    }

    /// Stops a turn that does not end by itself. `outcome` is reported when the turn has ended.
    async fn give_up(&mut self, outcome: Outcome) {
        self.joins.close_and_wait().await;
        self.joins.update_translator(&mut self.joins_seen, &mut self.tree.root.translator);
        self.is_stopped = true;
        let until = Instant::now() + STOP_TIMEOUT;
        self.given_up = Some(Box::new(GivenUp { outcome, until }));
        self.abort(None, until).await;
    }

    /// Aborts the session of a member of the tree. Stops trying at the deadline.
    async fn abort(&self, member: Option<usize>, until: Instant) {
        let session = self.tree.session_of(member);
        // If both attempts fail, the next turn waits until the session is idle, or fails because the session is busy.
        for _ in 0..2 {
            match timeout_at(until, self.client.abort(&self.session.directory, session.as_str())).await {
                Ok(Ok(())) => return,
                Ok(Err(cause)) => {
                    tracing::warn!(%session, %cause, "could not stop a turn that was given up");
                }
                Err(_) => {
                    tracing::warn!(%session, "could not stop a turn that was given up in time");
                    return;
                }
            }
        }
    }

    /// Whether the gateway stopped the turn, by its watchdog or on request.
    fn is_stopped(&self) -> bool {
        self.is_stopped || self.lease.aborted_by_gateway()
    }

    /// Reads the state of the turn from OpenCode, because events were missed or the end is doubtful. Repeats this while OpenCode
    /// does not respond. Returns an outcome if the turn must end.
    async fn reread(&mut self, depth: Depth) -> Option<Outcome> {
        let mut pause = FIRST_RETRY;
        loop {
            self.joins.update_translator(&mut self.joins_seen, &mut self.tree.root.translator);
            let followed = self.tree.live_sessions();
            let root = &mut self.tree.root.translator;
            let (process, back) = (self.client.address().process(), self.client.address().until_back());
            let (joins, seen) = (&self.joins, &mut self.joins_seen);
            let update_joins = |root: &mut Translator| joins.update_translator(seen, root);
            let reading = reconcile::read(&self.client, &self.session, root, update_joins, depth, &followed);
            let reading = match &self.given_up {
                Some(given_up) => match timeout_at(given_up.until, reading).await {
                    Ok(reading) => reading,
                    Err(_) => return Some(given_up.outcome.clone()),
                },
                None => reading.await,
            };
            match reading {
                Reading::Done(found) => {
                    self.joins.note_begun(&self.tree.root.translator);
                    self.invalid_responses.clear();
                    self.caught_up_at = Instant::now();
                    if process != self.process {
                        self.tree.note_opencode_ended();
                    }
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
                    tracing::debug!(session = %self.session.id, %cause, "could not read the state of a turn from OpenCode");
                    let limit = self.limits.invalid_responses();
                    if self.invalid_responses.exceed(&cause, limit) {
                        tracing::warn!(session = %self.session.id, %cause, "stopped following a turn");
                        return Some(outcome::invalid_responses(
                            &cause.into_error("report the state of the turn"),
                            limit,
                        ));
                    }
                    let until = self.given_up.as_ref().map(|given_up| given_up.until);
                    let next = Instant::now() + pause;
                    let next = until.map_or(next, |until| until.min(next));
                    // Waits until the pause is over or OpenCode is back.
                    let _ = timeout_at(next, back).await;
                    pause = (pause * 2).min(LAST_RETRY);
                }
            }
        }
    }

    /// Reports all new events of the agent and its sub-agents.
    async fn flush(&mut self) -> Result<(), Closed> {
        // Gives up control now and then, even if the queue always has room.
        tokio::task::coop::consume_budget().await;
        for event in self.tree.root.translator.take() {
            // Fast path: most events are text, and usually the queue has room for them.
            if let Some(event) = self.try_report_text(event)? {
                Box::pin(self.report(None, event)).await?;
            }
        }
        if self.tree.children.is_empty() {
            return Ok(());
        }
        Box::pin(self.flush_children()).await
    }

    async fn flush_children(&mut self) -> Result<(), Closed> {
        let mut at = 0;
        // More sub-agents may become known in this loop.
        while at < self.tree.children.len() {
            self.flush_child(at).await?;
            at += 1;
        }
        Ok(())
    }

    async fn end(&mut self, outcome: Outcome) -> Result<(), Closed> {
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

    /// Rejects the asks that a stopped turn left in OpenCode's lists. Must be done before the end is reported, because the next
    /// turn may begin at that moment.
    async fn clear_asks(&self) {
        let known = self.tree.children.iter().map(|child| child.session.as_str().to_owned());
        let client = self.client.for_cleanup();
        let clearing = clear::reject_asks(&client, &self.session, known.collect());
        if timeout(STOP_TIMEOUT, clearing).await.is_err() {
            tracing::debug!(session = %self.session.id, "asks of a stopped turn may remain open in OpenCode");
        }
    }
}

fn warn_skipped(session: &SessionId, kind: EventKind, cause: &serde_json::Error) {
    tracing::warn!(
        %session, ?kind, line = cause.line(), column = cause.column(),
        "skipped an event that could not be parsed"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that a method returns.
    fn size_of_future<A, B, C, D, E, F: Future>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// Each running turn holds one driver. State that is rarely needed is boxed.
    #[test]
    fn a_driver_is_small() {
        let (driver, run) = (size_of::<Driver>(), size_of_future(Driver::run));
        assert!(driver <= 1_536 && run <= 2_304, "{driver} bytes, and {run} for its future");
    }
}
