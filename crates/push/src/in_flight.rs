//! The running deliveries. Deleting a configuration ends its delivery: after the deletion has returned, nothing more is sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{PushConfigId, TaskId};
use tokio_util::sync::CancellationToken;

type Key = (TaskId, PushConfigId);

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Serializes leasing and changes: held from before leasing until the leases are in `running`, and during a change.
    pub(crate) leasing: tokio::sync::Mutex<()>,
    running: Mutex<HashMap<Key, Running>>,
}

#[derive(Clone, Debug, Default)]
struct Running {
    number: u64,
    cancel: CancellationToken,
    /// Canceled when the delivery starts to make calls.
    has_begun: CancellationToken,
    ended: CancellationToken,
}

/// Keeps a delivery registered until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    in_flight: Arc<InFlight>,
    key: Key,
    running: Running,
}

impl InFlight {
    pub(crate) fn register(self: &Arc<Self>, key: Key, number: u64) -> Registration {
        let running = Running { number, ..Running::default() };
        self.lock().insert(key.clone(), running.clone());
        Registration { in_flight: Arc::clone(self), key, running }
    }

    /// Runs a change of a configuration. If the change made the leases of the configuration invalid, cancels its running delivery
    /// and waits for the end of that delivery.
    pub(crate) async fn change<T>(
        &self,
        key: &Key,
        change: impl Future<Output = T>,
        voids_leases: impl FnOnce(&T) -> bool,
    ) -> T {
        // The lock ensures that every delivery in `running` after the change was leased before it.
        let leasing = self.leasing.lock().await;
        let done = change.await;
        let running = self.lock().get(key).cloned().filter(|_| voids_leases(&done));
        drop(leasing);
        if let Some(running) = running {
            running.cancel.cancel();
            // A delivery that has not started yet sees the cancellation and never makes a call.
            if running.has_begun.is_cancelled() {
                running.ended.cancelled().await;
            }
        }
        done
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    pub(crate) fn is_canceled(&self) -> bool {
        self.running.cancel.is_cancelled()
    }

    /// Runs the calls of a delivery. `None`: the configuration was replaced or deleted before they were done.
    pub(crate) async fn run<T>(&self, calls: impl Future<Output = T>) -> Option<T> {
        self.running.has_begun.cancel();
        self.running.cancel.run_until_cancelled(calls).await
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut all = self.in_flight.lock();
        // If the lease expired, a newer delivery may be registered under the same key. Leave that one.
        if all.get(&self.key).is_some_and(|known| known.number == self.running.number) {
            all.remove(&self.key);
        }
        drop(all);
        self.running.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_deliveries_from_before_a_change_are_ended_and_only_by_a_change_that_counts() {
        let in_flight = Arc::new(InFlight::default());
        let key = (TaskId::parse("t").unwrap(), PushConfigId::parse("c").unwrap());
        let old = in_flight.register(key.clone(), 1);
        in_flight.change(&key, async {}, |()| false).await;
        assert!(!old.is_canceled());
        let change = async {
            // Nothing can be leased during the change.
            assert!(in_flight.leasing.try_lock().is_err());
        };
        in_flight.change(&key, change, |()| true).await;
        assert!(old.is_canceled());
        assert_eq!(old.run(async {}).await, None);
        let new = in_flight.register(key.clone(), 2);
        drop(old);
        let running = new.run(std::future::pending::<()>());
        let changing = in_flight.change(&key, async {}, |()| true);
        tokio::pin!(changing);
        tokio::select! {
            // With `biased`, the delivery is polled first, so it begins before the change.
            biased;
            ended = running => assert_eq!(ended, None),
            () = &mut changing => panic!("the delivery runs"),
        }
        drop(new);
        changing.await;
    }
}
