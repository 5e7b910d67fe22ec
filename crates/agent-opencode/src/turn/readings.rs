//! How a sub-agent's messages are read. While OpenCode is away, they are waited for like those of the agent itself. When it
//! is there and does not show just these, the agent's own reports do not wait for them for ever.

use longshore_model::SessionId;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Driver, FIRST_RETRY, LAST_RETRY, LAST_WORDS, PATIENCE};
use crate::client::CallError;
use crate::reconcile::{self, ChildReading};
use crate::translate::Verdict;

impl Driver {
    /// Reads how a sub-agent stands.
    pub(super) async fn read_child(&mut self, at: usize) {
        self.set_call_time(at);
        let session = self.tree.children[at].session.clone();
        if let Some(reading) = self.fetch_child(&session).await {
            self.tree.list(at, reading);
            self.tree.note_returned_calls();
        }
    }

    /// `None` when OpenCode does not show it, or does not answer for too long. Then what the stream told must do.
    pub(super) async fn fetch_child(&mut self, session: &SessionId) -> Option<ChildReading> {
        let since = self.tree.root.translator.prompt_created().unwrap_or(f64::MIN);
        let until = self.read_deadline();
        let is_hidden =
            self.tree.find(session.as_str()).is_some_and(|at| self.tree.children[at].is_hidden);
        let others_wait_until = self.caught_up_at + if is_hidden { LAST_WORDS } else { self.patience };
        let mut pause = FIRST_RETRY;
        loop {
            let directory = &self.session.directory;
            let reading = reconcile::read_child(&self.client, directory, session.as_str(), since);
            // Each is tried, whatever time the ones before it took.
            let cut = until.unwrap_or_else(|| others_wait_until.max(Instant::now() + LAST_WORDS));
            let reading = timeout_at(cut, reading).await.unwrap_or(Err(CallError::NoAnswer));
            let at = self.tree.find(session.as_str())?;
            let child = &mut self.tree.children[at];
            let cause = match reading {
                Ok(reading) => {
                    child.strange.over();
                    child.is_hidden = false;
                    return Some(reading);
                }
                Err(cause) => cause,
            };
            let next = Instant::now() + pause;
            // Without the stream nothing of the agent is missed by waiting, and all is read again once it is back.
            child.is_hidden |= until.is_none() && next >= others_wait_until && self.lease.is_connected();
            let is_too_long = child.strange.is_too_long(&cause, self.limits.strange())
                || until.map_or(child.is_hidden, |until| next >= until);
            if is_too_long || !cause.is_transient() {
                tracing::warn!(%session, %cause, "OpenCode does not show how a sub-agent stands");
                let live = child.live_mut()?;
                live.must_read = false;
                live.member.is_gone |= matches!(cause, CallError::NotFound);
                live.member.translator.messages_unavailable();
                return None;
            }
            sleep_until(next).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Until when sub-agents' messages are asked for, in any case. `None`: the turn goes on.
    fn read_deadline(&self) -> Option<Instant> {
        if let Some(ending) = self.ending {
            return Some(ending);
        }
        if let Some(given_up) = &self.given_up {
            return Some(given_up.until);
        }
        if self.lease.aborted_by_gateway() {
            return Some(Instant::now() + LAST_WORDS);
        }
        // How the turn ended is known, and is to be told.
        let verdict = self.tree.root.translator.verdict(self.is_stopped());
        matches!(verdict, Verdict::Over(_)).then(|| Instant::now() + PATIENCE)
    }

    /// The turn ends: from now on its sub-agents' messages are asked for only so long.
    pub(super) fn set_end_deadline(&mut self) {
        let is_of_use = !self.is_stopped && !self.strange.is_on();
        self.ending = Some(Instant::now() + if is_of_use { PATIENCE } else { LAST_WORDS });
    }
}
