//! The thread that does the checkpoints: it copies the write-ahead log into the database file.
//!
//! The thread copies and waits for the disk while others write and read. But as long as others write, the copy never reaches the
//! end of the log, and the log would grow for ever. So when the log is long, the thread holds the writer while it copies the rest,
//! and the writer then restarts the log. SQLite syncs the database file only when a copy reaches the end of the log, that is, while
//! the writer is held. That sync covers everything that was copied since the last one. To keep it short, this thread syncs the file
//! and copies again several times (`PASSES`) before it holds the writer.
//!
//! Durability does not depend on checkpoints: a commit is in the log before it is acknowledged.

mod log_file;

use std::fs::File;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use longshore_engine::RareLine;
use longshore_model::{Error, Result};
use rusqlite::Connection;

use self::log_file::LogFile;
use super::fault::Outcome;

/// How often the thread copies and syncs the pages that were written during its previous copy, before it holds the writer for the
/// rest. Each pass has fewer pages than the one before.
const PASSES: usize = 3;

/// Sizes of the write-ahead log, in pages, at which the thread acts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Thresholds {
    /// The log is synced each time it has grown by this many pages.
    sync_every: i64,
    /// The log is copied each time it has grown by this many pages.
    copy_every: i64,
    /// The log is restarted when it has this many pages.
    restart_at: i64,
}

impl Thresholds {
    /// These thresholds, or smaller ones with which the log takes at most a quarter of this space.
    fn within(self, bytes: u64) -> Self {
        let pages = i64::try_from(bytes / 4 / FRAME_BYTES).unwrap_or(i64::MAX).max(MIN_LOG_PAGES);
        let restart_at = self.restart_at.min(pages);
        let copy_every = self.copy_every.min(restart_at / 4).max(1);
        Self { sync_every: self.sync_every.min(restart_at / 16).max(1), copy_every, restart_at }
    }
}

/// The bytes of a frame in the log: a page with its header.
pub(super) const FRAME_BYTES: u64 = 4096 + 24;

/// The lowest threshold for restarting the log. With less, the log would be restarted all the time.
const MIN_LOG_PAGES: i64 = 128;

impl Default for Thresholds {
    /// A sync every 4 MB, a copy every 16 MB, and a restart at 64 MB. Rare copies are cheaper: each event of a task writes the last
    /// page of the task's log again, and one copy serves all these writes. Rare restarts are better too, because nothing can be
    /// written during a restart. But a long write-ahead log takes space on the disk and in the page cache.
    fn default() -> Self {
        Self { sync_every: 1000, copy_every: 4000, restart_at: 16_000 }
    }
}

/// The writer's side of the checkpoints. Dropping it ends the thread.
pub(super) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The size of the log at the last commit.
    pages: AtomicI64,
    state: Mutex<State>,
    changed: Condvar,
    /// The thresholds on a disk with enough space.
    normal: Thresholds,
    failures: RareLine,
}

/// The next action of the thread.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum NextAction {
    #[default]
    Wait,
    /// Sync the log, because it has grown by [`Thresholds::sync_every`].
    Sync,
    /// End the thread.
    Stop,
}

/// Which commit may restart the log. SQLite waits for the disk in that commit, whatever the durability. Checkpoints by another
/// program are not noticed here.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum RestartingCommit {
    #[default]
    None,
    Next,
    /// The commit of the group that is being written.
    Current,
}

#[derive(Default)]
struct State {
    action: NextAction,
    /// Whether the writer is inside a group of requests.
    is_writing: bool,
    /// Whether the thread holds the writer, which then must not start a group.
    is_held: bool,
    /// Whether the thread is working, so that the disk is busy.
    is_thread_busy: bool,
    restart: RestartingCommit,
    /// The size of the log at the end of the last group.
    pages: i64,
    /// The size at which the next sync is due.
    next_sync: i64,
    /// The current thresholds. `None`: the normal ones.
    thresholds: Option<Thresholds>,
}

impl Checkpoints {
    /// Starts the thread, which uses the connection `db`. The connection `writer` does no more checkpoints. `file` is the open
    /// database file. It must stay open longer than any connection, because closing it drops all locks of this process on the
    /// database.
    pub(super) fn start(
        writer: &mut Connection,
        db: Connection,
        file: Arc<File>,
        thresholds: Thresholds,
    ) -> Result<Self> {
        let state = Mutex::new(State { next_sync: thresholds.sync_every, ..State::default() });
        let (pages, changed) = (AtomicI64::new(0), Condvar::new());
        let shared =
            Arc::new(Shared { pages, state, changed, normal: thresholds, failures: RareLine::new() });
        let noted = shared.clone();
        // Setting the hook removes SQLite's automatic checkpoint, which would run inside a commit.
        let hook = move |_: &mut _, pages| {
            noted.pages.store(i64::from(pages), Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(Error::internal)?;
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || served.serve(&db, &file))
            .map_err(Error::internal)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The size of the log at the last commit, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        u64::try_from(self.shared.pages.load(Ordering::Relaxed)).unwrap_or(0) * FRAME_BYTES
    }

    /// Adapts the thresholds to a disk that has this much space for the log and its copy.
    pub(super) fn fit(&self, bytes: u64) {
        let fitting = Some(self.shared.normal.within(bytes)).filter(|fitting| *fitting != self.shared.normal);
        let mut state = self.shared.lock();
        state.thresholds = fitting;
        state.next_sync = state.next_sync.min(state.pages + fitting.unwrap_or(self.shared.normal).sync_every);
    }

    /// Copies the whole log and empties its file. Uses the writer's connection between two groups. Waits for a running checkpoint
    /// first.
    pub(super) fn empty(&self, writer: &Connection, patience: Duration) -> Outcome<()> {
        // Wait here: SQLite does not wait for another checkpoint, and then does not report the state of the log.
        let is_busy = |state: &mut State| state.is_thread_busy || state.action == NextAction::Sync;
        drop(self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_busy));
        let emptied = run(writer, "TRUNCATE")?;
        if emptied.pages < 0 {
            return Ok(());
        }
        self.shared.pages.store(emptied.pages, Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.pages = emptied.pages;
        let thresholds = state.thresholds.unwrap_or(self.shared.normal);
        state.next_sync = state.pages + thresholds.sync_every;
        Ok(())
    }

    /// Call this before a transaction starts. Waits while the thread holds the writer.
    pub(super) fn begin_group(&self) {
        let mut state = self.shared.wait_while(self.shared.lock(), |state| state.is_held);
        state.is_writing = true;
        if state.restart == RestartingCommit::Next {
            state.restart = RestartingCommit::Current;
        }
    }

    /// Like [`begin_group`](Self::begin_group), but returns `false` instead of waiting, and also if the group might wait for the
    /// disk.
    pub(super) fn try_begin_group(&self) -> bool {
        let mut state = self.shared.lock();
        if state.is_held
            || state.is_thread_busy
            || state.action != NextAction::Wait
            || state.restart != RestartingCommit::None
        {
            return false;
        }
        state.is_writing = true;
        true
    }

    /// Makes the writer held or not, as the thread would. For tests.
    #[cfg(test)]
    pub(super) fn hold(&self, is_held: bool) {
        self.shared.lock().is_held = is_held;
        self.shared.changed.notify_all();
    }

    /// Call this when the writer has ended its transaction.
    pub(super) fn end_group(&self) {
        let pages = self.shared.pages.load(Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.is_writing = false;
        if state.restart == RestartingCommit::Current {
            let has_committed = pages != state.pages;
            state.restart = if has_committed { RestartingCommit::None } else { RestartingCommit::Next };
        }
        if pages < state.pages {
            // The log was restarted.
            state.next_sync = state.thresholds.unwrap_or(self.shared.normal).sync_every;
        }
        state.pages = pages;
        if pages >= state.next_sync {
            state.action = NextAction::Sync;
            // Move the threshold on even if the log does not get shorter. Otherwise every further group would request a sync.
            state.next_sync = pages + state.thresholds.unwrap_or(self.shared.normal).sync_every;
        }
        if state.action != NextAction::Wait || state.is_held {
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.lock().action = NextAction::Stop;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread of the store had panicked");
        }
    }
}

impl Shared {
    fn serve(&self, db: &Connection, file: &File) {
        let log = LogFile::open(db);
        let mut schedule = CopySchedule::default();
        while self.is_due() {
            let pages = self.pages.load(Ordering::Relaxed);
            log.prefetch(pages, self.prefetch_pages());
            log.sync();
            if !schedule.is_due(pages, self.thresholds().copy_every) {
                continue;
            }
            // After a failure, copy again when there is more to copy. Nothing is lost, because the data is in the log.
            if let Err(fault) = self.checkpoint(db, file, &log)
                && let Some(failures) = self.failures.due()
            {
                tracing::warn!(failures, error = ?fault.0, "the write-ahead log of the store could not be copied");
            }
        }
    }

    /// The number of pages that the writer overwrites before this thread runs again: one sync interval and some slack.
    fn prefetch_pages(&self) -> i64 {
        let sync_every = self.thresholds().sync_every;
        sync_every.saturating_add(sync_every / 4)
    }

    fn thresholds(&self) -> Thresholds {
        self.lock().thresholds.unwrap_or(self.normal)
    }

    /// Waits until there is work. Returns `false` if the thread must end.
    fn is_due(&self) -> bool {
        let mut state = self.lock();
        state.is_thread_busy = false;
        self.changed.notify_all();
        let mut state = self.wait_while(state, |state| state.action == NextAction::Wait);
        if state.action == NextAction::Sync {
            state.action = NextAction::Wait;
            state.is_thread_busy = true;
            return true;
        }
        false
    }

    fn checkpoint(&self, db: &Connection, file: &File, log: &LogFile) -> Outcome<()> {
        let done = self.copy(db, file, log);
        // Set this even after a failure, because the last page may have been copied before the failure.
        self.lock().restart = RestartingCommit::Next;
        done
    }

    fn copy(&self, db: &Connection, file: &File, log: &LogFile) -> Outcome<()> {
        let (log_state, restart_at) = (run(db, "PASSIVE")?, self.thresholds().restart_at);
        if log_state.is_copied() || log_state.pages >= restart_at {
            // The writer will soon restart the log, on its own or because of the code below, and overwrite these pages.
            log.prefetch(0, self.prefetch_pages());
        }
        if log_state.pages < restart_at {
            return Ok(());
        }
        for _ in 0..PASSES {
            // Ignore a failure here: SQLite then fails below too, and leaves the log unchanged.
            let _ = file.sync_data();
            run(db, "PASSIVE")?;
        }
        let _held = self.hold_writer();
        // On a small disk, also truncate the file of the log, so that it does not keep its greatest length.
        run(db, if restart_at < self.normal.restart_at { "TRUNCATE" } else { "RESTART" })?;
        Ok(())
    }

    /// Waits until the writer is between two groups. The writer stays there until the returned guard is dropped.
    fn hold_writer(&self) -> WriterHold<'_> {
        self.lock().is_held = true;
        let held = WriterHold(self);
        drop(self.wait_while(self.lock(), |state| state.is_writing && state.action != NextAction::Stop));
        held
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        condition: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed.wait_while(state, |state| condition(state)).unwrap_or_else(PoisonError::into_inner)
    }
}

struct WriterHold<'a>(&'a Shared);

impl Drop for WriterHold<'_> {
    fn drop(&mut self) {
        self.0.lock().is_held = false;
        self.0.changed.notify_all();
    }
}

/// When the next copy of the log is due.
#[derive(Default)]
struct CopySchedule {
    /// The size of the log at the last attempt.
    last_tried: i64,
}

impl CopySchedule {
    /// Whether the log has grown by `growth` since this method last returned `true`.
    fn is_due(&mut self, pages: i64, growth: i64) -> bool {
        if pages < self.last_tried {
            // The log was restarted.
            self.last_tried = 0;
        }
        let is_due = pages - self.last_tried >= growth;
        if is_due {
            self.last_tried = pages;
        }
        is_due
    }
}

/// The state of the write-ahead log after a checkpoint.
struct LogState {
    pages: i64,
    copied: i64,
}

impl LogState {
    fn is_copied(&self) -> bool {
        self.copied >= self.pages
    }
}

/// Runs a checkpoint. Readers may prevent a part of the log from being copied, or the log from being restarted. The next checkpoint
/// then does that.
fn run(db: &Connection, mode: &str) -> Outcome<LogState> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let log_state = db
        .prepare_cached(&sql)?
        .query_row([], |row| Ok(LogState { pages: row.get(1)?, copied: row.get(2)? }))?;
    Ok(log_state)
}

#[cfg(test)]
mod tests;
