//! The only place that spawns background tasks. Each has a name, is counted, and can be waited for.

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

    /// Tasks of an engine that is part of a simulation.
    #[cfg(feature = "simulation")]
    pub fn simulated(simulation: std::sync::Arc<dyn crate::simulation::Simulation>) -> Self {
        Self { hooks: Hooks::of(simulation), ..Self::default() }
    }

    /// Runs `future` in the background. `name` is in every log line that it writes. A panic is logged with `name`
    /// too, because few callers wait for the returned handle and would see it.
    #[expect(clippy::disallowed_methods, reason = "only this function spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // The task may outlive the request that started it by far, so its log lines are not children of that request's.
        let span = tracing::info_span!(parent: None, "task", name);
        let hooks = self.hooks.clone();
        // No async block: that would hold the future twice, and most of the memory of a connection or a live task is
        // its future.
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

    /// Canceled when the process is to stop. Long-lived tasks watch it.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// A copy with its own stop signal, a child of this one: tasks that wait often for one shared signal would contend
    /// for one lock.
    pub(crate) fn with_own_signal(&self) -> Self {
        Self { stop: self.stop.child_token(), ..self.clone() }
    }

    /// How many tasks run now.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Tells all tasks to stop and waits until they have. Bound it with a timeout.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}
