//! Reads a sub-agent's messages from OpenCode.
//!
//! While OpenCode is unreachable, the turn waits, as it does when it reads the messages of the agent itself. If OpenCode responds
//! but does not show the sub-agent's messages, the turn continues without them after a while. Otherwise the agent's own reports
//! would be held back for ever.

use longshore_model::SessionId;
use tokio::time::{Instant, timeout_at};

use super::{Driver, FIRST_RETRY, LAST_RETRY, STOP_TIMEOUT, STREAM_TIMEOUT};
use crate::client::CallError;
use crate::reconcile::{self, ChildReading};
use crate::translate::Verdict;

impl Driver {
    /// Reads the state of a sub-agent.
    pub(super) async fn read_child(&mut self, at: usize) {
        self.set_call_time(at);
        let session = self.tree.children[at].session.clone();
        if let Some(reading) = self.fetch_child(&session).await {
            self.tree.merge_reading(at, reading);
            self.tree.note_returned_calls();
        }
    }

    /// Reads the state of a sub-agent. `None`: OpenCode does not show the state, or has not responded for too long. Then only the
    /// stream is left.
    pub(super) async fn fetch_child(&mut self, session: &SessionId) -> Option<ChildReading> {
        let since = self.tree.root.translator.prompt_created().unwrap_or(f64::MIN);
        let until = self.read_deadline();
        let is_hidden = self.tree.find(session.as_str()).is_some_and(|at| self.tree.children[at].is_hidden);
        let others_wait_until = self.caught_up_at + if is_hidden { STOP_TIMEOUT } else { self.patience };
        let mut pause = FIRST_RETRY;
        loop {
            let (directory, back) = (&self.session.directory, self.client.address().until_back());
            let reading = reconcile::read_child(&self.client, directory, session.as_str(), since);
            // Each sub-agent gets at least one attempt, however long the reads for the previous sub-agents took.
            let cut = until.unwrap_or_else(|| others_wait_until.max(Instant::now() + STOP_TIMEOUT));
            let reading = timeout_at(cut, reading).await.unwrap_or(Err(CallError::NoAnswer));
            let at = self.tree.find(session.as_str())?;
            let child = &mut self.tree.children[at];
            let cause = match reading {
                Ok(reading) => {
                    child.invalid_responses.clear();
                    child.is_hidden = false;
                    return Some(reading);
                }
                Err(cause) => cause,
            };
            let next = Instant::now() + pause;
            // While the stream is down, the turn may wait: no reports of the agent are held back, and everything is read when the
            // stream is back.
            child.is_hidden |= until.is_none() && next >= others_wait_until && self.lease.is_connected();
            let is_too_long = child.invalid_responses.exceed(&cause, self.limits.invalid_responses())
                || until.map_or(child.is_hidden, |until| next >= until);
            if is_too_long || !cause.is_transient() {
                tracing::warn!(%session, %cause, "OpenCode does not show the state of a sub-agent");
                let live = child.live_mut()?;
                live.must_read = false;
                live.member.is_gone |= matches!(cause, CallError::NotFound);
                live.member.translator.messages_unavailable();
                return None;
            }
            // Waits until the pause is over or OpenCode is back.
            let _ = timeout_at(next, back).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// The deadline for reading sub-agents' messages. `None`: there is no deadline, because the turn continues.
    fn read_deadline(&self) -> Option<Instant> {
        if self.end_deadline.is_some() {
            return self.end_deadline;
        }
        if let Some(given_up) = &self.given_up {
            return Some(given_up.until);
        }
        if self.lease.aborted_by_gateway() {
            return Some(Instant::now() + STOP_TIMEOUT);
        }
        // If the end of the turn is already known, it must be reported soon.
        let verdict = self.tree.root.translator.verdict(self.is_stopped());
        matches!(verdict, Verdict::Over(_)).then(|| Instant::now() + STREAM_TIMEOUT)
    }

    /// Called when the turn ends. Limits the time for reading its sub-agents' messages.
    pub(super) fn set_end_deadline(&mut self) {
        let may_succeed = !self.is_stopped && !self.invalid_responses.is_ongoing();
        self.end_deadline = Some(Instant::now() + if may_succeed { STREAM_TIMEOUT } else { STOP_TIMEOUT });
    }
}
