//! The time that is left for a turn. Waiting for an answer does not count.

use std::time::Duration;

use tokio::time::Instant;

/// For how long the agent may leave open how a turn stands whose time is over.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How often it is asked meanwhile.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Limit {
    deadline: Option<Instant>,
    paused: Option<Duration>,
    /// The time was over before.
    is_overdue: bool,
    silent_since: Option<Instant>,
}

impl Limit {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, paused: None, is_overdue: false, silent_since: None }
    }

    pub(super) fn pause_while(&mut self, paused: bool) {
        let now = Instant::now();
        match (paused, self.deadline, self.paused) {
            (true, Some(deadline), None) => {
                self.paused = Some(deadline.saturating_duration_since(now));
                self.deadline = None;
                self.silent_since = None;
            }
            (false, None, Some(left)) => {
                self.deadline = Some(now + left);
                self.paused = None;
            }
            _ => {}
        }
    }

    /// The time is over. What the agent has reported by now is heard before that matters, but only once: there may be no end
    /// to it.
    pub(super) fn hears_reports_first(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_overdue, true);
        if is_first {
            self.deadline = Some(Instant::now() + AGAIN);
        }
        is_first
    }

    /// The time is over, and whether the turn is too is not known. Says whether to go on for a while, which is the case for
    /// as long as the agent reports something, and for a bit longer.
    pub(super) fn waits_for_word(&mut self, has_reports: bool) -> bool {
        let now = Instant::now();
        if has_reports {
            self.silent_since = None;
        }
        self.deadline = Some(now + AGAIN);
        now.duration_since(*self.silent_since.get_or_insert(now)) < PATIENCE
    }

    pub(super) async fn reached(&self) {
        reached(self.deadline).await;
    }
}

/// Waits for the moment; for ever when there is none.
pub(super) async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits for so long; for ever when there is no limit.
pub(super) async fn passed(time: Option<Duration>) {
    reached(time.map(|time| Instant::now() + time)).await;
}
