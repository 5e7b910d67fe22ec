//! What the pen remembers of tasks that were appended to, so that it need not ask the file.

use std::collections::HashMap;

use longshore_model::{Seq, TaskId};

use super::record::Batch;

/// So many tasks are remembered. When there are more, all are forgotten.
const KNOWN: usize = 4096;

#[derive(Default)]
pub(super) struct Rows {
    known: HashMap<TaskId, Row>,
    /// How often something was done that may have changed any task.
    changes: u64,
}

struct Row {
    ordinal: i64,
    head: Seq,
    /// How many changes there were when this was so.
    changes: u64,
}

impl Rows {
    /// The task has this row, is not over, and this is the head of its log. Whoever does not commit that notes a change.
    pub(super) fn know(&mut self, task: &TaskId, ordinal: i64, head: Seq) {
        let row = Row { ordinal, head, changes: self.changes };
        if let Some(known) = self.known.get_mut(task) {
            *known = row;
            return;
        }
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(task.clone(), row);
    }

    /// The task is over.
    pub(super) fn forget(&mut self, task: &TaskId) {
        self.known.remove(task);
    }

    /// Something else than appends is done, or what was done is undone. Rows are still found by what is known here, but
    /// where their logs end is not.
    pub(super) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Where the task is. It may be gone by now, and its row be another's: whoever uses this looks at the name in the row.
    pub(super) fn of(&self, task: &TaskId) -> Option<i64> {
        self.known.get(task).map(|row| row.ordinal)
    }

    /// Where the batch's task is, if it is known to be there, not to be over, and to have the head that the batch expects.
    pub(super) fn ready_for(&self, batch: &Batch) -> Option<i64> {
        let row = self.known.get(&batch.task)?;
        (row.changes == self.changes && row.head == batch.expected).then_some(row.ordinal)
    }
}
