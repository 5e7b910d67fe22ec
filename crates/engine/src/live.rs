//! The newest events of a task that is not over, kept in memory for the readers that keep up.
//!
//! A reader that falls behind the tail reads the store instead: it is late, never broken, and costs no memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{Epoch, Part, Principal, Seq, Task, TaskEvent, TaskId};
use tokio::sync::Notify;

use crate::log_entry::{Entries, Events};
use crate::service::Snapshot;

/// How many bytes of events the tail holds, beside its newest append, which it holds whole: so a reader at the head finds
/// what it needs here, and one that is further behind reads the store. Small, because there is one tail for each live task.
const TAIL_BYTES: usize = 8 * 1024;

/// About what an entry costs beside its content and one encoded form of that.
const ENTRY_BYTES: usize = 600;

/// The largest task of which a copy is kept for those who ask for it, by its content. A larger one is read from the store.
/// Small, because it is kept for as long as any reader has the log, also one that has stopped reading.
const SNAPSHOT_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct LiveLog {
    task: TaskId,
    state: Mutex<State>,
    /// Told after each change.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// What the newest appends brought, oldest first.
    tail: VecDeque<Events>,
    tail_bytes: usize,
    progress: Progress,
    snapshot: Option<Kept>,
}

/// The task as of the head of its log.
#[derive(Debug)]
struct Kept {
    owner: Principal,
    task: Arc<Task>,
    id: (Seq, Epoch),
}

/// How far the log has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub(crate) head: Seq,
    /// Nobody will write any more.
    pub(crate) is_closed: bool,
    /// There is a reason for which nothing may come for long.
    pub(crate) is_excused: bool,
}

/// What a reader finds behind its cursor.
#[derive(Debug)]
pub(crate) enum Found {
    Entries(Entries),
    /// The cursor is at the head.
    Nothing,
    /// The same, and nobody will write any more.
    Closed,
    /// The events are no longer (or not yet) in memory.
    InStore,
}

impl LiveLog {
    pub(crate) fn new(task: TaskId, head: Seq) -> Self {
        let progress = Progress { head, is_closed: false, is_excused: true };
        let state = State { tail: VecDeque::new(), tail_bytes: 0, progress, snapshot: None };
        Self { task, state: Mutex::new(state), changed: Notify::new() }
    }

    pub(crate) fn task(&self) -> &TaskId {
        &self.task
    }

    pub(crate) fn progress(&self) -> Progress {
        self.state().progress
    }

    /// Waits until there is something behind the cursor, or nobody writes any more.
    pub(crate) async fn grows_behind(&self, cursor: Seq) {
        loop {
            // Made before the look, so that nothing is missed between the two.
            let changed = self.changed.notified();
            let now = self.progress();
            if now.head > cursor || now.is_closed {
                return;
            }
            changed.await;
        }
    }

    /// Shows readers events that the store has made durable.
    pub(crate) fn publish(&self, events: Events, is_excused: bool) {
        self.publish_with(events, is_excused, None);
    }

    /// The same, with the task as of the last of these events, and whose it is. Kept until more comes, if it is small.
    pub(crate) fn publish_with(
        &self,
        events: Events,
        is_excused: bool,
        snapshot: Option<(Principal, Arc<Task>)>,
    ) {
        if let Some(last) = events.entries().last().map(|last| (last.entry.seq, last.entry.epoch)) {
            let snapshot = snapshot.filter(|(_, task)| weight_of(task) <= SNAPSHOT_BYTES);
            let mut state = self.state();
            state.push(events);
            (state.progress.head, state.progress.is_excused) = (last.0, is_excused);
            let before = std::mem::replace(
                &mut state.snapshot,
                snapshot.map(|(owner, task)| Kept { owner, task, id: last }),
            );
            drop(state);
            drop(before);
        }
        self.changed.notify_waiters();
    }

    /// More is about to be durable, and shows in the store before it is published: what is kept would be older than that.
    pub(crate) fn forget_snapshot(&self) {
        let before = self.state().snapshot.take();
        drop(before);
    }

    /// The task as of the head of the log, if it is kept and is the caller's.
    pub(crate) fn snapshot(&self, caller: &Principal) -> Option<Snapshot> {
        let (task, (seq, epoch)) = {
            let state = self.state();
            let kept = state.snapshot.as_ref().filter(|kept| kept.owner == *caller)?;
            (Arc::clone(&kept.task), kept.id)
        };
        Some(Snapshot { task: Arc::unwrap_or_clone(task), seq, epoch })
    }

    /// Nobody will write any more: readers that have reached the head are done.
    pub(crate) fn close(&self) {
        self.state().progress.is_closed = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn after(&self, cursor: Seq) -> Found {
        let state = self.state();
        let Progress { head, is_closed, .. } = state.progress;
        if cursor >= head {
            return if is_closed { Found::Closed } else { Found::Nothing };
        }
        // Nearly always in the newest append.
        let place = state.tail.iter().rposition(|events| first_of(events) <= cursor.next());
        let Some(place) = place else { return Found::InStore };
        let mut behind = state.tail.iter().skip(place).cloned();
        let Some(first) = behind.next() else { return Found::InStore };
        let taken = usize::try_from(cursor.next().0 - first_of(&first).0).unwrap_or(usize::MAX);
        Found::Entries(Entries::new(first, taken, behind.collect()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, events: Events) {
        self.tail_bytes += bytes_of(&events);
        self.tail.push_back(events);
        while self.tail_bytes > TAIL_BYTES
            && self.tail.len() > 1
            && let Some(oldest) = self.tail.pop_front()
        {
            self.tail_bytes -= bytes_of(&oldest);
        }
    }
}

/// About how many bytes of content the task holds.
fn weight_of(task: &Task) -> usize {
    let messages = task.history.iter().chain(&task.status.message).flat_map(|message| &message.parts);
    let artifacts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    messages.chain(artifacts).map(Part::weight).sum()
}

fn first_of(events: &Events) -> Seq {
    events.entries().first().map_or(Seq::START, |first| first.entry.seq)
}

fn bytes_of(events: &Events) -> usize {
    // The content is there twice: once more in the form in which readers get it.
    events.iter().map(|event| ENTRY_BYTES + 2 * TaskEvent::weight(event)).sum()
}

#[cfg(test)]
mod tests;
