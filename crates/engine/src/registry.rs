//! The tasks that have an owner in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::TaskId;
use tokio::sync::mpsc;

use crate::actor::Inbox;
use crate::live::LiveLog;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    owned: Mutex<HashMap<TaskId, Owned>>,
}

#[derive(Clone, Debug)]
struct Owned {
    log: Arc<LiveLog>,
    inbox: mpsc::Sender<Inbox>,
}

impl Registry {
    pub(crate) fn insert(&self, log: Arc<LiveLog>, inbox: mpsc::Sender<Inbox>) {
        self.lock().insert(log.task().clone(), Owned { log, inbox });
    }

    /// The task has no owner any more. Readers that have its log see that it is closed.
    pub(crate) fn remove(&self, task: &TaskId) {
        if let Some(owned) = self.lock().remove(task) {
            owned.log.close();
        }
    }

    pub(crate) fn log(&self, task: &TaskId) -> Option<Arc<LiveLog>> {
        self.lock().get(task).map(|owned| Arc::clone(&owned.log))
    }

    pub(crate) fn inbox(&self, task: &TaskId) -> Option<mpsc::Sender<Inbox>> {
        self.lock().get(task).map(|owned| owned.inbox.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Owned>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
