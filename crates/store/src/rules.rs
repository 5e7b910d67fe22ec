//! Decisions that both stores share. They are made before anything is written.
//!
//! An `Internal` error from here means a defect of the gateway, not a fault of a caller. It is logged.

mod placement;

use longshore_engine::port::{
    Append, AskChange, Bound, Claimed, Create, MAX_OWNERS, NewFile, OwnedSession, PushCounts, PushLimit,
    PushLimits,
};
use longshore_model::{
    Closed, ContextId, Error, ErrorKind, Interrupt, Principal, Resolution, Result, SessionId, Task,
    TaskEvent, TaskId, TaskState, Timestamp,
};

pub(crate) use placement::{Placement, PlacementRequest, decide_placement};

/// A new task removes at most this many expired keys of its owner. Later tasks remove the rest, so that no single task is delayed
/// by a backlog. The backlog shrinks, because a task adds only one key.
pub(crate) const EXPIRED_KEYS: u32 = 16;

/// A new ask removes at most this many old ones, so that no single ask is delayed by a backlog.
pub(crate) const OLD_ASKS: u32 = 16;

/// How long a closed ask is kept: a day, in milliseconds. No client asks for the outcome of an ask later than that.
const ASK_RETENTION: i64 = 24 * 60 * 60 * 1000;

/// Folds the task that a `Create` makes.
pub(crate) fn begin(create: &Create) -> Result<Task> {
    let mut task = Task::begin(create.task.clone(), &create.first)
        .ok_or_else(|| Error::internal("a log must start with `Submitted`"))?;
    if task.context_id != create.context {
        return Err(Error::internal("the first event names another context than the task"));
    }
    if let Some(begun) = &create.begun {
        if begun.working.status().is_none_or(|status| status.state != TaskState::Working) {
            return Err(Error::internal("a turn that runs already must come with a `Working` status"));
        }
        task.apply(&begun.working);
    }
    Ok(task)
}

/// Whether `owner` can claim a session. `known`: the session's current owner, if any.
pub(crate) fn claim(owner: &Principal, known: Option<&OwnedSession>) -> Claimed {
    match known {
        None => Claimed::Now,
        Some(known) if known.owner == *owner => Claimed::Yours,
        Some(_) => Claimed::Others,
    }
}

/// The limit that one more push configuration would exceed. `of_task`: how many the task already has. `None`: there is room.
pub(crate) fn push_limit(limits: &PushLimits, of_task: u64, counts: PushCounts) -> Option<PushLimit> {
    let checks = [
        (of_task, limits.per_task, PushLimit::PerTask),
        (counts.of_owner, limits.per_principal, PushLimit::PerPrincipal),
        (counts.in_all, limits.in_all, PushLimit::InAll),
    ];
    checks.into_iter().find(|(count, limit, _)| *limit > 0 && count >= limit).map(|(_, _, limit)| limit)
}

pub(crate) fn check_owners(ids: &[SessionId]) -> Result<()> {
    if ids.len() > MAX_OWNERS {
        return Err(Error::internal("a query for the owners of too many sessions"));
    }
    Ok(())
}

/// The root of the task tree to which a sub-agent's task is added.
pub(crate) struct Root {
    pub(crate) owner: Principal,
    pub(crate) context: ContextId,
    /// Whether the root is itself the task of a sub-agent.
    pub(crate) is_child: bool,
}

/// Checks that a sub-agent's task of `owner` in `context` may belong to this root.
pub(crate) fn check_root(root: Option<&Root>, owner: &Principal, context: &ContextId) -> Result<()> {
    let Some(root) = root else {
        return Err(Error::internal("the root of a sub-agent's task does not exist"));
    };
    if root.owner != *owner || root.context != *context {
        return Err(Error::internal("the root of a sub-agent's task has another owner or context"));
    }
    if root.is_child {
        return Err(Error::internal("the root of a sub-agent's task is itself the task of a sub-agent"));
    }
    Ok(())
}

/// Checks a file without regard to what is stored.
pub(crate) fn check_file(file: &NewFile) -> Result<()> {
    if file.bytes.len() as u64 != file.facts.size {
        return Err(Error::internal("the file does not have the size that its facts state"));
    }
    Ok(())
}

/// Two files with one id are the same file if these fields are equal. Time and name may differ.
#[derive(PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) owner: Principal,
    pub(crate) task: TaskId,
    pub(crate) sha256: [u8; 32],
    pub(crate) size: u64,
}

impl FileIdentity {
    pub(crate) fn new(file: &NewFile) -> Self {
        let NewFile { owner, task, facts, .. } = file;
        Self { owner: owner.clone(), task: task.clone(), sha256: facts.sha256, size: facts.size }
    }

    /// Checks that `file` is the stored file with its id. Otherwise the store would serve one file as the other.
    pub(crate) fn check(&self, file: &NewFile) -> Result<()> {
        if *self == Self::new(file) { Ok(()) } else { Err(Error::internal("another file has this id")) }
    }
}

/// Checks that a file belongs to a task of its owner.
pub(crate) fn check_file_task(file: &NewFile, task_owner: Option<&Principal>) -> Result<()> {
    match task_owner {
        Some(owner) if *owner == file.owner => Ok(()),
        Some(_) => Err(Error::internal("the file has another owner than its task")),
        None => Err(Error::task_not_found(file.task.as_str())),
    }
}

/// Checks a batch without regard to the content of the log.
pub(crate) fn check_append(append: &Append) -> Result<()> {
    if append.events.is_empty() {
        return Err(Error::internal("an append must have at least one event"));
    }
    if append.events.iter().rev().skip(1).any(TaskEvent::is_terminal) {
        return Err(Error::internal("a terminal event must be the last of its batch"));
    }
    if append.events.iter().any(|event| matches!(event, TaskEvent::Submitted { .. })) {
        return Err(Error::internal("`Submitted` can only be the first event of a log"));
    }
    if append.snapshot.as_ref().is_some_and(|snapshot| snapshot.id != append.task) {
        return Err(Error::internal("the snapshot is of another task"));
    }
    for change in &append.asks {
        let AskChange::Opened(interrupt) = change else { continue };
        if interrupt.task != append.task {
            return Err(Error::internal("the ask belongs to another task"));
        }
        if !interrupt.is_open() {
            return Err(Error::internal("a new ask cannot be closed already"));
        }
    }
    Ok(())
}

/// Checks that an ask may be opened in a task of `owner` in `context`. `known`: the owner of a stored ask with that id.
pub(crate) fn check_ask(
    interrupt: &Interrupt,
    owner: &Principal,
    context: &ContextId,
    known: Option<&Principal>,
) -> Result<()> {
    if interrupt.owner != *owner || interrupt.context != *context {
        return Err(Error::internal("the ask has another owner or context than its task"));
    }
    // An answer is routed by the id of the ask. With two asks of one id, it could reach the wrong one.
    if known.is_some_and(|known| known != owner) {
        return Err(Error::internal("an ask of another owner has this id"));
    }
    Ok(())
}

/// The record with which an open ask is closed when its task ends.
pub(crate) fn dropped(at: Timestamp) -> Closed {
    Closed { resolution: Resolution::Dropped, at, by: None, how: None }
}

/// The time since when closed asks are kept. Asks that were closed before are removed.
pub(crate) fn asks_kept_since(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(ASK_RETENTION))
}

/// The current binding, if it is another one than the writer wants to replace.
pub(crate) fn conflicting_binding(bound: Option<Bound>, replaces: Option<&SessionId>) -> Option<Bound> {
    bound.filter(|bound| replaces != Some(&bound.session.id))
}

pub(crate) fn duplicate_task() -> Error {
    Error::internal("a task with this id exists already")
}

/// The error for a session of another owner. A session never changes its owner.
pub(crate) fn foreign_session(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        format!("There is no session {session} that you may use. Leave the session out to get a new one."),
    )
}
