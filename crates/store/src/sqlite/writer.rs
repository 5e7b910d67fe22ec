//! The one thread that writes, with group commit.
//!
//! It takes whatever waits, runs all of it in one transaction, commits, and only then answers. At rest a request
//! goes at once; under load many share one commit. A savepoint around each request keeps the failure of one
//! from its neighbours.

use longshore_engine::fail_point;
use longshore_model::{Error, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::epoch::Claim;
use super::fault::{self, Outcome};
use super::switch::Switch;
use super::worker::Worker;

/// Requests in one transaction. What is beyond waits for the next one, so that no answer waits for a long group.
const GROUP: usize = 256;

pub(super) struct Writer {
    worker: Worker<Box<dyn Job>>,
    #[cfg(feature = "simulation")]
    pub(super) switch: Switch,
}

impl Writer {
    pub(super) fn start(db: Connection, mut claim: Claim) -> Result<Self> {
        let switch = Switch::default();
        Ok(Self {
            #[cfg(feature = "simulation")]
            switch: switch.clone(),
            worker: Worker::start("store-writer", move |waiting| serve(&db, &mut claim, &switch, waiting))?,
        })
    }

    /// Runs `work` on the thread and returns when it is durable.
    ///
    /// When the future is dropped before its work was taken into the queue nothing happens; after that the work is
    /// done although nobody waits for it.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Outcome<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Request { work: Some(work), outcome: None, answer };
        self.worker.ask(Box::new(job), answered).await
    }
}

fn serve(db: &Connection, claim: &mut Claim, switch: &Switch, mut waiting: mpsc::Receiver<Box<dyn Job>>) {
    let mut group = Vec::with_capacity(GROUP);
    while waiting.blocking_recv_many(&mut group, GROUP) > 0 {
        switch.apply(db);
        let held = claim.hold(db).map_err(Error::from);
        let fate = held.and_then(|()| commit_group(db, &mut group));
        for job in group.drain(..) {
            job.answer(fate.as_ref().err());
        }
    }
}

/// Runs and commits all requests. An error here means that none of them is written.
fn commit_group(db: &Connection, group: &mut [Box<dyn Job>]) -> Result<()> {
    command(db, "BEGIN IMMEDIATE")?;
    let done = group.iter_mut().try_for_each(|job| job.run(db));
    fail_point::hit("commit.before");
    let committed = done.and_then(|()| command(db, "COMMIT"));
    fail_point::hit("commit.after");
    // A failure ends some transactions by itself; the next group must find none open.
    if committed.is_err()
        && !db.is_autocommit()
        && let Err(fault) = command(db, "ROLLBACK")
    {
        tracing::error!(error = ?fault.0, "the store could not roll back");
    }
    Ok(committed?)
}

trait Job: Send {
    /// Does the work and keeps its outcome. An error means that the whole group is lost.
    fn run(&mut self, db: &Connection) -> Outcome<()>;

    /// Says how it went. `lost`: why the group was not committed.
    fn answer(self: Box<Self>, lost: Option<&Error>);
}

struct Request<T, F> {
    work: Option<F>,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Outcome<T> + Send,
{
    fn run(&mut self, db: &Connection) -> Outcome<()> {
        let Some(work) = self.work.take() else { return Ok(()) };
        command(db, "SAVEPOINT request")?;
        let outcome = work(db);
        if outcome.is_err() {
            if db.is_autocommit() {
                // SQLite has rolled everything back, the neighbours' work too.
                return outcome.map(drop);
            }
            command(db, "ROLLBACK TO request")?;
        }
        command(db, "RELEASE request")?;
        self.outcome = Some(outcome.map_err(Error::from));
        Ok(())
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

fn command(db: &Connection, sql: &str) -> Outcome<()> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests;
