//! The tasks that have an owner in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{Error, ErrorKind, Principal, TaskId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::actor::Inbox;
use crate::live::LiveLog;

#[derive(Debug)]
pub(crate) struct Registry {
    owned: Mutex<Owned>,
    stopping: CancellationToken,
}

#[derive(Debug, Default)]
struct Owned {
    by_task: HashMap<TaskId, Live>,
    unfinished: HashMap<Principal, usize>,
}

#[derive(Debug)]
struct Live {
    /// Whose number of unfinished tasks this one is in. `None`: the work of a sub-agent, which is in nobody's.
    counted: Option<Principal>,
    log: Arc<LiveLog>,
    inbox: mpsc::Sender<Inbox>,
}

/// Says that a task has an owner, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    task: TaskId,
}

impl Registry {
    pub(crate) fn new(stopping: CancellationToken) -> Self {
        Self { owned: Mutex::default(), stopping }
    }

    pub(crate) fn insert(
        self: &Arc<Self>,
        counted: Option<Principal>,
        log: Arc<LiveLog>,
        inbox: mpsc::Sender<Inbox>,
    ) -> Registration {
        let task = log.task().clone();
        let mut live = self.lock();
        if let Some(owner) = &counted {
            *live.unfinished.entry(owner.clone()).or_default() += 1;
        }
        live.by_task.insert(task.clone(), Live { counted, log, inbox });
        Registration { registry: Arc::clone(self), task }
    }

    pub(crate) fn log(&self, task: &TaskId) -> Option<Arc<LiveLog>> {
        self.lock().by_task.get(task).map(|live| Arc::clone(&live.log))
    }

    pub(crate) fn inbox(&self, task: &TaskId) -> Option<mpsc::Sender<Inbox>> {
        self.lock().by_task.get(task).map(|live| live.inbox.clone())
    }

    /// How many tasks of a principal have an owner.
    pub(crate) fn unfinished(&self, owner: &Principal) -> usize {
        self.lock().unfinished.get(owner).copied().unwrap_or(0)
    }

    /// Why a task that is not over has no owner.
    pub(crate) fn no_owner(&self) -> Error {
        if self.stopping.is_cancelled() {
            Error::new(
                ErrorKind::Unavailable,
                "The gateway is shutting down; come back with the last event id to go on.",
            )
        } else {
            let text =
                "The gateway lost hold of this task; its log says why. The next start takes it up again.";
            Error::new(ErrorKind::Internal, text)
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    /// Readers that have the log see that it is closed.
    fn drop(&mut self) {
        let mut tasks = self.registry.lock();
        let Some(Live { counted, log, .. }) = tasks.by_task.remove(&self.task) else { return };
        if let Some(owner) = counted
            && let Some(count) = tasks.unfinished.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                tasks.unfinished.remove(&owner);
            }
        }
        drop(tasks);
        log.close();
    }
}
