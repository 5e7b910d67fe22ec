//! Metrics of the open asks of all tasks: how many are open, and for how long.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_model::Timestamp;

#[derive(Debug)]
pub(crate) struct OpenAsks {
    metrics: Arc<Metrics>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The time of each open ask. The number distinguishes asks with the same time.
    asked: BTreeSet<(Timestamp, u64)>,
    next_id: u64,
}

/// An open ask. Dropping it ends the measurement.
#[derive(Debug)]
pub(crate) struct OpenAsk {
    all: Arc<OpenAsks>,
    asked_at: Timestamp,
    id: u64,
}

impl OpenAsks {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, open: Mutex::default() }
    }

    /// Counts a new ask of the agent.
    pub(crate) fn opened(self: &Arc<Self>, asked_at: Timestamp) -> OpenAsk {
        self.metrics.interrupt_requests.increment();
        self.known(asked_at)
    }

    /// Counts an ask that the gateway answered at once.
    pub(crate) fn answered_at_once(&self) {
        self.metrics.interrupt_requests.increment();
        self.metrics.interrupt_resolved.increment();
    }

    /// Tracks an open ask that an earlier run of the gateway received, without counting it as new.
    pub(crate) fn known(self: &Arc<Self>, asked_at: Timestamp) -> OpenAsk {
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        open.asked.insert((asked_at, id));
        self.metrics.interrupt_open.add(1);
        OpenAsk { all: Arc::clone(self), asked_at, id }
    }

    /// How long the oldest ask has waited. Zero when none is open.
    pub(crate) fn oldest_age(&self, now: Timestamp) -> Duration {
        self.lock().asked.first().map_or(Duration::ZERO, |(asked_at, _)| between(*asked_at, now))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenAsk {
    /// Records that the ask was closed, for any reason.
    pub(crate) fn resolved(self, at: Timestamp) {
        self.all.metrics.interrupt_resolved.increment();
        self.all.metrics.interrupt_waited.observe(between(self.asked_at, at));
    }
}

impl Drop for OpenAsk {
    fn drop(&mut self) {
        self.all.lock().asked.remove(&(self.asked_at, self.id));
        self.all.metrics.interrupt_open.add(-1);
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_the_oldest_open_ask_is_known() {
        let metrics = Arc::new(Metrics::default());
        let all = Arc::new(OpenAsks::new(Arc::clone(&metrics)));
        assert_eq!(all.oldest_age(Timestamp(9_000)), Duration::ZERO);
        let (first, second) = (all.opened(Timestamp(2_000)), all.opened(Timestamp(2_000)));
        let before = all.known(Timestamp(1_000));
        assert_eq!(all.oldest_age(Timestamp(9_000)), Duration::from_secs(8));
        before.resolved(Timestamp(3_000));
        assert_eq!(all.oldest_age(Timestamp(9_000)), Duration::from_secs(7));
        // Dropped without `resolved`, as when the gateway stops.
        drop(first);
        assert_eq!(metrics.interrupt_open.get(), 1);
        second.resolved(Timestamp(3_000));
        all.answered_at_once();
        assert_eq!(metrics.interrupt_open.get(), 0);
        assert_eq!((metrics.interrupt_requests.get(), metrics.interrupt_resolved.get()), (3, 3));
        assert_eq!(metrics.interrupt_waited.count(), 2);
        // The clock may step back.
        let _late = all.opened(Timestamp(9_000));
        assert_eq!(all.oldest_age(Timestamp(8_000)), Duration::ZERO);
    }
}
