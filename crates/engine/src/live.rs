//! The newest events of an unfinished task, kept in memory for the readers that keep up.
//!
//! Events that all readers have taken are dropped. A reader that falls behind the tail reads the store instead: it is late,
//! never broken, and costs no memory.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{Epoch, Principal, Seq, Task, TaskEvent, TaskId};
use tokio::sync::Notify;

use crate::log_entry::{Entries, Events};
use crate::snapshot::Snapshot;

/// How many bytes of events the tail keeps for readers that have not taken them. The newest append always stays, even if it
/// is larger, so a reader that keeps up finds its events here. (If the log has only one reader, the append is dropped when
/// that reader has it.) A reader that is further behind reads the store. The number is small because each live task has a
/// tail.
const TAIL_BYTES: usize = 8 * 1024;

/// How many bytes stay when every reader has them, for a reader that is just starting.
const SPARE_BYTES: usize = 1024;

/// The cursor of a reader that is gone.
const GONE: Seq = Seq(u64::MAX);

/// The approximate memory of an entry in bytes, without its content and one encoded form of its content.
const ENTRY_BYTES: usize = 600;

/// The largest content of a task of which a copy is kept for [`LiveLog::snapshot`]. A larger task is read from the store.
/// Small, because the copy is kept for as long as any reader has the log, even one that has stopped reading.
const SNAPSHOT_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct LiveLog {
    task: TaskId,
    state: Mutex<State>,
    /// Notified after each change.
    changed: Notify,
}

/// A reader's hold on a log. While there is one, the events it has not taken stay in the tail, as far as the tail reaches.
#[derive(Debug)]
pub(crate) struct Follower {
    log: Arc<LiveLog>,
    slot: usize,
}

#[derive(Debug)]
struct State {
    /// The newest appends, oldest first.
    tail: VecDeque<Events>,
    tail_bytes: usize,
    /// How far each reader has read, by its slot.
    cursors: Vec<Seq>,
    progress: Progress,
    snapshot: Option<KeptTask>,
}

/// The task as of the head of its log.
#[derive(Debug)]
struct KeptTask {
    owner: Principal,
    task: Arc<Task>,
    id: (Seq, Epoch),
}

/// How far the log has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) head: Seq,
    /// No more events will be written.
    pub(crate) is_closed: bool,
    /// Whether a long time without events is normal, for example because an ask is open.
    pub(crate) is_silence_expected: bool,
}

/// What a reader finds after its cursor.
#[derive(Debug)]
pub(crate) enum Found {
    Entries(Entries),
    /// The cursor is at the head.
    Nothing,
    /// The cursor is at the head, and no more events will be written.
    Closed,
    /// The events are no longer (or not yet) in memory.
    InStore,
}

impl LiveLog {
    pub(crate) fn new(task: TaskId, head: Seq) -> Self {
        let progress = Progress { head, is_closed: false, is_silence_expected: true };
        let (tail, cursors) = (VecDeque::new(), Vec::new());
        let state = State { tail, tail_bytes: 0, cursors, progress, snapshot: None };
        Self { task, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Adds a reader that has taken all events up to `cursor`.
    pub(crate) fn follow(self: Arc<Self>, cursor: Seq) -> Follower {
        let mut state = self.state();
        let free = state.cursors.iter().position(|cursor| *cursor == GONE);
        let slot = free.unwrap_or(state.cursors.len());
        if free.is_some() {
            state.cursors[slot] = cursor;
        } else {
            // Most logs have one reader.
            state.cursors.reserve_exact(1);
            state.cursors.push(cursor);
        }
        drop(state);
        Follower { log: self, slot }
    }

    pub(crate) fn task(&self) -> &TaskId {
        &self.task
    }

    pub(crate) fn progress(&self) -> Progress {
        self.state().progress
    }

    /// Waits until there are events after the cursor, or no more will be written.
    pub(crate) async fn grows_beyond(&self, cursor: Seq) {
        loop {
            // Created before the check, so that no change between the two is missed.
            let changed = self.changed.notified();
            let now = self.progress();
            if now.head > cursor || now.is_closed {
                return;
            }
            changed.await;
        }
    }

    /// Shows readers events that the store has made durable.
    pub(crate) fn publish(&self, events: Events, is_silence_expected: bool) {
        self.publish_with(events, is_silence_expected, None);
    }

    /// Like [`LiveLog::publish`], with the owner and the task as of the last of these events. The task is kept until the
    /// next append, if it is small.
    pub(crate) fn publish_with(
        &self,
        events: Events,
        is_silence_expected: bool,
        snapshot: Option<(Principal, Arc<Task>)>,
    ) {
        if let Some(last) = events.entries().last().map(|last| (last.entry.seq, last.entry.epoch)) {
            let snapshot = snapshot.filter(|(_, task)| task.weight() <= SNAPSHOT_BYTES);
            let mut state = self.state();
            state.push(events);
            (state.progress.head, state.progress.is_silence_expected) = (last.0, is_silence_expected);
            let before = std::mem::replace(
                &mut state.snapshot,
                snapshot.map(|(owner, task)| KeptTask { owner, task, id: last }),
            );
            drop(state);
            drop(before);
        }
        self.changed.notify_waiters();
    }

    /// Called before an append. The store shows the new events before they are published here, so the kept task would be
    /// older than what callers can read there.
    pub(crate) fn forget_snapshot(&self) {
        let before = self.state().snapshot.take();
        drop(before);
    }

    /// Drops everything that readers can also read in the store.
    pub(crate) fn forget_content(&self) {
        let mut state = self.state();
        let kept = (std::mem::take(&mut state.tail), state.snapshot.take());
        state.tail_bytes = 0;
        drop(state);
        drop(kept);
    }

    /// The task as of the head of the log, if it is kept and the caller owns it.
    pub(crate) fn snapshot(&self, caller: &Principal) -> Option<Snapshot> {
        let (task, (seq, epoch)) = {
            let state = self.state();
            let kept = state.snapshot.as_ref().filter(|kept| kept.owner == *caller)?;
            (Arc::clone(&kept.task), kept.id)
        };
        Some(Snapshot { task: Arc::unwrap_or_clone(task), seq, epoch })
    }

    /// No more events will be written: readers that have reached the head are done.
    pub(crate) fn close(&self) {
        self.state().progress.is_closed = true;
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// The events after the cursor; the reader has taken everything up to it.
    pub(crate) fn after(&self, cursor: Seq) -> Found {
        let mut state = self.log.state();
        state.cursors[self.slot] = cursor;
        state.drop_taken_by_sole_reader();
        state.after(cursor)
    }
}

impl Deref for Follower {
    type Target = LiveLog;

    fn deref(&self) -> &LiveLog {
        &self.log
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.state().cursors[self.slot] = GONE;
    }
}

impl State {
    fn after(&self, cursor: Seq) -> Found {
        let Progress { head, is_closed, .. } = self.progress;
        if cursor >= head {
            return if is_closed { Found::Closed } else { Found::Nothing };
        }
        // Searched from the newest append, where the cursor nearly always is.
        let index = self.tail.iter().rposition(|events| first_of(events) <= cursor.next());
        let Some(index) = index else { return Found::InStore };
        let mut behind = self.tail.iter().skip(index).cloned();
        let Some(first) = behind.next() else { return Found::InStore };
        let taken = usize::try_from(cursor.next().0 - first_of(&first).0).unwrap_or(usize::MAX);
        Found::Entries(Entries::new(first, taken, behind.collect()))
    }

    /// Drops all events if the only reader has taken them: most logs have one reader, which is at the head most of the
    /// time. With more readers, each of them would have to check all the others, and the next append drops what all have
    /// taken anyway.
    fn drop_taken_by_sole_reader(&mut self) {
        if let [only] = self.cursors[..]
            && only >= self.progress.head
        {
            self.tail.clear();
            self.tail_bytes = 0;
        }
    }

    fn push(&mut self, events: Events) {
        self.tail_bytes += bytes_of(&events);
        self.tail.push_back(events);
        let taken_by_all = self.cursors.iter().copied().min().unwrap_or(GONE);
        while self.tail.len() > 1
            && let Some(oldest) = self.tail.front()
        {
            let most = if last_of(oldest) <= taken_by_all { SPARE_BYTES } else { TAIL_BYTES };
            if self.tail_bytes <= most {
                break;
            }
            self.tail_bytes -= bytes_of(oldest);
            self.tail.pop_front();
        }
    }
}

fn first_of(events: &Events) -> Seq {
    events.entries().first().map_or(Seq::START, |first| first.entry.seq)
}

fn last_of(events: &Events) -> Seq {
    events.entries().last().map_or(Seq::START, |last| last.entry.seq)
}

fn bytes_of(events: &Events) -> usize {
    // The content is there twice: once more in the encoded form for readers.
    events.iter().map(|event| ENTRY_BYTES + 2 * TaskEvent::weight(event)).sum()
}

#[cfg(test)]
mod tests;
