//! How long, and how often, the gateway tries to start a turn while the agent cannot be reached.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use longshore_model::TaskId;
use tokio::time::Instant;

use crate::retry::{FIRST_PAUSE, LONGEST_PAUSE};

/// The time that is left for attempts to start a turn. Only time in which the agent cannot be reached counts, not the time
/// spent waiting for the store or for another turn in the session.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
    pause: Duration,
    /// Whether a start has failed.
    has_failed: bool,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { left: limit, pause: FIRST_PAUSE, has_failed: false }
    }

    /// Whether there is time left for another attempt.
    pub(super) fn is_left(&self) -> bool {
        !self.left.is_zero()
    }

    /// Whether a start has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Counts a failed start that began at `tried`. The duration of the first failed start does not count, because until then
    /// the agent is assumed to be reachable.
    pub(super) fn failed(&mut self, tried: Instant) {
        if std::mem::replace(&mut self.has_failed, true) {
            self.spend(tried);
        }
    }

    /// Counts the time from `since` until now as time in which the agent could not be reached.
    pub(super) fn spend(&mut self, since: Instant) {
        self.left = self.left.saturating_sub(since.elapsed());
    }

    /// The pause before the next attempt, shortened by up to a half so that tasks that wait for the same agent do not all try
    /// at once. The task id decides by how much, so that a run is reproducible. `None`: no time is left, so the caller gives up.
    pub(super) fn next_pause(&mut self, task: &TaskId) -> Option<Duration> {
        let mut hasher = DefaultHasher::new();
        (task.as_str(), self.pause).hash(&mut hasher);
        let share = u32::try_from(hasher.finish() % 512).unwrap_or(0);
        let pause = self.pause * (1024 - share) / 1024;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.is_left().then(|| pause.min(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_differ_between_tasks_and_end_with_the_time() {
        let pauses = |name: &str| {
            let (mut patience, task) = (Patience::new(Duration::from_mins(1)), TaskId::parse(name).unwrap());
            (0..8).map(|_| patience.next_pause(&task).unwrap().as_millis()).collect::<Vec<_>>()
        };
        for (pause, longest) in pauses("a").into_iter().zip([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000])
        {
            assert!(pause <= longest && pause * 2 >= longest, "{pause} of {longest}");
        }
        assert_ne!(pauses("a"), pauses("b"));
        assert_eq!(pauses("a"), pauses("a"));

        let (mut patience, task) = (Patience::new(Duration::from_mins(1)), TaskId::parse("a").unwrap());
        let since = Instant::now();
        tokio::time::advance(Duration::from_millis(59_990)).await;
        patience.failed(since);
        assert!(
            patience.next_pause(&task).unwrap() > Duration::from_millis(10),
            "the first failure does not count"
        );
        patience.failed(since);
        assert_eq!(patience.next_pause(&task), Some(Duration::from_millis(10)));
        let since = Instant::now();
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(patience.is_left(), "this time was not spent waiting for the agent");
        patience.spend(since);
        assert!(!patience.is_left());
        assert_eq!(patience.next_pause(&task), None);
    }
}
