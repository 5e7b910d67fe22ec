//! The one thread that writes, with group commit.
//!
//! It takes whatever waits, runs all of it in one transaction, commits, and only then answers. At rest a request
//! goes at once; under load many share one commit. When a request fails half-way, the group is rolled back and run again
//! with a savepoint around each request, so that the failure of one is not its neighbours': that is rare, and in a group
//! that goes well nobody pays for it.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

use longshore_engine::fail_point;
use longshore_meter::Metrics;
use longshore_meter::label::StoreThread;
use longshore_model::{Error, Result};
use rusqlite::{Connection, Statement};
use tokio::sync::oneshot;

use super::append::Appends;
use super::checkpoint::Checkpoints;
use super::epoch::Claim;
use super::fault::{self, Outcome};
use super::queue::{Owner, Queue};
use super::switch::Switch;
use super::worker::Worker;

/// Requests in one transaction. What is beyond waits for the next one, so that no answer waits for a long group.
pub(super) const GROUP: usize = 256;

/// A request that takes milliseconds counts as so many others: there are eight of them in a transaction at most.
const LARGE: usize = GROUP / 8;

pub(super) struct Writer {
    pub(super) worker: Worker<Box<dyn Job>>,
    #[cfg(feature = "simulation")]
    pub(super) switch: Switch,
}

impl Writer {
    /// `file`: what the connections are to, which is closed after this one, the last of them.
    pub(super) fn start(
        db: Connection,
        file: Arc<File>,
        claim: Claim,
        checkpoints: Checkpoints,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let switch = Switch::default();
        Ok(Self {
            #[cfg(feature = "simulation")]
            switch: switch.clone(),
            worker: Worker::start(StoreThread::Writer, metrics.clone(), move |waiting| {
                // Dropped in the reverse order: the checkpoints end before the connection that cleans up is closed.
                let _file = file;
                let db = db;
                let mut thread = Thread { writing: None, claim, switch, checkpoints, metrics };
                thread.serve(&db, waiting);
            })?,
        })
    }

    /// Runs `work` on the thread and returns when it is durable. Of what it has written nothing stays when it fails, or
    /// when it is called again.
    ///
    /// When the future is dropped before its work was taken into the queue nothing happens; after that the work is
    /// done although nobody waits for it.
    pub(super) async fn run<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, 1, work).await
    }

    /// The same for work that takes milliseconds.
    pub(super) async fn run_large<T, F>(&self, owner: Owner, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        self.ask(owner, LARGE, work).await
    }

    async fn ask<T, F>(&self, owner: Owner, weight: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Request { work, weight, outcome: None, answer };
        self.worker.ask(owner, Box::new(job), answered).await
    }
}

/// The connection that writes, and the statements that it needs all the time: looking them up would cost more than some
/// of them do.
pub(super) struct Writing<'db> {
    db: &'db Connection,
    begin: Statement<'db>,
    commit: Statement<'db>,
    pub(super) appends: Appends<'db>,
}

impl<'db> Writing<'db> {
    pub(super) fn new(db: &'db Connection) -> Outcome<Self> {
        Ok(Self {
            db,
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            appends: Appends::new(db)?,
        })
    }
}

impl Deref for Writing<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db
    }
}

struct Thread<'db> {
    /// `None`: not yet, because the file could not be read.
    writing: Option<Writing<'db>>,
    claim: Claim,
    switch: Switch,
    checkpoints: Checkpoints,
    metrics: Arc<Metrics>,
}

impl<'db> Thread<'db> {
    fn serve(&mut self, db: &'db Connection, waiting: &Queue<Box<dyn Job>>) {
        let mut group = Vec::with_capacity(GROUP);
        while waiting.take(GROUP, |job| job.weight(), &mut group) {
            self.switch.apply(db);
            self.checkpoints.begin_group();
            let fate = self.commit_group(db, &mut group);
            self.checkpoints.end_group();
            self.metrics.store_group.observe(group.len() as u64);
            for job in group.drain(..) {
                job.answer(fate.as_ref().err());
            }
        }
    }

    fn commit_group(&mut self, db: &'db Connection, group: &mut [Box<dyn Job>]) -> Result<()> {
        self.claim.hold(db)?;
        let writing = match &mut self.writing {
            Some(writing) => writing,
            none => none.insert(Writing::new(db)?),
        };
        commit(writing, group)
    }
}

/// Runs and commits all requests. An error here means that none of them is written.
fn commit(db: &mut Writing<'_>, group: &mut [Box<dyn Job>]) -> Result<()> {
    let is_written = in_transaction(db, |db| together(db, group))?;
    // One that failed half-way has taken nobody with it if it was alone.
    if !is_written && group.len() > 1 {
        in_transaction(db, |db| apart(db, group))?;
    }
    Ok(())
}

/// Commits what `work` does if it says so, and rolls it back otherwise. Gives what it said.
fn in_transaction(
    db: &mut Writing<'_>,
    work: impl FnOnce(&mut Writing<'_>) -> Outcome<bool>,
) -> Outcome<bool> {
    db.begin.execute([])?;
    let done = work(db);
    fail_point::hit("commit.before");
    let done = match done {
        Ok(true) => db.commit.execute([]).map(|_| true).map_err(fault::Fault::from),
        undone => undone,
    };
    fail_point::hit("commit.after");
    // A failure ends some transactions by itself; the next group must find none open.
    if !matches!(done, Ok(true))
        && !db.is_autocommit()
        && let Err(fault) = command(db, "ROLLBACK")
    {
        tracing::error!(error = ?fault.0, "the store could not roll back");
    }
    done
}

/// Runs all requests, until one fails that has written something. Says whether none did.
fn together(db: &mut Writing<'_>, group: &mut [Box<dyn Job>]) -> Outcome<bool> {
    for job in group {
        if !job.run(db)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs each request in a savepoint of its own.
fn apart(db: &mut Writing<'_>, group: &mut [Box<dyn Job>]) -> Outcome<bool> {
    for job in group {
        command(db, "SAVEPOINT request")?;
        if !job.run(db)? {
            command(db, "ROLLBACK TO request")?;
        }
        command(db, "RELEASE request")?;
    }
    Ok(true)
}

pub(super) trait Job: Send {
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
    weight: usize,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Request<T, F>
where
    T: Send,
    F: FnMut(&mut Writing<'_>) -> Outcome<T> + Send,
{
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

fn command(db: &Connection, sql: &str) -> Outcome<()> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests;
