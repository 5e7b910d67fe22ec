//! The errors of control calls, for example that a session is busy or belongs to another principal.

use std::time::Duration;

use longshore_model::{Error, ErrorKind, SessionId};

/// The field of a request that names the session.
pub(crate) const SESSION_FIELD: &str = "session_id";

/// When to try again in a busy session. The duration of a turn is unknown, and a retry costs little.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn no_control() -> Error {
    let text = "The sessions of this agent can be used through turns only: it has no control surface.";
    Error::new(ErrorKind::UnsupportedOperation, text)
}

pub(crate) fn no_native_prompts() -> Error {
    let text = "This agent takes messages only; send a message.";
    Error::new(ErrorKind::UnsupportedOperation, text)
}

pub(crate) fn not_found(session: &SessionId) -> Error {
    about(ErrorKind::SessionNotFound, session, "The session was not found: the agent does not have it.")
}

pub(crate) fn owned_by_another(session: &SessionId) -> Error {
    about(ErrorKind::SessionForbidden, session, "The session belongs to another principal.")
}

pub(crate) fn shared_without_turns(session: &SessionId) -> Error {
    let text = "The session belongs to another principal. It is shared, but not for turns: a task and its session have one owner.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn unowned(session: &SessionId) -> Error {
    let text = "The session has no owner in this gateway, and you may not claim it: that needs the capability session_claim.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn out_of_bounds(session: &SessionId) -> Error {
    let text = "The session is in a directory that callers may not use.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn too_deep(session: &SessionId) -> Error {
    let text = "The session is too far below its root session to find out who owns it.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn reserved_by_another(session: &SessionId) -> Error {
    about(ErrorKind::SessionForbidden, session, "Another principal is about to claim the session.")
}

pub(crate) fn lost_to_another(session: &SessionId) -> Error {
    let text = "Another principal claimed the session during this call. The call may have had its effect.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn lost_before(session: &SessionId) -> Error {
    about(
        ErrorKind::SessionForbidden,
        session,
        "Another principal claimed the session a moment ago. This call did nothing.",
    )
}

pub(crate) fn in_workspace() -> Error {
    let text = "is the session of a workspace, from which the gateway gets no events; it can be read, but not prompted";
    Error::invalid(SESSION_FIELD, text)
}

pub(crate) fn of_sub_agent() -> Error {
    let text = "is the session of a sub-agent; prompt the session that the sub-agent works for";
    Error::invalid(SESSION_FIELD, text)
}

pub(crate) fn deletes_sub_agent() -> Error {
    let text = "is the session of a sub-agent; it is deleted with the session that the sub-agent works for";
    Error::invalid(SESSION_FIELD, text)
}

pub(crate) fn busy(session: &SessionId) -> Error {
    let text = "The session is busy, and this call needs it idle. Try again later.";
    about(ErrorKind::SessionBusy, session, text).after(RETRY_AFTER)
}

/// Another client of the agent used the session for longer than the turn waited.
pub(crate) fn busy_too_long(session: &SessionId) -> Error {
    let text = "Another client of the agent works in the session, and was not done in time. Nothing was sent. Try again when the \
                session is idle.";
    about(ErrorKind::SessionBusy, session, text).after(RETRY_AFTER)
}

pub(crate) fn left_running() -> Error {
    let text =
        "The gateway is shutting down. What you asked for may be done nevertheless; check again later.";
    Error::new(ErrorKind::Unavailable, text)
}

/// The error for a place in which a session is at work. Does not name the session, which may belong to another caller.
pub(crate) fn works_there() -> Error {
    let text = "A session works there, and would lose what it works on. Try again when it is idle.";
    Error::new(ErrorKind::SessionBusy, text).after(RETRY_AFTER)
}

/// The error for a place with sessions that the caller may not delete. Names none of these sessions.
pub(crate) fn not_all_yours() -> Error {
    let text = "The workspace has sessions that are not yours, and they would be deleted with it. Only their owners may do that; \
                for sessions without an owner, callers with the capability session_claim.";
    Error::new(ErrorKind::SessionForbidden, text)
}

pub(crate) fn fork_of_another() -> Error {
    let text = "The agent made the fork, but with the id of a session of another principal. The fork is left as it is.";
    Error::new(ErrorKind::Internal, text)
}

pub(crate) fn fork_not_stored(cause: &Error) -> Error {
    let text = "The agent made the fork, but the gateway could not store that it is yours. The fork is left as it is, without an \
                owner.";
    Error::new(cause.kind(), text).caused_by(cause.clone())
}

/// The error for a fork whose response was lost, but whose session was found. It tells the caller the id of that session.
pub(crate) fn fork_found(lost: &Error, fork: &SessionId) -> Error {
    let text =
        format!("{} The fork exists and is yours; its last message may still be incomplete.", lost.message());
    let mut found = Error::new(lost.kind(), text).mark_maybe_applied();
    for (name, value) in lost.details() {
        found = found.detail(name, value);
    }
    found.detail("forkedSessionId", fork.as_str()).caused_by(lost.clone())
}

fn about(kind: ErrorKind, session: &SessionId, text: &str) -> Error {
    Error::new(kind, text).detail("sessionId", session.as_str())
}
