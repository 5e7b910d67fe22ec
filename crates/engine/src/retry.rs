//! Growing pauses between attempts to reach the agent or the store.

use std::time::Duration;

use crate::tasks::Tasks;

pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Doubles the pause after each attempt, up to [`LONGEST_PAUSE`].
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self::starting_at(FIRST_PAUSE)
    }

    pub(crate) fn starting_at(first: Duration) -> Self {
        Self { next: first }
    }

    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Sleeps for the next pause. Returns `false` at once when the gateway stops, and otherwise `true`.
    pub(crate) async fn pause(&mut self, tasks: &Tasks) -> bool {
        sleep_unless_stopping(tasks, self.next_pause()).await
    }
}

/// Sleeps for `pause`. Returns `false` at once when the gateway stops, and otherwise `true`.
pub(crate) async fn sleep_unless_stopping(tasks: &Tasks, pause: Duration) -> bool {
    tokio::select! {
        biased;
        () = tasks.stopping().cancelled() => false,
        () = tokio::time::sleep(pause) => true,
    }
}
