//! A thread that reads, with its own connection.

use std::sync::Arc;

use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::{Error, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Outcome;
use super::queue::{Owner, Queue};
use super::worker::Worker;

type Job = Box<dyn FnOnce(&Connection) + Send>;

pub(super) struct Reader(pub(super) Worker<Job>);

impl Reader {
    pub(super) fn start(name: StoreThread, db: Connection, metrics: Arc<Metrics>) -> Result<Self> {
        let worker = Worker::start(name, metrics, move |waiting: &Queue<Job>| {
            let mut next = Vec::with_capacity(1);
            // Take one job at a time, so that new arrivals are considered for the next one.
            while waiting.take(1, |_| 1, &mut next) {
                for job in next.drain(..) {
                    job(&db);
                }
            }
        })?;
        Ok(Self(worker))
    }

    /// Runs `work` on the thread, in one read transaction.
    pub(super) async fn run<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = move |db: &Connection| {
            // Skip the work if the caller has gone while the job waited.
            if !answer.is_closed() {
                drop(answer.send(in_read_transaction(db, work).map_err(Error::from)));
            }
        };
        self.0.ask(owner, Box::new(job), answered).await
    }
}

fn in_read_transaction<T>(db: &Connection, work: impl FnOnce(&Connection) -> Outcome<T>) -> Outcome<T> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let outcome = work(db);
    // There is nothing to commit, but an open read transaction would keep the write-ahead log from being restarted.
    if let Err(error) = db.prepare_cached("COMMIT").and_then(|mut end| end.execute([])) {
        tracing::error!(%error, "a store thread could not end its read transaction");
        // SQLite ends the transaction itself when it finds the file damaged.
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK")?;
        }
    }
    outcome
}

#[cfg(test)]
mod tests;
