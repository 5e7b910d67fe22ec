//! How a sub-agent's messages are read: as patiently as those of the agent itself.

use longshore_model::SessionId;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Driver, FIRST_RETRY, LAST_RETRY, LAST_WORDS, PATIENCE};
use crate::client::CallError;
use crate::reconcile::{self, ChildReading};
use crate::translate::Verdict;

impl Driver {
    /// Reads how a sub-agent stands.
    pub(super) async fn read_child(&mut self, at: usize) {
        self.find_the_call(at);
        let session = self.family.children[at].session.clone();
        if let Some(reading) = self.child_reading(&session).await {
            self.family.list(at, reading);
            self.family.look_for_returns();
        }
    }

    /// `None` when OpenCode does not show it, or does not answer for too long. Then what the stream told must do.
    pub(super) async fn child_reading(&mut self, session: &SessionId) -> Option<ChildReading> {
        let since = self.family.root.translator.prompt_created().unwrap_or(f64::MIN);
        let until = self.readings_end();
        let mut pause = FIRST_RETRY;
        loop {
            let directory = &self.session.directory;
            let reading = reconcile::read_child(&self.client, directory, session.as_str(), since);
            let reading = match until {
                Some(until) => timeout_at(until, reading).await.unwrap_or(Err(CallError::NoAnswer)),
                None => reading.await,
            };
            let at = self.family.find(session.as_str())?;
            let child = &mut self.family.children[at];
            let cause = match reading {
                Ok(reading) => {
                    child.strange.over();
                    return Some(reading);
                }
                Err(cause) => cause,
            };
            let next = Instant::now() + pause;
            let is_too_long = child.strange.is_too_long(&cause, self.watchdog.strange)
                || until.is_some_and(|until| next >= until);
            if is_too_long || !cause.is_transient() {
                tracing::warn!(%session, %cause, "OpenCode does not show how a sub-agent stands");
                let live = child.live_mut()?;
                live.must_read = false;
                live.member.is_gone |= matches!(cause, CallError::NotFound);
                live.member.translator.no_list();
                return None;
            }
            sleep_until(next).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Until when sub-agents' messages are asked for. `None`: for as long as those of the agent itself.
    fn readings_end(&self) -> Option<Instant> {
        if let Some(ending) = self.ending {
            return Some(ending);
        }
        if let Some(given_up) = &self.given_up {
            return Some(given_up.until);
        }
        if self.lease.aborted_by_us() {
            return Some(Instant::now() + LAST_WORDS);
        }
        // How the turn ended is known, and is to be told.
        let verdict = self.family.root.translator.verdict(self.is_stopped());
        matches!(verdict, Verdict::Over(_)).then(|| Instant::now() + PATIENCE)
    }

    /// The turn ends: from now on its sub-agents' messages are asked for only so long.
    pub(super) fn begin_to_end(&mut self) {
        let is_of_use = !self.is_stopped && !self.strange.is_on();
        self.ending = Some(Instant::now() + if is_of_use { PATIENCE } else { LAST_WORDS });
    }
}
