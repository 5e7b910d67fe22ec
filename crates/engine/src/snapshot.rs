//! A task as of one event of its log.

use longshore_model::{Epoch, Error, EventId, Result, Seq, Task, TaskEvent, TaskId};

use crate::port::StoredTask;

/// A task as of an event.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub task: Task,
    pub seq: Seq,
    /// The epoch in which that event was written.
    pub epoch: Epoch,
}

impl Snapshot {
    /// The task as of its first event.
    pub(crate) fn first(task: TaskId, first: &TaskEvent, epoch: Epoch) -> Result<Self> {
        let task = Task::begin(task, first);
        let task = task.ok_or_else(|| Error::internal("the first event of a log creates no task"))?;
        Ok(Self { task, seq: Seq::START.next(), epoch })
    }

    /// The id of the event.
    pub fn id(&self) -> EventId {
        EventId::new(self.seq, self.epoch)
    }
}

impl From<StoredTask> for Snapshot {
    fn from(stored: StoredTask) -> Self {
        Self { task: stored.task, seq: stored.seq, epoch: stored.epoch }
    }
}
