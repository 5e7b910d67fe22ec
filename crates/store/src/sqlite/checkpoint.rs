//! The thread that brings what was written from the write-ahead log into the file.
//!
//! It copies and waits for the disk while others write and read. But a log that is always written to is never copied
//! to its end, so it would grow for ever: when it is long, the writer is held back for the moment that the rest takes,
//! and begins it anew. SQLite brings the file to the disk only when a copy comes to the end of the log, so in that moment, with
//! everything that was copied since the last one; so this thread has waited for most of it before.
//!
//! What a commit survives does not depend on this: it is in the log before it is answered.

mod log_file;

use std::fs::File;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use longshore_model::{Error, Result};
use rusqlite::Connection;

use self::log_file::LogFile;
use super::fault::Outcome;

/// How often what came during a copy is copied, and brought to the disk, before the writer is held back for the rest. Each
/// time there is less.
const PASSES: usize = 3;

/// When something is done about the log, in its pages.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    /// It is brought to the disk each time that it has grown by so many.
    step: i64,
    /// It is copied each time that it has grown by so many.
    copy: i64,
    /// When it has so many it is begun anew.
    long: i64,
}

impl Default for Lengths {
    /// 4, 16 and 64 MB. To copy rarely is better: the last page of the log of a task is written again with each of its events,
    /// and copied once for all of them. So is to begin anew rarely, since nobody can write meanwhile. But a long log takes
    /// room on the disk, and in the system's memory.
    fn default() -> Self {
        Self { step: 1000, copy: 4000, long: 16_000 }
    }
}

/// What the writer has to do with checkpoints. Dropping it ends the thread.
pub(super) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// The pages of the log at the last commit.
    pages: AtomicI64,
    state: Mutex<State>,
    changed: Condvar,
    lengths: Lengths,
}

/// What the thread is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Errand {
    #[default]
    None,
    /// The log has grown by a step.
    Step,
    /// For ever.
    End,
}

/// Whether a commit may be the one with which the log begins anew. SQLite waits for the disk then, whatever a commit waits for
/// otherwise. (What another program copies is not noticed.)
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Anew {
    #[default]
    No,
    Next,
    /// That of the group that has begun.
    This,
}

#[derive(Default)]
struct State {
    errand: Errand,
    /// The writer is in the middle of a group.
    is_writing: bool,
    /// The writer is to begin no group.
    is_held: bool,
    /// The thread is about something, so that the disk is busy.
    is_at_work: bool,
    anew: Anew,
    /// The pages of the log at the end of the last group, and how many make it due again.
    pages: i64,
    next: i64,
}

impl Checkpoints {
    /// Does them for the connection that writes, which does none any more, on another one to the same file. `file` is that file,
    /// and must be kept open longer than any connection to it: to close it drops the locks that this process has on it.
    pub(super) fn start(
        writer: &mut Connection,
        db: Connection,
        file: Arc<File>,
        lengths: Lengths,
    ) -> Result<Self> {
        let state = Mutex::new(State { next: lengths.step, ..State::default() });
        let (pages, changed) = (AtomicI64::new(0), Condvar::new());
        let shared = Arc::new(Shared { pages, state, changed, lengths });
        let told = shared.clone();
        // This takes the place of what SQLite does by itself: a checkpoint in the middle of a commit.
        let hook = move |_: &mut _, pages| {
            told.pages.store(i64::from(pages), Ordering::Relaxed);
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

    /// The writer is about to begin a transaction.
    pub(super) fn begin_group(&self) {
        let mut state = self.shared.wait_while(self.shared.lock(), |state| state.is_held);
        state.is_writing = true;
        if state.anew == Anew::Next {
            state.anew = Anew::This;
        }
    }

    /// The same, unless that has to be waited for, or the disk in the group.
    pub(super) fn try_begin_group(&self) -> bool {
        let mut state = self.shared.lock();
        if state.is_held || state.is_at_work || state.errand != Errand::None || state.anew != Anew::No {
            return false;
        }
        state.is_writing = true;
        true
    }

    /// As if the thread held the writer, or no longer.
    #[cfg(test)]
    pub(super) fn hold(&self, is_held: bool) {
        self.shared.lock().is_held = is_held;
        self.shared.changed.notify_all();
    }

    /// The writer is in no transaction any more.
    pub(super) fn end_group(&self) {
        let pages = self.shared.pages.load(Ordering::Relaxed);
        let mut state = self.shared.lock();
        state.is_writing = false;
        if state.anew == Anew::This {
            let has_committed = pages != state.pages;
            state.anew = if has_committed { Anew::No } else { Anew::Next };
        }
        if pages < state.pages {
            // The log has begun anew.
            state.next = self.shared.lengths.step;
        }
        state.pages = pages;
        if pages >= state.next {
            state.errand = Errand::Step;
            // Not with every group, if it does not get shorter.
            state.next = pages + self.shared.lengths.step;
        }
        if state.errand != Errand::None || state.is_held {
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.lock().errand = Errand::End;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store's checkpoints had panicked");
        }
    }
}

impl Shared {
    fn serve(&self, db: &Connection, file: &File) {
        let log = LogFile::of(db);
        let mut copies = Copies::default();
        while self.is_due() {
            let pages = self.pages.load(Ordering::Relaxed);
            log.look_ahead(pages, self.soon());
            log.sync();
            if !copies.is_due(pages, self.lengths.copy) {
                continue;
            }
            // What failed is tried again when there is more to copy. Nothing is lost: it is in the log.
            if let Err(fault) = self.checkpoint(db, file, &log) {
                tracing::warn!(error = ?fault.0, "the write-ahead log of the store could not be copied");
            }
        }
    }

    /// What is written over until this thread looks again: a step, and something until that is noticed.
    fn soon(&self) -> i64 {
        self.lengths.step.saturating_add(self.lengths.step / 4)
    }

    /// Waits until there is something to do. `false`: there will be nothing more.
    fn is_due(&self) -> bool {
        let mut state = self.lock();
        state.is_at_work = false;
        let mut state = self.wait_while(state, |state| state.errand == Errand::None);
        if state.errand == Errand::Step {
            state.errand = Errand::None;
            state.is_at_work = true;
            return true;
        }
        false
    }

    fn checkpoint(&self, db: &Connection, file: &File, log: &LogFile) -> Outcome<()> {
        let done = self.copy(db, file, log);
        // Also if it failed: the last page may have been copied before.
        self.lock().anew = Anew::Next;
        done
    }

    fn copy(&self, db: &Connection, file: &File, log: &LogFile) -> Outcome<()> {
        let after = run(db, "PASSIVE")?;
        if after.is_copied() || after.pages >= self.lengths.long {
            // The writer begins the log anew soon: by itself, or by what follows.
            log.look_ahead(0, self.soon());
        }
        if after.pages < self.lengths.long {
            return Ok(());
        }
        for _ in 0..PASSES {
            // A disk that fails here fails SQLite below too, which then leaves the log as it is.
            let _ = file.sync_data();
            run(db, "PASSIVE")?;
        }
        let _held = self.hold_the_writer();
        run(db, "RESTART")?;
        Ok(())
    }

    /// Waits until the writer is between two groups, where it stays until the answer is dropped.
    fn hold_the_writer(&self) -> Held<'_> {
        self.lock().is_held = true;
        let held = Held(self);
        drop(self.wait_while(self.lock(), |state| state.is_writing && state.errand != Errand::End));
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

struct Held<'a>(&'a Shared);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock().is_held = false;
        self.0.changed.notify_all();
    }
}

/// When the log is to be copied.
#[derive(Default)]
struct Copies {
    /// How long it was when that was tried last.
    tried: i64,
}

impl Copies {
    /// Whether the log has grown by so much since the last time that this was so.
    fn is_due(&mut self, pages: i64, growth: i64) -> bool {
        if pages < self.tried {
            // It has begun anew.
            self.tried = 0;
        }
        let is_due = pages - self.tried >= growth;
        if is_due {
            self.tried = pages;
        }
        is_due
    }
}

/// The log after a checkpoint.
struct After {
    pages: i64,
    copied: i64,
}

impl After {
    fn is_copied(&self) -> bool {
        self.copied >= self.pages
    }
}

/// Readers may keep a part of the log from being copied, or from being begun anew: then it is so the next time.
fn run(db: &Connection, mode: &str) -> Outcome<After> {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let after = db
        .prepare_cached(&sql)?
        .query_row([], |row| Ok(After { pages: row.get(1)?, copied: row.get(2)? }))?;
    Ok(after)
}

#[cfg(test)]
mod tests;
