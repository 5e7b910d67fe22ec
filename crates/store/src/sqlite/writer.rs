//! Who writes: a thread, with group commit; or, for a small part of the time, whoever appends.
//!
//! The thread takes whatever waits, runs all of it in one transaction, commits, and only then answers. At rest a request
//! goes at once; under load many share one commit.
//!
//! But to hand a piece of output to a thread that sleeps, and to be woken by it, costs more than to write it.

use std::sync::{Arc, Mutex};

use longshore_engine::port::Appended;
use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::{Error, Result};
use tokio::sync::oneshot;

use super::append;
use super::fault::{self, Outcome};
use super::pen::{Pen, Writing};
use super::queue::{Owner, Queue};
use super::record::Batch;
#[cfg(feature = "simulation")]
use super::switch::Switch;
use super::worker::Worker;

/// Requests in one transaction. What is beyond waits for the next one, so that no answer waits for a long group.
pub(super) const GROUP: usize = 256;

/// A request that takes milliseconds counts as so many others: there are eight of them in a transaction at most.
const LARGE: usize = GROUP / 8;

pub(super) struct Writer {
    // Dropped in this order: the thread has written what was asked of it before the pen closes the file.
    pub(super) worker: Worker<Box<dyn Job>>,
    pub(super) pen: Arc<Mutex<Pen>>,
    #[cfg(feature = "simulation")]
    pub(super) switch: Switch,
}

impl Writer {
    pub(super) fn start(pen: Pen, metrics: Arc<Metrics>) -> Result<Self> {
        #[cfg(feature = "simulation")]
        let switch = pen.switch.clone();
        let pen = Arc::new(Mutex::new(pen));
        let shared = pen.clone();
        let worker = Worker::start(StoreThread::Writer, metrics, move |waiting| serve(&shared, waiting))?;
        Ok(Self {
            worker,
            pen,
            #[cfg(feature = "simulation")]
            switch,
        })
    }

    /// Runs `work` and returns when it is durable. Of what it has written nothing stays when it fails, or when it is called
    /// again.
    ///
    /// When the future is dropped before its work was taken into the queue nothing happens; after that the work is
    /// done although nobody waits for it.
    pub(super) async fn run<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, (Kind::Other, 1), work).await
    }

    /// The same for work that takes milliseconds.
    pub(super) async fn run_large<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, (Kind::Other, LARGE), work).await
    }

    /// Appends to the log of a task and returns when it is durable: here and now, if that is a matter of microseconds. Then it
    /// overtakes what waits in the queue: whoever appends to a task again must have had the answer to the first.
    pub(super) async fn append(&self, owner: Owner, batch: Batch) -> Result<Appended> {
        if let Some(appended) = self.append_here(&batch) {
            return appended;
        }
        self.ask(owner, (Kind::Append, 1), move |db| append::append(db, &batch)).await
    }

    /// `None`: nothing is written, for one because the thread writes.
    fn append_here(&self, batch: &Batch) -> Option<Result<Appended>> {
        self.pen.try_lock().ok()?.append_here(batch)
    }

    async fn ask<T, F>(&self, owner: Owner, (kind, weight): (Kind, usize), work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Request { work, kind, weight, outcome: None, answer };
        self.worker.ask(owner, Box::new(job), answered).await
    }
}

/// What the thread does.
fn serve(pen: &Mutex<Pen>, waiting: &Queue<Box<dyn Job>>) {
    let mut group = Vec::with_capacity(GROUP);
    while waiting.take(GROUP, |job| job.weight(), &mut group) {
        // A panic of whoever had it before: the connection may be in the middle of something, and nobody uses it any more.
        let Ok(mut pen) = pen.lock() else { return };
        let fate = pen.write(&mut group);
        drop(pen);
        for job in group.drain(..) {
            job.answer(fate.as_ref().err());
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It appends to a task, and keeps account of what it knows of that.
    Append,
    /// Anything else. It may change any task.
    Other,
}

pub(super) trait Job: Send {
    fn kind(&self) -> Kind;

    /// As how many requests it counts.
    fn weight(&self) -> usize;

    /// Does the work and keeps its outcome. Says whether what it has written may stay: it went well, or there is nothing.
    /// An error means that the whole group is lost.
    fn run(&mut self, db: &mut Writing<'_>) -> Outcome<bool>;

    /// Says how it went. `lost`: why the group was not committed.
    fn answer(self: Box<Self>, lost: Option<&Error>);
}

struct Request<T, F> {
    work: F,
    kind: Kind,
    weight: usize,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send,
{
    fn kind(&self) -> Kind {
        self.kind
    }

    fn weight(&self) -> usize {
        self.weight
    }

    fn run(&mut self, db: &mut Writing<'_>) -> Outcome<bool> {
        let before = db.total_changes();
        let outcome = (self.work)(db);
        if outcome.is_err() && db.is_autocommit() {
            // SQLite has rolled everything back, the neighbours' work too.
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
        // Whoever asked may have gone; the work is done all the same.
        drop(self.answer.send(outcome));
    }
}

#[cfg(test)]
mod tests;
