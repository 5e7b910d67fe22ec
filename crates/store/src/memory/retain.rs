//! Retention: folds the logs of finished tasks and removes old data.

use std::collections::BTreeSet;

use longshore_engine::port::{Retention, RetentionStep};
use longshore_model::{TaskId, Timestamp};

use super::state::{Row, State};
use crate::rules;

/// One step folds at most this many tasks. It also removes at most this many task trees, idempotency keys and asks each. The number
/// is small because the store is locked during a step.
const STEP: u32 = 64;

/// The ended tasks, ordered by the time of their end, so that a step visits only the tasks that it folds or removes.
#[derive(Default)]
pub(super) struct EndedTasks {
    /// Ended tasks whose log is not folded yet.
    unfolded: BTreeSet<(Timestamp, TaskId)>,
    /// The roots of the trees in which all tasks have ended, by the time of the last end.
    trees: BTreeSet<(Timestamp, TaskId)>,
}

impl Row {
    /// Removes all events of the log except the last one. Returns how many bytes were removed.
    fn fold(&mut self) -> u64 {
        self.first = self.seq();
        let bytes = self.log.drain(..self.log.len() - 1).map(|entry| entry.event.weight() as u64).sum();
        self.log.shrink_to_fit();
        bytes
    }
}

impl State {
    pub(super) fn retain(&mut self, retention: &Retention) -> RetentionStep {
        let folded = retention.fold_before.map_or(0, |before| self.fold_before(before));
        let dropped = retention.drop_before.map_or(0, |before| self.drop_before(before));
        let keys = self.drop_keys_before(retention.keys_before);
        let asks = self.asks.forget_old(rules::asks_kept_since(retention.now), STEP);
        RetentionStep { folded, dropped, more: folded + dropped > 0 || keys + asks > 0 }
    }

    /// Records that a task has ended.
    pub(super) fn note_end(&mut self, id: &TaskId) {
        let Some(row) = self.tasks.get(id) else { return };
        let root = row.task.parent.as_ref().map_or(id, |parent| &parent.root).clone();
        self.ended.unfolded.insert((row.task.status.at, id.clone()));
        if let Some(at) = self.end_of_tree(&root) {
            self.ended.trees.insert((at, root));
        }
    }

    /// Call this before a task is added to the tree of `root`, because the tree then no longer counts as ended.
    pub(super) fn note_growth(&mut self, root: &TaskId) {
        if let Some(at) = self.end_of_tree(root) {
            self.ended.trees.remove(&(at, root.clone()));
        }
    }

    /// The time when the last task of a tree ended. `None`: some task has not ended.
    fn end_of_tree(&self, root: &TaskId) -> Option<Timestamp> {
        let descendants = self.descendants.get(root).into_iter().flatten();
        let ends = self
            .rows_of(descendants.chain([root]))
            .map(|row| row.state().is_terminal().then_some(row.task.status.at));
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn fold_before(&mut self, before: Timestamp) -> usize {
        let mut folded = 0;
        while folded < STEP as usize
            && let Some(id) = take_before(&mut self.ended.unfolded, before)
        {
            if let Some(row) = self.tasks.get_mut(&id) {
                let bytes = row.fold();
                self.bytes.subtract(row, bytes);
                folded += 1;
            }
        }
        folded
    }

    fn drop_before(&mut self, before: Timestamp) -> usize {
        let mut dropped = 0;
        while dropped < STEP as usize
            && let Some(root) = take_before(&mut self.ended.trees, before)
        {
            for task in self.descendants.remove(&root).into_iter().flatten().chain([root]) {
                self.drop_task(&task);
                dropped += 1;
            }
        }
        dropped
    }

    fn drop_task(&mut self, id: &TaskId) {
        let Some(mut row) = self.tasks.remove(id) else { return };
        let bytes = row.bytes;
        self.bytes.subtract(&mut row, bytes);
        self.created.remove(&row.number);
        self.ended.unfolded.remove(&(row.task.status.at, id.clone()));
        self.push.forget_task(id);
        self.calls.forget_task(id);
        for file in &row.files {
            self.files.forget(file);
        }
        for ask in &row.asks {
            self.asks.forget(ask, id);
        }
        if let Some(keys) = self.keys.get_mut(&row.owner) {
            for digest in &row.keys {
                keys.remove(digest, id);
            }
        }
        if let Some(turn) = &row.turn {
            self.sessions.drop_turn(turn, row.number);
        }
        let context = (row.owner, row.task.context_id);
        let Some(known) = self.contexts.get_mut(&context) else { return };
        known.tasks -= 1;
        if known.tasks == 0 {
            if let Some(bound) = &known.location.bound {
                self.sessions.unbind(&bound.session.id, &context.1, known.bound_at);
            }
            self.contexts.remove(&context);
            self.approvals.forget_context(&context.0, &context.1);
        }
    }

    fn drop_keys_before(&mut self, before: Timestamp) -> u32 {
        let mut dropped = 0;
        self.keys.retain(|_, keys| {
            dropped += keys.drop_expired(before, STEP - dropped);
            !keys.is_empty()
        });
        dropped
    }
}

/// Removes and returns the oldest entry, if it is from before this time.
fn take_before(set: &mut BTreeSet<(Timestamp, TaskId)>, before: Timestamp) -> Option<TaskId> {
    set.first().filter(|(at, _)| *at < before)?;
    set.pop_first().map(|(_, id)| id)
}

#[cfg(test)]
mod tests;
