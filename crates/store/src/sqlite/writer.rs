//! Writes. Calling threads write small appends themselves, as long as these take only a small share of their time. A thread with
//! group commit does all other writes.
//!
//! The thread takes all waiting requests, runs them in one transaction, commits, and only then answers. At low load a request runs
//! at once; under load many requests share one commit.
//!
//! For a small append, waking the writer thread and being woken by it costs more than the write itself. So a small append is
//! written on the calling thread if the writer thread is not writing at that moment.

use std::sync::{Arc, Mutex};

use longshore_engine::port::Appended;
use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::{Error, Result};
use tokio::sync::oneshot;

use super::append;
use super::fault::{self, Outcome};
use super::queue::{Owner, Queue};
#[cfg(feature = "simulation")]
use super::read_only_switch::ReadOnlySwitch;
use super::record::Batch;
use super::worker::Worker;
use super::write_connection::{WriteConnection, WriteContext};

/// The most requests in one transaction. Further requests wait for the next one, so that no answer waits for a long group.
pub(super) const GROUP: usize = 256;

/// The weight of a request that takes milliseconds. With it, at most eight of them share a transaction.
const LARGE_WEIGHT: usize = GROUP / 8;

pub(super) struct Writer {
    // The fields are dropped in this order: the thread finishes its requests before the connection closes the file.
    pub(super) worker: Worker<Box<dyn Job>>,
    pub(super) connection: Arc<Mutex<WriteConnection>>,
    #[cfg(feature = "simulation")]
    pub(super) switch: ReadOnlySwitch,
}

impl Writer {
    pub(super) fn start(connection: WriteConnection, metrics: Arc<Metrics>) -> Result<Self> {
        #[cfg(feature = "simulation")]
        let switch = connection.switch.clone();
        let connection = Arc::new(Mutex::new(connection));
        let shared = connection.clone();
        let worker = Worker::start(StoreThread::Writer, metrics, move |waiting| serve(&shared, waiting))?;
        Ok(Self {
            worker,
            connection,
            #[cfg(feature = "simulation")]
            switch,
        })
    }

    /// Runs `work`, and returns when its writes are durable. If `work` fails, its writes are undone. `work` may be called more than
    /// once; its earlier writes are undone before.
    ///
    /// Dropping the future before the work is in the queue cancels the work. After that, the work is done although the caller has
    /// gone.
    pub(super) async fn run<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, (JobKind::Other, 1), work, |_| ()).await
    }

    /// Like [`run`](Self::run), and calls `done` when the writes are durable, also if the caller is gone by then.
    pub(super) async fn run_then<T, F, D>(&self, owner: Owner, work: F, done: D) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> Outcome<T> + Send + 'static,
        D: FnOnce(&T) + Send + 'static,
    {
        self.ask(owner, (JobKind::Other, 1), work, done).await
    }

    /// Like [`run`](Self::run), for work that takes milliseconds.
    pub(super) async fn run_large<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, (JobKind::Other, LARGE_WEIGHT), work, |_| ()).await
    }

    /// Appends to the log of a task, and returns when the events are durable. A small append, which probably takes only
    /// microseconds, is written on the calling thread, unless the writer thread is writing at that moment. Such an append may
    /// overtake requests in the queue. That is safe, because a caller appends to a task again only after the previous append has
    /// returned.
    pub(super) async fn append(&self, owner: Owner, batch: Batch) -> Result<Appended> {
        if let Some(appended) = self.append_inline(&batch) {
            return appended;
        }
        self.ask(owner, (JobKind::Append, 1), move |db| append::append(db, &batch), |_| ()).await
    }

    /// Appends on the calling thread. `None`: nothing was written, for example because the writer thread is writing.
    fn append_inline(&self, batch: &Batch) -> Option<Result<Appended>> {
        self.connection.try_lock().ok()?.append_inline(batch)
    }

    async fn ask<T, F, D>(
        &self,
        owner: Owner,
        (kind, weight): (JobKind, usize),
        work: F,
        done: D,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteContext<'_>) -> Outcome<T> + Send + 'static,
        D: FnOnce(&T) + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Request { work, done, kind, weight, outcome: None, answer };
        self.worker.ask(owner, Box::new(job), answered).await
    }
}

fn serve(connection: &Mutex<WriteConnection>, waiting: &Queue<Box<dyn Job>>) {
    let mut group = Vec::with_capacity(GROUP);
    while waiting.take(GROUP, |job| job.weight(), &mut group) {
        // If a previous holder panicked, the connection may be inside a transaction, so nothing may use it any more.
        let Ok(mut connection) = connection.lock() else { return };
        let result = connection.write(&mut group);
        drop(connection);
        for job in group.drain(..) {
            job.answer(result.as_ref().err());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    /// An append to a task. It updates the row cache itself.
    Append,
    /// Any other request. It may change any task.
    Other,
}

pub(super) trait Job: Send {
    fn kind(&self) -> JobKind;

    /// The weight of this request. An ordinary request has the weight 1.
    fn weight(&self) -> usize;

    /// Does the work and keeps its outcome. Returns whether its writes may stay: `true` if the work succeeded or wrote nothing. An
    /// error means that the whole group is lost.
    fn run(&mut self, db: &mut WriteContext<'_>) -> Outcome<bool>;

    /// Sends the outcome to the caller. `lost`: the reason if the group was not committed.
    fn answer(self: Box<Self>, lost: Option<&Error>);
}

struct Request<T, F, D> {
    work: F,
    /// Called with the outcome when it is durable.
    done: D,
    kind: JobKind,
    weight: usize,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F, D> Job for Request<T, F, D>
where
    T: Send,
    F: FnMut(&mut WriteContext<'_>) -> Outcome<T> + Send,
    D: FnOnce(&T) + Send,
{
    fn kind(&self) -> JobKind {
        self.kind
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn run(&mut self, db: &mut WriteContext<'_>) -> Outcome<bool> {
        let before = db.total_changes();
        let outcome = (self.work)(db);
        if outcome.is_err() && db.is_autocommit() {
            // SQLite itself has rolled back the whole group.
            return outcome.map(|_| false);
        }
        let may_stay = outcome.is_ok() || db.total_changes() == before;
        self.outcome = Some(outcome.map_err(Error::from));
        Ok(may_stay)
    }

    fn answer(self: Box<Self>, lost: Option<&Error>) {
        let outcome = match lost {
            Some(error) => Err(error.clone()),
            None => self.outcome.unwrap_or_else(|| Err(fault::stopped())),
        };
        if let Ok(value) = &outcome {
            (self.done)(value);
        }
        // The caller may be gone; the work is done anyway.
        drop(self.answer.send(outcome));
    }
}

#[cfg(test)]
mod tests;
