//! Tasks folded up to some event, for the bodies of 0.3. A bounded number of them is kept between leases.
//!
//! A receiver that keeps up gets one lease for each event. Without a kept task, each lease would read the log from its start again.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_model::{Entry, PushConfigId, Seq, Task, TaskId};

/// How many tasks are kept, and about how many bytes. Beyond either, the least recently used tasks are dropped. The next lease of a
/// dropped task reads its log again.
const MAX_TASKS: usize = 256;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// A task in its state after an event.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    pub(crate) at: Seq,
    pub(crate) task: Task,
    /// Whether history and artifacts were dropped because they are too large for a body.
    pub(crate) is_cut: bool,
}

impl Folded {
    /// The task after the first event of its log. `None`: `entry` is not the first event.
    pub(crate) fn begin(task: &TaskId, entry: &Entry, max_body_bytes: usize) -> Option<Self> {
        let task = Task::begin(task.clone(), &entry.event).filter(|_| entry.seq == Seq::START.next())?;
        let mut folded = Self { at: entry.seq, task, is_cut: false };
        folded.cut(max_body_bytes);
        Some(folded)
    }

    /// Applies an event if it is the next one. `max_body_bytes`: the size beyond which history and artifacts are dropped.
    pub(crate) fn add(&mut self, entry: &Entry, max_body_bytes: usize) {
        if entry.seq == self.at.next() {
            self.task.apply(&entry.event);
            self.at = entry.seq;
            self.cut(max_body_bytes);
        }
    }

    /// Whether the task has ended, so that no event can follow.
    pub(crate) fn is_ended(&self) -> bool {
        self.task.status.state.is_terminal()
    }

    fn cut(&mut self, max_body_bytes: usize) {
        if self.task.weight() > max_body_bytes.saturating_mul(2) {
            // Such a task does not fit into any body, so keeping the rest would only take memory.
            (self.task.history, self.task.artifacts, self.is_cut) = (Vec::new(), Vec::new(), true);
        }
    }
}

type Key = (TaskId, PushConfigId);

/// The tasks that are kept between leases.
#[derive(Debug, Default)]
pub(crate) struct FoldedTasks(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The tasks with their sizes in bytes. The most recently used one is at the end.
    tasks: VecDeque<(Key, Folded, usize)>,
    bytes: usize,
}

impl FoldedTasks {
    pub(crate) fn take(&self, task: &TaskId, config: &PushConfigId) -> Option<Folded> {
        let mut kept = self.lock();
        let place = kept.tasks.iter().position(|((of, by), ..)| of == task && by == config)?;
        let (_, folded, bytes) = kept.tasks.remove(place)?;
        kept.bytes -= bytes;
        Some(folded)
    }

    /// Keeps a task, unless its size alone is over the limit.
    pub(crate) fn keep(&self, task: TaskId, config: PushConfigId, folded: Folded) {
        let bytes = folded.task.weight();
        if bytes > MAX_BYTES {
            return;
        }
        let mut kept = self.lock();
        kept.bytes += bytes;
        kept.tasks.push_back(((task, config), folded, bytes));
        while kept.tasks.len() > MAX_TASKS || kept.bytes > MAX_BYTES {
            let Some((.., bytes)) = kept.tasks.pop_front() else { break };
            kept.bytes -= bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::Epoch;
    use longshore_testkit::store_suite::make::{chunk, create};

    use super::*;

    fn entry(seq: u64, event: longshore_model::TaskEvent) -> Entry {
        Entry { seq: Seq(seq), epoch: Epoch(1), event }
    }

    fn folded(text: &str) -> Folded {
        let id = TaskId::parse("t").unwrap();
        let first = entry(1, create("t").first);
        let mut folded = Folded::begin(&id, &first, usize::MAX).unwrap();
        assert!(Folded::begin(&id, &entry(2, chunk("x")), usize::MAX).is_none());
        folded.add(&entry(2, chunk(text)), usize::MAX);
        // Event 4 is not the next one, so it is ignored.
        folded.add(&entry(4, chunk(text)), usize::MAX);
        assert_eq!(folded.at, Seq(2));
        folded
    }

    fn id(number: usize) -> PushConfigId {
        PushConfigId::parse(&format!("c{number}")).unwrap()
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_bytes() {
        let task = TaskId::parse("t").unwrap();
        let there =
            |kept: &FoldedTasks, most| (0..most).filter(|n| kept.take(&task, &id(*n)).is_some()).count();
        let kept = FoldedTasks::default();
        for number in 0..MAX_TASKS + 7 {
            kept.keep(task.clone(), id(number), folded("x"));
        }
        assert!(kept.take(&task, &id(6)).is_none() && kept.take(&task, &id(7)).is_some());
        assert_eq!(there(&kept, MAX_TASKS + 7), MAX_TASKS - 1);
        assert_eq!(kept.lock().bytes, 0);

        let large = folded(&"x".repeat(1024 * 1024));
        for number in 0..20 {
            kept.keep(task.clone(), id(number), large.clone());
        }
        let bytes = kept.lock().bytes;
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&bytes), "{bytes}");
        assert!(there(&kept, 20) >= 7);

        kept.keep(task.clone(), id(0), folded("x"));
        kept.keep(task.clone(), id(1), folded(&"x".repeat(MAX_BYTES + 1)));
        assert!(kept.take(&task, &id(0)).is_some() && kept.take(&task, &id(1)).is_none());
    }

    #[test]
    fn a_task_that_no_body_has_room_for_is_cut() {
        let mut folded = folded("x");
        folded.add(&entry(3, chunk(&"x".repeat(500))), 100);
        assert!(folded.is_cut && folded.task.artifacts.is_empty());
    }
}
