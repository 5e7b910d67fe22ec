//! The tasks that have an actor in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_model::{Error, ErrorKind, Seq, TaskId};
use tokio_util::sync::CancellationToken;

use crate::actor_request::{ActorRequest, INBOX_CAPACITY};
use crate::live::LiveLog;
use crate::queue;
use crate::unfinished::{CountedBytes, UnfinishedSlot};

#[derive(Debug)]
pub(crate) struct Registry {
    by_task: Mutex<HashMap<TaskId, Live>>,
    stopping: CancellationToken,
}

#[derive(Debug)]
struct Live {
    log: Arc<LiveLog>,
    inbox: queue::Sender<ActorRequest>,
}

/// Keeps the actor of a task registered until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    log: Arc<LiveLog>,
    /// The task's slot among the unfinished tasks. `None`: a child task, which is not counted.
    counted: Option<UnfinishedSlot>,
}

/// The parts that the actor of a registered task needs.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) registration: Registration,
    pub(crate) live: Arc<LiveLog>,
    pub(crate) inbox: queue::Receiver<ActorRequest>,
}

impl Registry {
    pub(crate) fn new(stopping: CancellationToken) -> Self {
        Self { by_task: Mutex::default(), stopping }
    }

    /// Registers a task. `head` is the head of its log.
    pub(crate) fn register(
        self: &Arc<Self>,
        counted: Option<UnfinishedSlot>,
        task: TaskId,
        head: Seq,
    ) -> Registered {
        let log = Arc::new(LiveLog::new(task.clone(), head));
        let (sender, inbox) = queue::channel(INBOX_CAPACITY);
        let registration = Registration { registry: Arc::clone(self), log: Arc::clone(&log), counted };
        self.lock().insert(task, Live { log: Arc::clone(&log), inbox: sender });
        Registered { registration, live: log, inbox }
    }

    pub(crate) fn log(&self, task: &TaskId) -> Option<Arc<LiveLog>> {
        self.lock().get(task).map(|live| Arc::clone(&live.log))
    }

    pub(crate) fn inbox(&self, task: &TaskId) -> Option<queue::Sender<ActorRequest>> {
        self.lock().get(task).map(|live| live.inbox.clone())
    }

    /// The error for an unfinished task that has no actor.
    pub(crate) fn no_actor(&self) -> Error {
        if self.stopping.is_cancelled() {
            Error::new(
                ErrorKind::Unavailable,
                "The gateway is shutting down; reconnect with the last event id to go on.",
            )
        } else {
            let text = "The gateway stopped working on this task; the gateway's log says why. The next start resumes the task.";
            Error::new(ErrorKind::Internal, text)
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Live>> {
        self.by_task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// The counted bytes of the task. `None`: a child task, which has no slot.
    pub(crate) fn bytes(&self) -> Option<Arc<CountedBytes>> {
        self.counted.as_ref().map(UnfinishedSlot::bytes)
    }
}

impl Drop for Registration {
    /// Unregisters the actor, unless another actor has registered the task since, and closes the log for its readers.
    fn drop(&mut self) {
        let mut by_task = self.registry.lock();
        if by_task.get(self.log.task()).is_some_and(|live| Arc::ptr_eq(&live.log, &self.log)) {
            by_task.remove(self.log.task());
        }
        drop(by_task);
        self.log.close();
    }
}
