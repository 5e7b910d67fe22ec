//! The deliveries that run, so that the deletion of a configuration can end them: when it has returned, nothing more is sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{PushConfigId, TaskId};
use tokio_util::sync::CancellationToken;

type Key = (TaskId, PushConfigId);

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Held from before configurations are leased until they are in `running`.
    pub(crate) leasing: tokio::sync::Mutex<()>,
    running: Mutex<HashMap<Key, Running>>,
}

#[derive(Clone, Debug, Default)]
struct Running {
    number: u64,
    cancel: CancellationToken,
    /// Calls can be made.
    has_begun: CancellationToken,
    ended: CancellationToken,
}

/// A delivery is registered until this is dropped.
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

    /// Ends the delivery of a configuration whose leases are void, and waits until it has ended.
    pub(crate) async fn end(&self, key: &Key) {
        // Whoever leased the configuration before has registered it after this.
        drop(self.leasing.lock().await);
        let Some(running) = self.lock().get(key).cloned() else { return };
        running.cancel.cancel();
        // One that has not begun will not begin.
        if running.has_begun.is_cancelled() {
            running.ended.cancelled().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    pub(crate) fn is_canceled(&self) -> bool {
        self.running.cancel.is_cancelled()
    }

    /// Makes calls, until the configuration is replaced or deleted: then `None`.
    pub(crate) async fn run<T>(&self, calls: impl Future<Output = T>) -> Option<T> {
        self.running.has_begun.cancel();
        self.running.cancel.run_until_cancelled(calls).await
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut all = self.in_flight.lock();
        // A lease that has expired may have been taken again.
        if all.get(&self.key).is_some_and(|known| known.number == self.running.number) {
            all.remove(&self.key);
        }
        drop(all);
        self.running.ended.cancel();
    }
}
