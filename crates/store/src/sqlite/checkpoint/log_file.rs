//! Reads and syncs the file of the write-ahead log on the checkpoint thread, so that no other thread has to wait for the disk.
//!
//! A restarted log is overwritten from its start. Its frames are no multiples of a memory page, so each starts and ends inside of
//! one. To change a part of a memory page that the system has evicted from its cache, the system first reads the page from the disk
//! while the writer waits: up to 8 ms on a busy disk. So this thread reads these pages in advance.
//!
//! SQLite also syncs the log before it copies any of it. Syncing the whole log at once delayed the other threads by some
//! milliseconds each time; syncing it in parts hardly delays them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rusqlite::Connection;

/// Sizes in SQLite's log: its header, the header of each page, and the page.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
const PAGE: u64 = 4096;

/// The smallest possible memory page. Prefetching reads one byte of each.
const STRIDE: u64 = 4096;

/// The file of the write-ahead log. `None`: it could not be opened, and other threads may have to wait. Unlike the database file,
/// it may be closed at any time, because SQLite holds no locks on it.
pub(super) struct LogFile(Option<File>);

impl LogFile {
    /// Opens the log of the file that the connection uses.
    pub(super) fn open(db: &Connection) -> Self {
        Self(db.path().and_then(|path| File::open(format!("{path}-wal")).ok()))
    }

    /// Reads the `pages` pages after the first `written` ones into the system's cache, or fewer at the end of the log.
    pub(super) fn prefetch(&self, written: i64, pages: i64) {
        if let Some(log) = &self.0 {
            touch(written, pages, |offset| log.read_at(&mut [0], offset).is_ok_and(|read| read > 0));
        }
    }

    /// Syncs the log. Ignores failures, because the system reports them on every descriptor, and SQLite syncs on its own.
    pub(super) fn sync(&self) {
        if let Some(log) = &self.0 {
            let _ = log.sync_data();
        }
    }
}

/// Calls `exists` with the offset of each memory page of the range, until it returns `false`.
fn touch(written: i64, pages: i64, mut exists: impl FnMut(u64) -> bool) {
    let first = end_of(written) / STRIDE;
    let end = end_of(written.saturating_add(pages)).div_ceil(STRIDE);
    for page in first..end {
        if !exists(page * STRIDE) {
            return;
        }
    }
}

/// The size in bytes of a log with this many pages.
fn end_of(pages: i64) -> u64 {
    let pages = u64::try_from(pages).unwrap_or_default();
    LOG_HEADER.saturating_add(pages.saturating_mul(FRAME_HEADER + PAGE))
}

#[cfg(test)]
mod tests {
    use super::super::super::{Durability, schema};
    use super::*;

    #[test]
    fn prefetch_touches_each_memory_page_up_to_the_end() {
        let touched = |written, pages, end: u64| {
            let mut seen = Vec::new();
            touch(written, pages, |offset| {
                seen.push(offset);
                offset < end
            });
            seen
        };
        // Two frames after the first three: the bytes from 12 392 to 20 632.
        assert_eq!(touched(3, 2, u64::MAX), [12_288, 16_384, 20_480]);
        // The log is shorter than the requested range.
        assert_eq!(touched(0, 1_000_000, 10_000).len(), 4);
        assert_eq!(touched(1_000_000, 10, 0).len(), 1, "far past the end");
        assert_eq!(touched(i64::MAX, i64::MAX, 0).len(), 1);
    }

    #[test]
    fn the_log_file_of_a_connection_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let _writer = schema::open_writer(&path, Durability::Process).unwrap();
        let checkpointer = schema::open_checkpointer(&path, Durability::Process).unwrap();
        let LogFile(log) = LogFile::open(&checkpointer);
        let log = log.expect("the log");
        assert_eq!(log.metadata().unwrap().len(), end_of_log(&checkpointer));
    }

    /// The end of the log according to SQLite.
    fn end_of_log(db: &Connection) -> u64 {
        let pages = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1)).unwrap();
        end_of(pages)
    }
}
