//! The one place that spawns. A background task has a name, is counted, and can be waited for.

use std::future::Future;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// Spawns, tracks and stops the background tasks of one process (or of one test).
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `future` in the background. `name` stands in every log line that it writes.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    pub fn spawn<F>(&self, name: &'static str, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // It may outlive whatever started it by far, so its lines do not stand below those of the first request.
        let span = tracing::info_span!(parent: None, "task", name);
        tokio::spawn(self.tracker.track_future(future.instrument(span)))
    }

    /// Ends when the process is to stop. Long-lived tasks watch it.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
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
