//! What is folded and removed of what is over.

use longshore_engine::port::{Retained, Retention};
use longshore_model::{TaskId, Timestamp};

use super::{Kept, Row};
use crate::rules;

/// So many tasks in one step: for that long nobody else has the store.
const STEP: usize = 64;

impl Row {
    fn was_over_before(&self, moment: Timestamp) -> bool {
        self.state().is_terminal() && self.task.status.at < moment
    }

    /// Keeps the last event only.
    fn fold(&mut self) {
        self.first = self.seq();
        self.log.drain(..self.log.len() - 1);
        self.log.shrink_to_fit();
    }
}

impl Kept {
    pub(super) fn retain(&mut self, retention: &Retention) -> Retained {
        let folded = retention.fold_before.map_or(0, |before| self.fold_before(before));
        let dropped = retention.drop_before.map_or(0, |before| self.drop_before(before));
        self.keys.retain(|_, keys| {
            keys.drop_expired(retention.keys_before, u32::MAX);
            !keys.is_empty()
        });
        self.asks.forget_old(rules::asks_kept_since(retention.now), u32::MAX);
        Retained { folded, dropped, more: folded >= STEP || dropped > 0 }
    }

    fn fold_before(&mut self, before: Timestamp) -> usize {
        let old = self.tasks.values_mut().filter(|row| row.was_over_before(before) && row.log.len() > 1);
        old.take(STEP).map(Row::fold).count()
    }

    fn drop_before(&mut self, before: Timestamp) -> usize {
        let roots =
            self.tasks.values().filter(|row| row.task.parent.is_none() && row.was_over_before(before));
        let old: Vec<TaskId> = roots
            .map(|row| row.task.id.clone())
            .filter(|root| self.below(root).all(|row| row.was_over_before(before)))
            .take(STEP)
            .collect();
        let mut dropped = 0;
        for root in old {
            let below: Vec<TaskId> = self.below(&root).map(|row| row.task.id.clone()).collect();
            for task in below.into_iter().chain([root]) {
                self.drop_task(&task);
                dropped += 1;
            }
        }
        self.created.retain(|task| self.tasks.contains_key(task));
        dropped
    }

    /// The tasks of the sub-agents of a root task.
    fn below<'a>(&'a self, root: &'a TaskId) -> impl Iterator<Item = &'a Row> {
        self.tasks.values().filter(|row| row.task.parent.as_ref().is_some_and(|parent| parent.root == *root))
    }

    fn drop_task(&mut self, id: &TaskId) {
        let Some(Row { owner, task, .. }) = self.tasks.remove(id) else { return };
        self.files.forget_task(id);
        self.asks.forget_task(id);
        if let Some(keys) = self.keys.get_mut(&owner) {
            keys.forget_task(id);
        }
        let is_left = |row: &Row| row.owner == owner && row.task.context_id == task.context_id;
        if !self.tasks.values().any(is_left) {
            self.places.remove(&(owner, task.context_id));
        }
    }
}
