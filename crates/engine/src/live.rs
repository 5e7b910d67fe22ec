//! The live log: the newest events of an unfinished task, kept in memory for the readers that keep up.
//!
//! The live log drops the events that all readers have received. A reader that falls behind reads the store instead: it
//! misses no event and costs no memory.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{Epoch, Principal, Seq, Task, TaskEvent, TaskId};
use tokio::sync::Notify;

use crate::log_entry::{Entries, Events};
use crate::snapshot::Snapshot;

/// How many bytes of events the tail keeps for readers that have not received them. The newest append is kept even if it is
/// larger, so a reader that keeps up always finds its events here. (If the log has only one reader, the append is dropped as
/// soon as that reader has it.) A reader further behind reads the store. The number is small because each live task has a
/// tail.
const TAIL_BYTES: usize = 8 * 1024;

/// How many bytes of events stay in the tail when every reader has them, for a reader that is just starting.
const SPARE_BYTES: usize = 1024;

/// The cursor of a reader that was dropped.
const GONE: Seq = Seq(u64::MAX);

/// The approximate memory of an entry in bytes, without its content and the encoded form of its content.
const ENTRY_BYTES: usize = 600;

/// The largest task content of which a copy is kept for [`LiveLog::snapshot`]. A larger task is read from the store. The
/// limit is small because the copy is kept as long as any reader holds the log, even a reader that has stopped reading.
const SNAPSHOT_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct LiveLog {
    task: TaskId,
    state: Mutex<State>,
    /// Notified after each change.
    changed: Notify,
}

/// A reader's registration with a log. The tail keeps the events that this reader has not received, up to its size limit.
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
    /// The cursor of each reader, by the reader's slot.
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

/// The state of the log, for readers that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) head: Seq,
    /// No more events will be written.
    pub(crate) is_closed: bool,
    /// Whether a long time without events is normal, for example because an ask is open.
    pub(crate) is_silence_expected: bool,
}

/// The result of looking for events after a reader's cursor.
#[derive(Debug)]
pub(crate) enum Found {
    Entries(Entries),
    /// The cursor is at the head of the log.
    Nothing,
    /// The cursor is at the head of the log, and no more events will be written.
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

    /// Adds a reader that already has all events up to `cursor`.
    pub(crate) fn follow(self: Arc<Self>, cursor: Seq) -> Follower {
        let mut state = self.state();
        let free = state.cursors.iter().position(|cursor| *cursor == GONE);
        let slot = free.unwrap_or(state.cursors.len());
        if free.is_some() {
            state.cursors[slot] = cursor;
        } else {
            // Most logs have a single reader.
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

    /// Waits until there are events after the cursor, or until no more events will be written.
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

    /// Like [`LiveLog::publish`], with the owner and the task as of the last of these events. A small task is kept until the
    /// next append.
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

    /// Drops the kept task; called before an append. The store shows the new events before the live log publishes them, so the
    /// kept task would be older than what callers can read in the store.
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

    /// The task as of the head of the log. `None`: no copy is kept, or the caller does not own the task.
    pub(crate) fn snapshot(&self, caller: &Principal) -> Option<Snapshot> {
        let (task, (seq, epoch)) = {
            let state = self.state();
            let kept = state.snapshot.as_ref().filter(|kept| kept.owner == *caller)?;
            (Arc::clone(&kept.task), kept.id)
        };
        Some(Snapshot { task: Arc::unwrap_or_clone(task), seq, epoch })
    }

    /// Marks the log as complete: no more events will be written, so readers at the head are done.
    pub(crate) fn close(&self) {
        self.state().progress.is_closed = true;
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower {
    /// The events after the cursor. Also tells the log that the reader has all events up to the cursor.
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
        // The search starts at the newest append, where the cursor nearly always is.
        let index = self.tail.iter().rposition(|events| first_of(events) <= cursor.next());
        let Some(index) = index else { return Found::InStore };
        let mut behind = self.tail.iter().skip(index).cloned();
        let Some(first) = behind.next() else { return Found::InStore };
        let taken = usize::try_from(cursor.next().0 - first_of(&first).0).unwrap_or(usize::MAX);
        Found::Entries(Entries::new(first, taken, behind.collect()))
    }

    /// Drops all events if the only reader has received them. Most logs have one reader, which is at the head most of the time.
    /// With more readers this does nothing: each reader would have to check all the others, and the next append drops what all
    /// have received anyway.
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
    // Twice the content, because the encoded form for readers holds the content once more.
    events.iter().map(|event| ENTRY_BYTES + 2 * TaskEvent::weight(event)).sum()
}

#[cfg(test)]
mod tests;
