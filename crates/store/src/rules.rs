//! What every store decides alike, before it writes anything.
//!
//! What is `Internal` here is a mistake of the gateway, not of a caller, and stands in the log.

mod placing;

use longshore_engine::port::{Append, AskChange, Bound, Claimed, Create, MAX_OWNERS, NewFile, Owned};
use longshore_model::{
    Closed, ContextId, Error, ErrorKind, Interrupt, Principal, Resolution, Result, SessionId, Task,
    TaskEvent, TaskId, TaskState, Timestamp,
};

pub(crate) use placing::{Placement, Wanted, place};

/// A new task takes at most this many keys of its owner with it that no longer count. More wait for the next tasks, so
/// that no task pays for a backlog; as it is more than the one key that a task adds, a backlog shrinks.
pub(crate) const EXPIRED_KEYS: u32 = 16;

/// A new ask takes at most this many old ones with it, for the same reason.
pub(crate) const OLD_ASKS: u32 = 16;

/// A closed ask is kept for a day, in milliseconds: longer than anybody wants to know what became of it.
const ASK_KEPT: i64 = 24 * 60 * 60 * 1000;

/// The task that a `Create` makes.
pub(crate) fn begin(create: &Create) -> Result<Task> {
    let mut task = Task::begin(create.task.clone(), &create.first)
        .ok_or_else(|| Error::internal("a log must begin with `Submitted`"))?;
    if task.context_id != create.context {
        return Err(Error::internal("the first event names another context than the task"));
    }
    if let Some(begun) = &create.begun {
        if begun.working.status().is_none_or(|status| status.state != TaskState::Working) {
            return Err(Error::internal("a turn that runs already must say that it works"));
        }
        task.apply(&begun.working);
    }
    Ok(task)
}

/// Whether a session can become the owner's. `known` is what is known of it.
pub(crate) fn claim(owner: &Principal, known: Option<&Owned>) -> Claimed {
    match known {
        None => Claimed::Now,
        Some(known) if known.owner == *owner => Claimed::Yours,
        Some(_) => Claimed::Others,
    }
}

/// Whether so many sessions may be asked for at once.
pub(crate) fn check_owners(ids: &[SessionId]) -> Result<()> {
    if ids.len() > MAX_OWNERS {
        return Err(Error::internal("the owners of too many sessions are asked for at once"));
    }
    Ok(())
}

/// The root of the tree that a sub-agent's task is to belong to.
pub(crate) struct Root {
    pub(crate) owner: Principal,
    pub(crate) context: ContextId,
    /// It is a sub-agent's itself.
    pub(crate) is_child: bool,
}

/// Whether a sub-agent's task of `owner` in `context` may belong to this root.
pub(crate) fn check_root(root: Option<&Root>, owner: &Principal, context: &ContextId) -> Result<()> {
    let Some(root) = root else {
        return Err(Error::internal("the root of a sub-agent's task is not there"));
    };
    if root.owner != *owner || root.context != *context {
        return Err(Error::internal("the root of a sub-agent's task has another owner or context"));
    }
    if root.is_child {
        return Err(Error::internal("the root of a sub-agent's task is a sub-agent's itself"));
    }
    Ok(())
}

/// Whether a file can be kept, whatever there is already.
pub(crate) fn check_file(file: &NewFile) -> Result<()> {
    if file.bytes.len() as u64 != file.facts.size {
        return Err(Error::internal("the file has another size than it is said to have"));
    }
    Ok(())
}

/// What makes two files of one id the same file. When it came and what it is called may differ.
#[derive(PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) owner: Principal,
    pub(crate) task: TaskId,
    pub(crate) sha256: [u8; 32],
    pub(crate) size: u64,
}

impl FileIdentity {
    pub(crate) fn of(file: &NewFile) -> Self {
        let NewFile { owner, task, facts, .. } = file;
        Self { owner: owner.clone(), task: task.clone(), sha256: facts.sha256, size: facts.size }
    }

    /// Whether `file` is the one that is kept. If not, one of them would be given out as the other.
    pub(crate) fn check(&self, file: &NewFile) -> Result<()> {
        if *self == Self::of(file) { Ok(()) } else { Err(Error::internal("another file has this id")) }
    }
}

/// A file can only be kept for a task of its owner. `task` is whose the task is.
pub(crate) fn check_file_task(file: &NewFile, task: Option<&Principal>) -> Result<()> {
    match task {
        Some(owner) if *owner == file.owner => Ok(()),
        Some(_) => Err(Error::internal("the file has another owner than its task")),
        None => Err(Error::task_not_found(file.task.as_str())),
    }
}

/// Whether these events may stand in one batch, whatever the log holds.
pub(crate) fn check_append(append: &Append) -> Result<()> {
    if append.events.is_empty() {
        return Err(Error::internal("an append must hold at least one event"));
    }
    if append.events.iter().rev().skip(1).any(TaskEvent::is_terminal) {
        return Err(Error::internal("a terminal event must be the last of its batch"));
    }
    if append.events.iter().any(|event| matches!(event, TaskEvent::Submitted { .. })) {
        return Err(Error::internal("`Submitted` can only begin a log"));
    }
    if append.snapshot.as_ref().is_some_and(|snapshot| snapshot.id != append.task) {
        return Err(Error::internal("the snapshot is of another task"));
    }
    for change in &append.asks {
        let AskChange::Opened(interrupt) = change else { continue };
        if interrupt.task != append.task {
            return Err(Error::internal("the ask is one of another task"));
        }
        if !interrupt.is_open() {
            return Err(Error::internal("an ask that is opened cannot be closed already"));
        }
    }
    Ok(())
}

/// Whether an ask may be opened in a task of `owner` in `context`. `known` is whose ask of that name there is already.
pub(crate) fn check_ask(
    interrupt: &Interrupt,
    owner: &Principal,
    context: &ContextId,
    known: Option<&Principal>,
) -> Result<()> {
    if interrupt.owner != *owner || interrupt.context != *context {
        return Err(Error::internal("the ask has another owner or context than its task"));
    }
    // Else the answer to one would reach the other.
    if known.is_some_and(|known| known != owner) {
        return Err(Error::internal("an ask of another owner has this id"));
    }
    Ok(())
}

/// What becomes of the asks that are open when their task ends.
pub(crate) fn dropped(at: Timestamp) -> Closed {
    Closed { resolution: Resolution::Dropped, at, by: None, how: None }
}

/// Asks that were closed before this moment need not be kept.
pub(crate) fn asks_kept_since(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(ASK_KEPT))
}

/// The binding that stands against a writer who knows of `replaces`, if one does.
pub(crate) fn standing(bound: Option<Bound>, replaces: Option<&SessionId>) -> Option<Bound> {
    bound.filter(|bound| replaces != Some(&bound.session.id))
}

/// A second task with the id of one that is there.
pub(crate) fn duplicate_task() -> Error {
    Error::internal("a task with this id is there already")
}

/// A session stays with the first owner that it was bound for.
pub(crate) fn foreign_session(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        format!("There is no session {session} that you may use. Leave the session out to get a new one."),
    )
}
