//! For how long, and how often, a turn is begun anew whose agent is away.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use longshore_model::TaskId;
use tokio::time::Instant;

use super::super::{RETRY_FIRST, RETRY_LONGEST};

#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { until: Instant::now() + limit, pause: RETRY_FIRST }
    }

    /// It is not time to give up.
    pub(super) fn is_left(&self, deadline: Option<Instant>) -> bool {
        Instant::now() < self.until(deadline)
    }

    /// The pause before the next attempt, shortened by up to a half so that tasks that wait for the same agent do not all
    /// come at once: by what their names make of it, so that a run can be repeated. `None`: it is time to give up.
    pub(super) fn next_pause(&mut self, task: &TaskId, deadline: Option<Instant>) -> Option<Duration> {
        let left = self.until(deadline).saturating_duration_since(Instant::now());
        let mut hasher = DefaultHasher::new();
        (task.as_str(), self.pause).hash(&mut hasher);
        let share = u32::try_from(hasher.finish() % 512).unwrap_or(0);
        let pause = self.pause * (1024 - share) / 1024;
        self.pause = (self.pause * 2).min(RETRY_LONGEST);
        (!left.is_zero()).then(|| pause.min(left))
    }

    fn until(&self, deadline: Option<Instant>) -> Instant {
        deadline.map_or(self.until, |deadline| deadline.min(self.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_differ_between_tasks_and_end_at_the_first_limit() {
        let pauses = |name: &str| {
            let (mut patience, task) = (Patience::new(Duration::from_mins(1)), TaskId::parse(name).unwrap());
            (0..8).map(|_| patience.next_pause(&task, None).unwrap().as_millis()).collect::<Vec<_>>()
        };
        for (pause, longest) in pauses("a").into_iter().zip([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000])
        {
            assert!(pause <= longest && pause * 2 >= longest, "{pause} of {longest}");
        }
        assert_ne!(pauses("a"), pauses("b"));
        assert_eq!(pauses("a"), pauses("a"));

        let (mut patience, task) = (Patience::new(Duration::from_mins(1)), TaskId::parse("a").unwrap());
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(patience.next_pause(&task, Some(soon)), Some(Duration::from_millis(10)));
        assert!(patience.is_left(Some(soon)));
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!(patience.next_pause(&task, Some(soon)), None);
        assert!(!patience.is_left(Some(soon)) && patience.is_left(None));
        assert!(patience.next_pause(&task, None).is_some());
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(patience.next_pause(&task, None), None);
    }
}
