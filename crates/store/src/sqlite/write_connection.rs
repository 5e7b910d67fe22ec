//! The only connection that writes, and its state. The writer thread and the callers that append share it through a mutex, so the
//! holder of the lock is the only writer.
//!
//! If a request fails after it has written something, its group is rolled back and run again. This time each request has its own
//! savepoint, so that the failure does not affect the other requests. Such failures are rare, and a group without one does not pay
//! for savepoints.

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
use super::checkpoint::{Checkpoints, FRAME_BYTES};
use super::epoch::EpochClaim;
use super::fault::{self, Fault, Outcome};
use super::push::PushTasks;
use super::read_only_switch::ReadOnlySwitch;
use super::record::Batch;
use super::room::{Room, START_ROOM, Space};
use super::row_cache::RowCache;
use super::schema::BUSY_TIMEOUT;
use super::writer::{Job, JobKind};

/// Inline appends (those on the calling thread) may take at most 1 / `INLINE_SHARE` of the elapsed time, because the calling
/// threads have other work. Under more load the writer thread does the appends, and many of them share a commit.
const INLINE_SHARE: u32 = 20;

/// How far `inline_paid_until` may lie in the future, so that a burst of a few inline appends is possible: half a millisecond
/// of writing, times `INLINE_SHARE`.
const MAX_INLINE_DEBT: Duration = Duration::from_millis(10);

/// How long emptying the log waits for a running checkpoint and for readers. Nothing can be written meanwhile.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(1);

/// The size of SQLite's pages, and SQLite's own limit for their number.
const PAGE_BYTES: u64 = 4096;
const MAX_PAGES: u64 = 4_294_967_294;

pub(super) struct WriteConnection {
    // The fields are dropped in this order: the checkpoints end before the connection is closed, which cleans up, and the
    // connection is closed before the file.
    checkpoints: Checkpoints,
    db: Connection,
    _file: Arc<File>,
    claim: EpochClaim,
    durability: Durability,
    /// How long a group waits for a lock of another program.
    busy_timeout: Duration,
    rows: RowCache,
    push: PushTasks,
    /// When the share of time for inline appends has made up for the appends so far. Until then, no further inline append is
    /// allowed.
    inline_paid_until: Instant,
    pub(super) switch: ReadOnlySwitch,
    metrics: Arc<Metrics>,
    /// Watches the disk space. `None`: the disk is not watched.
    room: Option<Arc<Room>>,
    /// Whether the last group failed because the disk is or may be full.
    was_full: bool,
    /// Whether the number of pages is limited to what the disk can hold.
    is_limited: bool,
}

impl WriteConnection {
    /// `file`: the database file. It must be closed after this connection, which is closed last.
    pub(super) fn new(
        db: Connection,
        file: Arc<File>,
        claim: EpochClaim,
        checkpoints: Checkpoints,
        push: PushTasks,
        (durability, metrics): (Durability, Arc<Metrics>),
    ) -> Self {
        Self {
            checkpoints,
            db,
            _file: file,
            claim,
            durability,
            busy_timeout: BUSY_TIMEOUT,
            rows: RowCache::default(),
            push,
            inline_paid_until: Instant::now(),
            switch: ReadOnlySwitch::default(),
            metrics,
            room: None,
            was_full: false,
            is_limited: false,
        }
    }

    /// Watches the disk from now on. If the disk has too little space for the log to grow, copies the log that the last run left.
    pub(super) fn watch_disk(&mut self, room: Option<Arc<Room>>) {
        let Some(room) = room else { return };
        self.was_full = room.space_now().is_some_and(|space| space.log > space.free);
        self.room = Some(room.clone());
        // A store that cannot be written can still be opened and read.
        if let Err(fault) = self.make_room() {
            tracing::warn!(error = ?fault.0, "the store cannot be written now");
        }
        room.restore_reserve();
    }

    /// Runs and commits all requests of a group. An error means that none of them was written.
    pub(super) fn write(&mut self, group: &mut [Box<dyn Job>]) -> Result<()> {
        self.switch.apply(&self.db);
        self.make_room()?;
        self.checkpoints.begin_group();
        let result = self.commit_group(group);
        self.checkpoints.end_group();
        self.was_full = result.as_ref().is_err_and(Fault::is_failed_write);
        self.metrics.store_group.observe(group.len() as u64);
        Ok(result?)
    }

    /// Appends on the calling thread, if that probably takes only microseconds, without waiting for another program, a checkpoint
    /// or the disk. `None`: that is not possible now, and nothing was written.
    pub(super) fn append_inline(&mut self, batch: &Batch) -> Option<Result<Appended>> {
        let may_wait = !batch.is_small() || self.durability == Durability::Power || !self.claim.is_on_disk;
        let begin = Instant::now();
        let is_over_share = self.inline_paid_until.saturating_duration_since(begin) > MAX_INLINE_DEBT;
        if may_wait || is_over_share || self.needs_room() || !self.checkpoints.try_begin_group() {
            return None;
        }
        self.switch.apply(&self.db);
        // Setting the busy timeout cannot fail.
        let _ = self.db.busy_timeout(Duration::ZERO);
        let done = self.commit_append(batch);
        let _ = self.db.busy_timeout(self.busy_timeout);
        self.checkpoints.end_group();
        // If the disk was slow after all, this keeps appends on the writer thread for a long time.
        self.inline_paid_until = self.inline_paid_until.max(begin) + begin.elapsed() * INLINE_SHARE;
        match done {
            Err(fault) if fault.is_busy() => None,
            done => {
                self.metrics.store_group.observe(1);
                Some(done.map_err(Error::from))
            }
        }
    }

    /// Whether the disk may lack space, so that [`Self::make_room`] must run before the next group.
    fn needs_room(&self) -> bool {
        let Some(room) = &self.room else { return false };
        self.was_full || room.space().is_some_and(|space| !space.is_plenty())
    }

    /// Ensures that the free disk space suffices to copy the write-ahead log into the database, by limiting the growth of both
    /// files. If the log is already too long, copies it at once, and fails if it is still too long after that.
    fn make_room(&mut self) -> Outcome<()> {
        let Some(room) = self.room.clone() else { return Ok(()) };
        let Some(space) = room.space() else { return Ok(()) };
        self.checkpoints.fit(space.for_log());
        // A short log is not too long: emptying it would free next to nothing, and the reserve has room for its copy.
        let is_too_long =
            |space: Space, log: u64| log >= START_ROOM && log.saturating_mul(2) > space.for_log();
        let is_worth_it = self.was_full && space.log >= START_ROOM;
        if is_worth_it || is_too_long(space, self.checkpoints.log_bytes()) {
            let mut emptied = self.empty_log();
            let is_full =
                |room: &Room| room.space_now().is_none_or(|space| space.free < space.log.max(START_ROOM));
            if emptied.as_ref().is_err_and(Fault::is_failed_write) && is_full(&room) && room.give_up_reserve()
            {
                emptied = self.empty_log();
            }
            let Some(space) = room.space_now() else { return Ok(()) };
            if is_too_long(space, self.checkpoints.log_bytes()) {
                return Err(emptied.err().unwrap_or_else(fault::no_room));
            }
        }
        self.limit_pages(&room)?;
        room.restore_reserve();
        Ok(())
    }

    fn empty_log(&self) -> Outcome<()> {
        self.db.busy_timeout(EMPTY_TIMEOUT)?;
        let emptied = self.checkpoints.empty(&self.db, EMPTY_TIMEOUT);
        self.db.busy_timeout(self.busy_timeout)?;
        emptied
    }

    /// Limits the pages of the database to those for which the disk has room, once in the log and once in the file. This also stops
    /// a single large group: SQLite refuses further pages.
    fn limit_pages(&mut self, room: &Room) -> Outcome<()> {
        let Some(space) = room.space() else { return Ok(()) };
        if space.is_plenty() && !self.is_limited {
            return Ok(());
        }
        let mut limit = MAX_PAGES;
        if !space.is_plenty() {
            let pages: i64 = self.db.pragma_query_value(None, "page_count", |row| row.get(0))?;
            let pages = pages.unsigned_abs();
            let uncopied = pages.saturating_sub(space.file / PAGE_BYTES).saturating_mul(PAGE_BYTES);
            limit = pages + space.free.saturating_sub(uncopied) / (PAGE_BYTES + FRAME_BYTES);
        }
        self.is_limited = !space.is_plenty();
        // A pragma takes no bound parameter, so the limit is formatted into the text.
        self.db.query_row(&format!("PRAGMA max_page_count = {limit}"), [], |_| Ok(()))?;
        Ok(())
    }

    /// Pretends that inline appends have used no time, or far more than their share. For tests.
    #[cfg(test)]
    pub(super) fn set_inline_allowed(&mut self, is_allowed: bool) {
        let debt = if is_allowed { Duration::ZERO } else { Duration::from_mins(1) };
        self.inline_paid_until = Instant::now() + debt;
    }

    #[cfg(test)]
    pub(super) fn set_busy_timeout(&mut self, timeout: Duration) {
        self.busy_timeout = timeout;
        self.db.busy_timeout(timeout).unwrap();
    }

    fn commit_group(&mut self, group: &mut [Box<dyn Job>]) -> Outcome<()> {
        self.claim.persist(&self.db)?;
        let mut db = WriteContext::new(&self.db, &mut self.rows, &mut self.push)?;
        let is_written = in_transaction(&mut db, |db| run_together(db, group))?.is_some();
        // If the group had only this request, no other request was affected.
        if !is_written && group.len() > 1 {
            in_transaction(&mut db, |db| run_in_savepoints(db, group))?;
        }
        Ok(())
    }

    fn commit_append(&mut self, batch: &Batch) -> Outcome<Appended> {
        // The single statement is its own transaction only if no transaction is open.
        if batch.is_single_output()
            && self.db.is_autocommit()
            && let Some(ordinal) = self.rows.ordinal_if_current(batch)
            && !self.push.wants(ordinal, batch)
        {
            fail_point::hit("commit.before");
            let appended = append::append_output(&self.db, &mut self.rows, ordinal, batch);
            fail_point::hit("commit.after");
            match appended {
                // The cached row was outdated because another program has written. The code below reads the file again.
                Err(fault) if fault.is_constraint_violation() => self.rows.note_change(),
                done => return done,
            }
        }
        let mut db = WriteContext::new(&self.db, &mut self.rows, &mut self.push)?;
        let appended = in_transaction(&mut db, |db| append::append(db, batch).map(Some))?;
        appended.ok_or_else(|| Fault(fault::stopped()))
    }
}

/// The write connection with the statements that nearly every group needs. They are looked up once for the whole group.
pub(super) struct WriteContext<'db> {
    db: &'db Connection,
    begin: CachedStatement<'db>,
    commit: CachedStatement<'db>,
    pub(super) appends: Appends<'db>,
}

impl<'db> WriteContext<'db> {
    fn new(db: &'db Connection, rows: &'db mut RowCache, push: &'db mut PushTasks) -> Outcome<Self> {
        Ok(Self {
            db,
            begin: db.prepare_cached("BEGIN IMMEDIATE")?,
            commit: db.prepare_cached("COMMIT")?,
            appends: Appends::new(db, rows, push)?,
        })
    }

    pub(super) fn with_push(&mut self) -> (&'db Connection, &mut PushTasks) {
        (self.db, self.appends.push)
    }
}

impl Deref for WriteContext<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.db
    }
}

/// Commits if `work` returns `Some`, and rolls back otherwise. Returns the result of `work`.
fn in_transaction<T>(
    db: &mut WriteContext<'_>,
    work: impl FnOnce(&mut WriteContext<'_>) -> Outcome<Option<T>>,
) -> Outcome<Option<T>> {
    db.begin.execute([])?;
    let done = work(db);
    fail_point::hit("commit.before");
    let done = match done {
        Ok(Some(value)) => db.commit.execute([]).map(|_| Some(value)).map_err(Fault::from),
        other => other,
    };
    fail_point::hit("commit.after");
    if matches!(done, Ok(Some(_))) {
        db.appends.push.committed();
        return done;
    }
    db.appends.rows.note_change();
    // Some failures end the transaction themselves. Roll back otherwise, because the next group must find no open transaction.
    if !db.is_autocommit()
        && let Err(fault) = command(db, "ROLLBACK")
    {
        tracing::error!(error = ?fault.0, "the store could not roll back");
    }
    let (connection, push) = db.with_push();
    push.rolled_back(connection);
    done
}

/// Runs all requests. `None`: a request failed after it had written something, and the rest was not run.
fn run_together(db: &mut WriteContext<'_>, group: &mut [Box<dyn Job>]) -> Outcome<Option<()>> {
    for job in group {
        if !run(db, job)? {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// Runs each request in its own savepoint.
fn run_in_savepoints(db: &mut WriteContext<'_>, group: &mut [Box<dyn Job>]) -> Outcome<Option<()>> {
    for job in group {
        command(db, "SAVEPOINT request")?;
        if !run(db, job)? {
            command(db, "ROLLBACK TO request")?;
        }
        command(db, "RELEASE request")?;
    }
    Ok(Some(()))
}

fn run(db: &mut WriteContext<'_>, job: &mut Box<dyn Job>) -> Outcome<bool> {
    if job.kind() == JobKind::Other {
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
