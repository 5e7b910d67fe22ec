//! The newest events of a task that is not over, kept in memory for the readers that keep up.
//!
//! A reader that falls behind the tail reads the store instead: it is late, never broken, and costs no memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{Entry, Seq, TaskEvent, TaskId};
use tokio::sync::watch;

use crate::log_entry::LogEntry;

/// How many events the tail holds. Older ones are read from the store. Small, because there is one tail for each
/// live task, and a reader that is awake is rarely more than a batch behind.
const TAIL: usize = 32;

#[derive(Debug)]
pub(crate) struct LiveLog {
    task: TaskId,
    tail: Mutex<VecDeque<Arc<LogEntry>>>,
    progress: watch::Sender<Progress>,
}

/// How far the log has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) head: Seq,
    /// Nobody will write any more.
    pub(crate) closed: bool,
}

/// What a reader finds behind its cursor.
#[derive(Debug)]
pub(crate) enum Found {
    Entries(Vec<Arc<LogEntry>>),
    /// The cursor is at the head.
    Nothing,
    /// The events are no longer (or not yet) in memory.
    InStore,
}

impl LiveLog {
    pub(crate) fn new(task: TaskId, head: Seq) -> Self {
        Self {
            task,
            tail: Mutex::new(VecDeque::new()),
            progress: watch::Sender::new(Progress { head, closed: false }),
        }
    }

    pub(crate) fn task(&self) -> &TaskId {
        &self.task
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Shows readers events that the store has made durable. `first` is the number of the first.
    pub(crate) fn publish(&self, first: Seq, events: Vec<TaskEvent>) {
        let mut head = first;
        {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            for (offset, event) in events.into_iter().enumerate() {
                head = first.plus(offset);
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(Arc::new(LogEntry::new(Entry { seq: head, event })));
            }
        }
        self.progress.send_modify(|progress| progress.head = head);
    }

    /// Nobody will write any more: readers that have reached the head are done.
    pub(crate) fn close(&self) {
        self.progress.send_modify(|progress| progress.closed = true);
    }

    pub(crate) fn after(&self, cursor: Seq, limit: usize) -> Found {
        if cursor >= self.progress.borrow().head {
            return Found::Nothing;
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        match tail.front() {
            Some(oldest) if oldest.entry.seq <= cursor.next() => {
                let skip = usize::try_from(cursor.next().0 - oldest.entry.seq.0).unwrap_or(usize::MAX);
                Found::Entries(tail.iter().skip(skip).take(limit).map(Arc::clone).collect())
            }
            _ => Found::InStore,
        }
    }
}
