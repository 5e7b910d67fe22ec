//! The connection that writes, and all that belongs to it: shared, in a mutex, by the thread that writes and those who append.
//! Whoever has it is the one who writes.
//!
//! When a request fails half-way, its group is rolled back and run again with a savepoint around each request, so that the
//! failure of one is not its neighbours': that is rare, and in a group that goes well nobody pays for it.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_engine::fail_point;
use longshore_engine::port::Appended;
use longshore_meter::Metrics;
use longshore_model::{Error, Result};
use rusqlite::{CachedStatement, Connection};

use super::Durability;
use super::append::{self, Appends};
use super::checkpoint::Checkpoints;
use super::epoch::Claim;
use super::fault::{self, Fault, Outcome};
use super::record::Batch;
use super::rows::Rows;
use super::schema::BUSY_TIMEOUT;
use super::switch::Switch;
use super::writer::{Job, Kind};

/// At most one part in so many of the time is spent on writing outside of the thread, since whoever appends has other things to
/// do. Where there is more to write, the thread does it, and many share a commit.
const SHARE: u32 = 20;

/// How far `paid_until` may lie ahead, so that a few can come at once: half a millisecond of writing, `SHARE` times.
const AHEAD: Duration = Duration::from_millis(10);

pub(super) struct Pen {
    // Dropped in this order: the checkpoints end before the connection that cleans up is closed, and it is closed before the
    // file itself is.
    checkpoints: Checkpoints,
    db: Connection,
    _file: Arc<File>,
    claim: Claim,
    durability: Durability,
    /// How long a group waits for another program.
    patience: Duration,
    rows: Rows,
    /// When the time that was spent on writing outside of the thread is no more than its share.
    paid_until: Instant,
    pub(super) switch: Switch,
    metrics: Arc<Metrics>,
}

impl Pen {
    /// `file`: what the connections are to, which is closed after this one, the last of them.
    pub(super) fn new(
        db: Connection,
        file: Arc<File>,
        claim: Claim,
        checkpoints: Checkpoints,
        (durability, metrics): (Durability, Arc<Metrics>),
    ) -> Self {
        Self {
            checkpoints,
            db,
            _file: file,
            claim,
            durability,
            patience: BUSY_TIMEOUT,
            rows: Rows::default(),
            paid_until: Instant::now(),
            switch: Switch::default(),
            metrics,
        }
    }

    /// Runs and commits all requests. An error here means that none of them is written.
    pub(super) fn write(&mut self, group: &mut [Box<dyn Job>]) -> Result<()> {
        self.switch.apply(&self.db);
        self.checkpoints.begin_group();
        let fate = self.commit_group(group);
        self.checkpoints.end_group();
        self.metrics.store_group.observe(group.len() as u64);
        Ok(fate?)
    }

    /// Appends for somebody who is not the thread, if that is likely to be a matter of microseconds: another program and a
    /// checkpoint are not waited for, and SQLite does not wait for the disk. `None`: not now; nothing is written.
    pub(super) fn append_here(&mut self, batch: &Batch) -> Option<Result<Appended>> {
        let may_wait = !batch.is_small() || self.durability == Durability::Power || !self.claim.is_on_disk;
        let begin = Instant::now();
        let is_too_much = self.paid_until.saturating_duration_since(begin) > AHEAD;
        if may_wait || is_too_much || !self.checkpoints.try_begin_group() {
            return None;
        }
        self.switch.apply(&self.db);
        // That a connection is told how long to wait cannot fail.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let done = self.commit_append(batch);
        let _ = self.db.busy_timeout(self.patience);
        self.checkpoints.end_group();
        // A disk that made it wait all the same is left to the thread for long.
        self.paid_until = self.paid_until.max(begin) + begin.elapsed() * SHARE;
        match done {
            Err(fault) if fault.is_busy() => None,
            done => {
                self.metrics.store_group.observe(1);
                Some(done.map_err(Error::from))
            }
        }
    }

    /// As if nothing had been written without the thread, or far too much.
    #[cfg(test)]
    pub(super) fn rest(&mut self, is_rested: bool) {
        self.paid_until = Instant::now() + if is_rested { Duration::ZERO } else { Duration::from_mins(1) };
    }

    /// How long a group waits from now on for another program.
    #[cfg(test)]
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
        self.db.busy_timeout(patience).unwrap();
    }

    fn commit_group(&mut self, group: &mut [Box<dyn Job>]) -> Outcome<()> {
        self.claim.hold(&self.db)?;
        let mut db = Writing::new(&self.db, &mut self.rows)?;
        let is_written = in_transaction(&mut db, |db| together(db, group))?.is_some();
        // One that failed half-way has taken nobody with it if it was alone.
        if !is_written && group.len() > 1 {
            in_transaction(&mut db, |db| apart(db, group))?;
        }
        Ok(())
    }

    fn commit_append(&mut self, batch: &Batch) -> Outcome<Appended> {
        // One statement is a transaction by itself only if there is none.
        if batch.is_a_piece_of_output()
            && self.db.is_autocommit()
            && let Some(ordinal) = self.rows.ready_for(batch)
        {
            fail_point::hit("commit.before");
            let appended = append::append_output(&self.db, &mut self.rows, ordinal, batch);
            fail_point::hit("commit.after");
            match appended {
                // Not what is known here: another program has written. Below it is told what there is.
                Err(fault) if fault.is_of_a_key() => self.rows.note_change(),
                done => return done,
            }
        }
        let mut db = Writing::new(&self.db, &mut self.rows)?;
        let appended = in_transaction(&mut db, |db| append::append(db, batch).map(Some))?;
        appended.ok_or_else(|| Fault(fault::stopped()))
    }
}

/// The connection that writes, and the statements that every group needs, or nearly: they are looked up once for all of it.
pub(super) struct Writing<'pen> {
    db: &'pen Connection,
    begin: CachedStatement<'pen>,
    commit: CachedStatement<'pen>,
    pub(super) appends: Appends<'pen>,
}

impl<'pen> Writing<'pen> {
    fn new(db: &'pen Connection, rows: &'pen mut Rows) -> Outcome<Self> {
        Ok(Self {
            db,
            begin: db.prepare_cached("BEGIN IMMEDIATE")?,
            commit: db.prepare_cached("COMMIT")?,
            appends: Appends::new(db, rows)?,
        })
    }
}

impl Deref for Writing<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db
    }
}

/// Commits what `work` does if it gives something, and rolls it back otherwise. Gives the same.
fn in_transaction<T>(
    db: &mut Writing<'_>,
    work: impl FnOnce(&mut Writing<'_>) -> Outcome<Option<T>>,
) -> Outcome<Option<T>> {
    db.begin.execute([])?;
    let done = work(db);
    fail_point::hit("commit.before");
    let done = match done {
        Ok(Some(given)) => db.commit.execute([]).map(|_| Some(given)).map_err(Fault::from),
        undone => undone,
    };
    fail_point::hit("commit.after");
    if matches!(done, Ok(Some(_))) {
        return done;
    }
    db.appends.rows.note_change();
    // A failure ends some transactions by itself; the next group must find none open.
    if !db.is_autocommit()
        && let Err(fault) = command(db, "ROLLBACK")
    {
        tracing::error!(error = ?fault.0, "the store could not roll back");
    }
    done
}

/// Runs all requests, until one fails that has written something: then it gives nothing.
fn together(db: &mut Writing<'_>, group: &mut [Box<dyn Job>]) -> Outcome<Option<()>> {
    for job in group {
        if !run(db, job)? {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// Runs each request in a savepoint of its own.
fn apart(db: &mut Writing<'_>, group: &mut [Box<dyn Job>]) -> Outcome<Option<()>> {
    for job in group {
        command(db, "SAVEPOINT request")?;
        if !run(db, job)? {
            command(db, "ROLLBACK TO request")?;
        }
        command(db, "RELEASE request")?;
    }
    Ok(Some(()))
}

fn run(db: &mut Writing<'_>, job: &mut Box<dyn Job>) -> Outcome<bool> {
    if job.kind() == Kind::Other {
        db.appends.rows.note_change();
    }
    job.run(db)
}

fn command(db: &Connection, sql: &str) -> Outcome<()> {
    db.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests;
