//! How much, how long and how idly a stream may go on.

use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, EventId, TaskId};
use tokio::time::Instant;

use super::StreamSettings;
use crate::Limits;

/// The bounds of one stream. `None`: there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(super) bytes: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

impl Budget {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            bytes: Some(limits.stream_bytes).filter(|bytes| *bytes > 0),
            duration: limits.stream_duration,
            idle: limits.stream_idle,
        }
    }
}

/// What a stream has used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spent {
    Bytes,
    Duration,
    Idle,
}

impl StreamSettings {
    /// Counts a stream that has used something up, and says so.
    pub(super) fn spent(&self, spent: Spent) -> Error {
        self.counted(
            spent,
            "The task goes on; subscribe to it with the id of your last event as Last-Event-ID.",
        )
    }

    /// The same for one whose first event alone is too long. Its reader has nothing yet, perhaps not even the name of the task.
    pub(super) fn spent_at_first(&self, task: &TaskId, first: EventId) -> Error {
        let advice = format!(
            "The first event alone is longer. Get the task {task}, which goes on, and subscribe to it with \
             Last-Event-ID: {first} for what comes behind that event."
        );
        self.counted(Spent::Bytes, &advice)
            .detail("taskId", task.as_str())
            .detail("lastEventId", first.to_string())
    }

    fn counted(&self, spent: Spent, advice: &str) -> Error {
        let seconds = |most: Option<Duration>| most.map(|most| most.as_secs_f64().to_string());
        let Budget { bytes, duration, idle } = self.budget;
        let (what, name, most, limit) = match spent {
            Spent::Bytes => {
                ("byte budget", "stream_bytes", bytes.map(|most| most.to_string()), Limit::StreamBytes)
            }
            Spent::Duration => {
                ("duration budget", "stream_duration", seconds(duration), Limit::StreamDuration)
            }
            Spent::Idle => ("idle timeout", "stream_idle", seconds(idle), Limit::StreamIdle),
        };
        self.metrics.stream_budget_rejected.increment();
        self.metrics.refused.of(limit).increment();
        Error::new(ErrorKind::StreamBudgetExceeded, format!("Stream budget exceeded: {what}. {advice}"))
            .detail("limit", name)
            .detail("max", most.unwrap_or_default())
    }

    /// When a stream may have to do something without an event.
    pub(super) fn alarm(&self, opened: Instant, last_event: Instant, last_write: Instant) -> Instant {
        let after = |start: Instant, most: Option<Duration>| most.and_then(|most| start.checked_add(most));
        let Budget { duration, idle, .. } = self.budget;
        let bounds = [after(opened, duration), after(last_event, idle)];
        bounds.into_iter().flatten().fold(last_write + self.keep_alive, Ord::min)
    }
}
