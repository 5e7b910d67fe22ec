//! The newest events of a task that is not over, kept in memory for the readers that keep up.
//!
//! A reader that falls behind the tail reads the store instead: it is late, never broken, and costs no memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{Entry, Epoch, Seq, TaskEvent, TaskId};
use tokio::sync::watch;

use crate::log_entry::LogEntry;

/// How many events the tail holds. Older ones are read from the store. Small, because there is one tail for each
/// live task; as many as one append, so that a reader at the head finds the whole of it here.
pub(crate) const TAIL: usize = 64;

/// How many bytes of content the tail holds, beside its newest event. Older events are read from the store.
const TAIL_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct LiveLog {
    task: TaskId,
    tail: Mutex<Tail>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Tail {
    entries: VecDeque<Arc<LogEntry>>,
    bytes: usize,
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
        Self { task, tail: Mutex::default(), progress: watch::Sender::new(Progress { head, closed: false }) }
    }

    pub(crate) fn task(&self) -> &TaskId {
        &self.task
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Shows readers events that the store has made durable. `first` is the number of the first.
    pub(crate) fn publish(&self, first: Seq, epoch: Epoch, events: Vec<TaskEvent>) {
        let mut head = first;
        {
            let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
            for (offset, event) in events.into_iter().enumerate() {
                head = first.plus(offset);
                tail.push(Entry { seq: head, epoch, event });
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
        match tail.entries.front() {
            Some(oldest) if oldest.entry.seq <= cursor.next() => {
                let skip = usize::try_from(cursor.next().0 - oldest.entry.seq.0).unwrap_or(usize::MAX);
                Found::Entries(tail.entries.iter().skip(skip).take(limit).map(Arc::clone).collect())
            }
            _ => Found::InStore,
        }
    }
}

impl Tail {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.event.weight();
        self.entries.push_back(Arc::new(LogEntry::new(entry)));
        while self.entries.len() > TAIL || (self.bytes > TAIL_BYTES && self.entries.len() > 1) {
            if let Some(oldest) = self.entries.pop_front() {
                self.bytes -= oldest.entry.event.weight();
            }
        }
    }
}
