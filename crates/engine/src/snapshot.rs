//! A task as of one event of its log.

use longshore_model::{Epoch, EventId, Seq, Task};

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
