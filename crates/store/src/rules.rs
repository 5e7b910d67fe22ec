//! What every store refuses, before it writes anything.
//!
//! These are mistakes of the gateway, not of a caller: hence `Internal`, with the mistake in the log.

use longshore_engine::port::{Append, Create};
use longshore_model::{Error, ErrorKind, Result, SessionId, Task, TaskEvent};

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
    Ok(())
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
