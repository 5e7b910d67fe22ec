//! What the thread of the checkpoints does with the write-ahead log itself, so that nobody else has to wait for the disk.
//!
//! A log that was begun anew is written over. Its frames are no multiples of a page of memory, so each begins and ends
//! inside of one; and to change a part of a page that it has given up meanwhile, the system reads that page from the disk
//! first, while the writer waits: for up to 8 ms, on a disk that others write to. So this thread looks at these pages before.
//!
//! And SQLite brings the log to the disk before it copies anything of it. With all that there is to copy at once, the others
//! were late by some milliseconds each time; with a part of it at a time they are hardly.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rusqlite::Connection;

/// What SQLite puts before the log, before each page in it, and the size of those pages.
const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
const PAGE: u64 = 4096;

/// The smallest page of memory that there is. A byte of each is read.
const STRIDE: u64 = 4096;

/// `None`: the log could not be opened for this, and others may have to wait. It may be closed at any time: SQLite has its
/// locks on other files.
pub(super) struct LogFile(Option<File>);

impl LogFile {
    /// Of the log of the file that this connection is to.
    pub(super) fn of(db: &Connection) -> Self {
        Self(db.path().and_then(|path| File::open(format!("{path}-wal")).ok()))
    }

    /// Looks at so many pages of the log behind the first `written` ones, or fewer where it ends.
    pub(super) fn look_ahead(&self, written: i64, pages: i64) {
        if let Some(log) = &self.0 {
            touch(written, pages, |offset| log.read_at(&mut [0], offset).is_ok_and(|read| read > 0));
        }
    }

    /// Waits until what was written is on the disk. A disk that fails is SQLite's to tell: the system tells it on each
    /// descriptor, and SQLite waits on its own.
    pub(super) fn sync(&self) {
        if let Some(log) = &self.0 {
            let _ = log.sync_data();
        }
    }
}

/// Calls `is_there` for each page of memory, until it is not.
fn touch(written: i64, pages: i64, mut is_there: impl FnMut(u64) -> bool) {
    let first = end_of(written) / STRIDE;
    let end = end_of(written.saturating_add(pages)).div_ceil(STRIDE);
    for page in first..end {
        if !is_there(page * STRIDE) {
            return;
        }
    }
}

/// Where the log ends that has so many pages.
fn end_of(pages: i64) -> u64 {
    let pages = u64::try_from(pages).unwrap_or_default();
    LOG_HEADER.saturating_add(pages.saturating_mul(FRAME_HEADER + PAGE))
}

#[cfg(test)]
mod tests {
    use super::super::super::{Durability, schema};
    use super::*;

    #[test]
    fn every_page_of_memory_is_looked_at_up_to_the_end() {
        let looked = |written, pages, end: u64| {
            let mut seen = Vec::new();
            touch(written, pages, |offset| {
                seen.push(offset);
                offset < end
            });
            seen
        };
        // Two frames behind the first three, so the bytes from 12 392 to 20 632.
        assert_eq!(looked(3, 2, u64::MAX), [12_288, 16_384, 20_480]);
        // The log is not as long as it may become.
        assert_eq!(looked(0, 1_000_000, 10_000).len(), 4);
        assert_eq!(looked(1_000_000, 10, 0).len(), 1, "far behind the end");
        assert_eq!(looked(i64::MAX, i64::MAX, 0).len(), 1);
    }

    #[test]
    fn the_log_is_found_beside_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let _writer = schema::open_writer(&path, Durability::Process).unwrap();
        let checkpointer = schema::open_checkpointer(&path, Durability::Process).unwrap();
        let LogFile(log) = LogFile::of(&checkpointer);
        let log = log.expect("the log");
        assert_eq!(log.metadata().unwrap().len(), end_of_log(&checkpointer));
    }

    /// As SQLite says.
    fn end_of_log(db: &Connection) -> u64 {
        let pages = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1)).unwrap();
        end_of(pages)
    }
}
