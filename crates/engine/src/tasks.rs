//! The only module that spawns background tasks. Each task has a name, is counted, and can be waited for.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::simulation::Hooks;

/// Spawns, tracks and stops the background tasks of one process (or of one test).
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    hooks: Hooks,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the tasks of an engine that runs in a simulation.
    #[cfg(feature = "simulation")]
    pub fn simulated(simulation: std::sync::Arc<dyn crate::simulation::Simulation>) -> Self {
        Self { hooks: Hooks::of(simulation), ..Self::default() }
    }

    /// Runs `future` in the background. All its log lines contain `name`. A panic is logged too, because few callers wait for
    /// the returned handle and would see it.
    #[expect(clippy::disallowed_methods, reason = "only this function spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // The task may live much longer than the request that started it, so its span has no parent.
        let span = tracing::info_span!(parent: None, "task", name);
        let hooks = self.hooks.clone();
        // Not an async block, because that would hold the future twice, and the future is most of the memory of a
        // connection or a live task.
        let watched = AssertUnwindSafe(future).catch_unwind().map(move |outcome| {
            outcome.unwrap_or_else(|panic| {
                tracing::error!(name, "a background task panicked");
                hooks.has_panicked(name);
                resume_unwind(panic)
            })
        });
        let future = self.tracker.track_future(watched.instrument(span));
        #[cfg(feature = "simulation")]
        let future = self.hooks.conducted(future);
        let spawned = tokio::spawn(future);
        #[cfg(feature = "simulation")]
        self.hooks.spawned(spawned.abort_handle());
        spawned
    }

    pub(crate) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    /// The token that is canceled when the process stops. Long-lived tasks watch it.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// A copy whose stop signal is a child of this one. Tasks that often wait for one shared signal would contend for its lock.
    pub(crate) fn with_own_signal(&self) -> Self {
        Self { stop: self.stop.child_token(), ..self.clone() }
    }

    /// How many tasks run now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Tells all tasks to stop, and waits until they have ended. Callers add a timeout.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
