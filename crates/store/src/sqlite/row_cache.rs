//! A cache of the rows of tasks that were appended to. It saves the write connection a read of the file.

use std::collections::HashMap;

use longshore_model::{Seq, TaskId};

use super::record::Batch;

/// The most cached rows. One more clears the cache.
const MAX_CACHED_ROWS: usize = 4096;

#[derive(Default)]
pub(super) struct RowCache {
    known: HashMap<TaskId, CachedRow>,
    /// Counts the operations that may have changed any task.
    changes: u64,
}

struct CachedRow {
    ordinal: i64,
    head: Seq,
    /// The value of [`RowCache::changes`] when this row was cached.
    changes: u64,
}

impl RowCache {
    /// Caches the row and the log's head of an unfinished task. If the caller's transaction is rolled back, the caller must call
    /// [`note_change`](Self::note_change).
    pub(super) fn remember(&mut self, task: &TaskId, ordinal: i64, head: Seq) {
        let row = CachedRow { ordinal, head, changes: self.changes };
        if let Some(known) = self.known.get_mut(task) {
            *known = row;
            return;
        }
        if self.known.len() >= MAX_CACHED_ROWS {
            self.known.clear();
        }
        self.known.insert(task.clone(), row);
    }

    /// Removes a task that has ended.
    pub(super) fn forget(&mut self, task: &TaskId) {
        self.known.remove(task);
    }

    /// Call this after any operation other than an append, and after an append was undone. The cached ordinals stay usable; the
    /// cached heads do not.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// The ordinal of the task's row. The task may have been removed and the ordinal reused, so the caller must compare the id in
    /// the row.
    pub(super) fn ordinal(&self, task: &TaskId) -> Option<i64> {
        self.known.get(task).map(|row| row.ordinal)
    }

    /// The ordinal of the batch's task, if the cache proves that the task exists, has not ended, and has the head that the batch
    /// expects.
    pub(super) fn ordinal_if_current(&self, batch: &Batch) -> Option<i64> {
        let row = self.known.get(&batch.task)?;
        (row.changes == self.changes && row.head == batch.expected).then_some(row.ordinal)
    }
}
