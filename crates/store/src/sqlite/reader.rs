//! A thread that reads, with a connection of its own, apart from the writer.
//!
//! A point read takes a few microseconds, and handing it to a thread that is there already costs a third of what
//! the runtime's pool for blocking work costs.

use std::thread::JoinHandle;

use longshore_model::{Error, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::{self, Outcome};

/// Reads that may wait for the thread. At the bound callers wait, without a thread, for a place in the queue.
const QUEUE: usize = 1024;

type Job = Box<dyn FnOnce(&Connection) + Send>;

pub(super) struct Reader {
    /// `None` only while it is dropped.
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// `name` is what a debugger shows for the thread.
    pub(super) fn start(name: &str, db: Connection) -> Result<Self> {
        let (queue, mut waiting) = mpsc::channel::<Job>(QUEUE);
        let serve = move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&db);
            }
        };
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(serve).map_err(Error::internal)?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Runs `work` on the thread. All of it sees the store as of one moment.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = move |db: &Connection| {
            // Whoever asked may have gone while the work waited.
            if !answer.is_closed() {
                drop(answer.send(read_at_one_moment(db, work).map_err(Error::from)));
            }
        };
        let queue = self.queue.as_ref().ok_or_else(fault::stopped)?;
        queue.send(Box::new(job)).await.map_err(|_| fault::stopped())?;
        answered.await.map_err(|_| fault::stopped())?
    }
}

impl Drop for Reader {
    /// Waits until the connection is closed.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a reader thread of the store had panicked");
        }
    }
}

fn read_at_one_moment<T>(db: &Connection, work: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    // Dropped without a commit: there is nothing to commit.
    let moment = db.unchecked_transaction()?;
    work(&moment)
}
