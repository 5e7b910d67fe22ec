//! The limits of one stream: bytes, duration and idle time.

use std::time::Duration;

use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, EventId, TaskId};
use tokio::time::Instant;

use super::StreamSettings;
use crate::Limits;

/// The limits of one stream. `None` in a field: no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(super) bytes: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

impl Budget {
    pub(crate) fn from_limits(limits: &Limits) -> Self {
        Self {
            bytes: Some(limits.stream_bytes).filter(|bytes| *bytes > 0),
            duration: limits.stream_duration,
            idle: limits.stream_idle,
        }
    }
}

/// The limit that a stream exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exceeded {
    Bytes,
    Duration,
    Idle,
}

impl StreamSettings {
    /// When a stream that starts now reaches its maximum duration.
    pub(crate) fn end_of_new(&self) -> Option<Instant> {
        self.budget.duration.and_then(|duration| Instant::now().checked_add(duration))
    }

    /// Counts a stream that exceeded a limit, and returns its error.
    pub(super) fn exceeded(&self, exceeded: Exceeded) -> Error {
        self.error(
            exceeded,
            "The task goes on; subscribe to it with the id of your last event as Last-Event-ID.",
        )
    }

    /// Like `exceeded`, for a stream whose first event alone is too long. The error names the task, because the client may not know
    /// its id otherwise.
    pub(super) fn exceeded_at_first(&self, task: &TaskId, first: EventId) -> Error {
        let advice = format!(
            "The first event alone is longer. Get the task {task}, which goes on, and subscribe to it with \
             Last-Event-ID: {first} for the events after it."
        );
        self.error(Exceeded::Bytes, &advice)
            .detail("taskId", task.as_str())
            .detail("lastEventId", first.to_string())
    }

    /// Counts a stream that belongs to no task and has reached its maximum duration, and returns its error.
    pub(crate) fn over(&self, advice: &str) -> Error {
        self.error(Exceeded::Duration, advice)
    }

    fn error(&self, exceeded: Exceeded, advice: &str) -> Error {
        let seconds = |most: Option<Duration>| most.map(|most| most.as_secs_f64().to_string());
        let Budget { bytes, duration, idle } = self.budget;
        let (what, name, most, limit) = match exceeded {
            Exceeded::Bytes => {
                ("byte budget", "stream_bytes", bytes.map(|most| most.to_string()), Limit::StreamBytes)
            }
            Exceeded::Duration => {
                ("duration budget", "stream_duration", seconds(duration), Limit::StreamDuration)
            }
            Exceeded::Idle => ("idle timeout", "stream_idle", seconds(idle), Limit::StreamIdle),
        };
        self.metrics.stream_budget_rejected.increment();
        self.metrics.refused.of(limit).increment();
        Error::new(ErrorKind::StreamBudgetExceeded, format!("Stream budget exceeded: {what}. {advice}"))
            .detail("limit", name)
            .detail("max", most.unwrap_or_default())
    }

    /// The next time at which a stream may have to act even if no event comes.
    pub(super) fn alarm(&self, opened: Instant, last_event: Instant, last_write: Instant) -> Instant {
        let after = |start: Instant, most: Option<Duration>| most.and_then(|most| start.checked_add(most));
        let Budget { duration, idle, .. } = self.budget;
        let bounds = [after(opened, duration), after(last_event, idle)];
        bounds.into_iter().flatten().fold(last_write + self.keep_alive, Ord::min)
    }
}
