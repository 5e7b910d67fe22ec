//! A thread with a queue of requests: what the writer and the readers have in common.
//!
//! A point read takes a few microseconds, and handing it to a thread that is there already costs a third of what
//! the runtime's pool for blocking work costs.

use std::thread::JoinHandle;

use longshore_model::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use super::fault;

/// Requests that may wait for a thread. At the bound callers wait, without a thread, for a place in the queue: the
/// turns that write become slower, and nothing is dropped.
pub(super) const QUEUE: usize = 1024;

pub(super) struct Worker<J> {
    name: &'static str,
    /// `None` only while it is dropped.
    pub(super) queue: Option<mpsc::Sender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Runs `serve` on a thread, which a debugger shows by its name. It is to return when the queue is closed.
    pub(super) fn start(
        name: &'static str,
        serve: impl FnOnce(mpsc::Receiver<J>) + Send + 'static,
    ) -> Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || serve(waiting))
            .map_err(Error::internal)?;
        Ok(Self { name, queue: Some(queue), thread: Some(thread) })
    }

    /// Queues the job and waits for its answer.
    pub(super) async fn ask<T>(&self, job: J, answered: oneshot::Receiver<Result<T>>) -> Result<T> {
        let queue = self.queue.as_ref().ok_or_else(fault::stopped)?;
        queue.send(job).await.map_err(|_| fault::stopped())?;
        answered.await.map_err(|_| fault::stopped())?
    }
}

impl<J> Drop for Worker<J> {
    /// Waits until what was asked for is done and the file is closed.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(thread = self.name, "a thread of the store had panicked");
        }
    }
}
