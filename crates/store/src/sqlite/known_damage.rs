//! The known damage of the file. Reads of damaged tasks are refused, and lists leave these tasks out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{Error, ErrorKind, TaskId};

use super::fault::{Fault, Outcome, damaged};

/// The damage that the last check found, and that reads have found since.
#[derive(Clone, Default)]
pub(super) struct KnownDamage(Arc<Mutex<Damage>>);

/// The damage of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Damage {
    /// The damaged tasks by ordinal.
    pub tasks: BTreeMap<i64, DamagedTask>,
    /// The other findings of SQLite's own check. If there are any, rows of any table may be missing.
    pub structure: Vec<String>,
    /// Whether the id or the owner of a damaged task may be wrong. If so, a task that is not found may be that one.
    pub hides_names: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedTask {
    /// The id of the task. `None`: it cannot be read.
    pub id: Option<TaskId>,
    pub reason: String,
}

impl Damage {
    pub fn is_none(&self) -> bool {
        self.tasks.is_empty() && self.structure.is_empty()
    }
}

impl KnownDamage {
    fn lock(&self) -> MutexGuard<'_, Damage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, damage: Damage) {
        *self.lock() = damage;
    }

    pub(super) fn add(&self, ordinal: i64, task: DamagedTask) {
        self.lock().tasks.insert(ordinal, task);
    }

    /// Whether the task with this id is damaged.
    pub(super) fn names(&self, task: &TaskId) -> bool {
        let known = self.lock();
        // The first condition is the fast path: there is nearly never any damage.
        !known.tasks.is_empty() && known.tasks.values().any(|damaged| damaged.id.as_ref() == Some(task))
    }

    /// Fails if the task is damaged.
    pub(super) fn check(&self, ordinal: i64, task: &TaskId) -> Outcome<()> {
        match self.lock().tasks.get(&ordinal) {
            Some(known) => Err(damaged(&format!("task {task}"), known.reason.clone())),
            None => Ok(()),
        }
    }

    /// Call this for a task that was not found. Fails if it may be a damaged one.
    pub(super) fn check_not_found(&self) -> Outcome<()> {
        if self.lock().hides_names {
            return Err(maybe_lost("the id or the owner of a task"));
        }
        self.check_complete()
    }

    /// Call this before a list is read. Fails if rows may be missing, because the list could then be wrong.
    pub(super) fn check_complete(&self) -> Outcome<()> {
        match self.lock().structure.first() {
            Some(first) => Err(maybe_lost(first)),
            None => Ok(()),
        }
    }

    /// Whether an index of the tasks differs from their rows, so that a query through the index may miss tasks.
    pub(super) fn affects_indexes(&self) -> bool {
        self.lock().hides_names
    }

    /// The ordinals of the damaged tasks, for a condition of a query.
    pub(super) fn ordinals(&self) -> Vec<i64> {
        self.lock().tasks.keys().copied().collect()
    }

    /// A summary for `/health`, without ids and owners.
    pub(super) fn summary(&self) -> Option<String> {
        let known = self.lock();
        let text = match (known.tasks.len(), known.structure.is_empty()) {
            (0, true) => return None,
            (tasks, true) => format!("{tasks} stored tasks are damaged and cannot be read."),
            (tasks, false) => format!("The store's file is damaged; {tasks} damaged tasks are known."),
        };
        Some(format!("{text} The gateway's log names them, and `longshore check` does."))
    }
}

fn maybe_lost(cause: &str) -> Fault {
    let text = "The gateway's store is damaged, and what is asked for may be among what is lost. The operator can restore the store \
                from a backup; `longshore check` names what is damaged, and `longshore repair` keeps what is whole.";
    Error::new(ErrorKind::Internal, text).caused_by(cause.to_owned()).into()
}
