//! What every store decides alike, before it writes anything.
//!
//! What is `Internal` here is a mistake of the gateway, not of a caller, and stands in the log.

use longshore_engine::port::{Append, AskChange, Bound, Create, Created, Session};
use longshore_model::{
    Closed, ContextId, Error, ErrorKind, Interrupt, Principal, Resolution, Result, SessionId, Task,
    TaskEvent, Timestamp,
};

/// A new task takes at most this many keys of its owner with it that no longer count. More wait for the next tasks, so
/// that no task pays for a backlog; as it is more than the one key that a task adds, a backlog shrinks.
pub(crate) const EXPIRED_KEYS: u32 = 16;

/// A new ask takes at most this many old ones with it, for the same reason.
pub(crate) const OLD_ASKS: u32 = 16;

/// A closed ask is kept for a day, in milliseconds: longer than anybody wants to know what became of it.
const ASK_KEPT: i64 = 24 * 60 * 60 * 1000;

/// The task that a `Create` makes.
pub(crate) fn begin(create: &Create) -> Result<Task> {
    let task = Task::begin(create.task.clone(), &create.first)
        .ok_or_else(|| Error::internal("a log must begin with `Submitted`"))?;
    if task.context_id != create.context {
        return Err(Error::internal("the first event names another context than the task"));
    }
    Ok(task)
}

/// Whether these events may stand in one batch, whatever the log holds.
pub(crate) fn check_append(append: &Append) -> Result<()> {
    let Some((_, before_last)) = append.events.split_last() else {
        return Err(Error::internal("an append must hold at least one event"));
    };
    if before_last.iter().any(TaskEvent::is_terminal) {
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

/// A session and whose it is.
pub(crate) struct OwnedSession {
    pub(crate) owner: Principal,
    pub(crate) session: Session,
}

/// What becomes of a session that a caller names for a context.
pub(crate) enum Naming {
    /// The context is bound to it already.
    Stands,
    /// The context is to be bound to it.
    Binds(Session),
    /// The answer to the caller. Nothing may be written.
    Refused(Created),
}

/// `bound` is what the context is bound to, `known` what is known of the session of that name.
pub(crate) fn name_session(
    name: &SessionId,
    owner: &Principal,
    bound: Option<&Bound>,
    known: Option<&OwnedSession>,
) -> Naming {
    match (bound, known) {
        (Some(bound), _) if bound.session.id == *name => Naming::Stands,
        (Some(_), _) => Naming::Refused(Created::OtherSession),
        (None, Some(known)) if known.owner == *owner => Naming::Binds(known.session.clone()),
        // One answer for both, so that nobody learns which sessions others have.
        (None, _) => Naming::Refused(Created::UnknownSession),
    }
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
