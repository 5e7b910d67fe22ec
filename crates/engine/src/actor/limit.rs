//! The time that is left for a turn. Waiting for an answer does not count.

use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Limit {
    deadline: Option<Instant>,
    paused: Option<Duration>,
}

impl Limit {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, paused: None }
    }

    pub(super) fn pause_while(&mut self, paused: bool) {
        let now = Instant::now();
        match (paused, self.deadline, self.paused) {
            (true, Some(deadline), None) => {
                self.paused = Some(deadline.saturating_duration_since(now));
                self.deadline = None;
            }
            (false, None, Some(left)) => {
                self.deadline = Some(now + left);
                self.paused = None;
            }
            _ => {}
        }
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
