//! A thread with a queue of requests, shared by the writer and the readers.
//!
//! The store uses its own threads because a point read takes only a few microseconds. Handing a request to
//! such a thread costs a third of handing it to the runtime's pool for blocking work.

use std::sync::Arc;
use std::thread::JoinHandle;

use longshore_meter::Metrics;
use longshore_meter::label::{Label as _, StoreThread};
use longshore_model::{Error, Result};
use tokio::sync::oneshot;

use super::fault;
use super::queue::{Owner, Queue};

pub(super) struct Worker<J> {
    pub(super) queue: Queue<J>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Runs `serve` on a named thread. `serve` must return when the queue is closed and empty.
    pub(super) fn start(
        name: StoreThread,
        metrics: Arc<Metrics>,
        serve: impl FnOnce(&Queue<J>) + Send + 'static,
    ) -> Result<Self> {
        let queue = Queue::new(name, metrics);
        let waiting = queue.clone();
        let thread = std::thread::Builder::new()
            .name(format!("store-{}", StoreThread::VALUES[name.index()]))
            .spawn(move || {
                let _abandoned = waiting.abandon_on_drop();
                serve(&waiting);
            })
            .map_err(Error::internal)?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Queues the job and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        owner: Owner,
        job: J,
        answered: oneshot::Receiver<Result<T>>,
    ) -> Result<T> {
        self.queue.push(owner, job).await.map_err(|_| fault::stopped())?;
        answered.await.map_err(|_| fault::stopped())?
    }
}

impl<J> Drop for Worker<J> {
    /// Waits until all queued requests are done.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            let name = thread.thread().name().map(str::to_owned);
            if thread.join().is_err() {
                tracing::error!(thread = name, "a store thread had panicked");
            }
        }
    }
}
