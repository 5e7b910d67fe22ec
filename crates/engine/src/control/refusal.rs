//! What those are told who may not do something in a session.

use std::time::Duration;

use longshore_model::{Error, ErrorKind, SessionId};

/// The field of a request that names the session.
pub(crate) const SESSION_FIELD: &str = "session_id";

/// When to come again to a session that is busy. Nobody knows how long a turn takes, and asking costs little.
const COME_AGAIN: Duration = Duration::from_secs(1);

pub(crate) fn no_control() -> Error {
    let text = "The agent lets nobody look at it or change it beside its turns.";
    Error::new(ErrorKind::UnsupportedOperation, text)
}

pub(crate) fn not_found(session: &SessionId) -> Error {
    about(ErrorKind::SessionNotFound, session, "The agent has no such session.")
}

pub(crate) fn anothers(session: &SessionId) -> Error {
    about(ErrorKind::SessionForbidden, session, "The session belongs to somebody else.")
}

pub(crate) fn anothers_for_turns(session: &SessionId) -> Error {
    let text = "The session belongs to somebody else. It is shared, but not for turns: a task and its session have one owner.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn nobodys(session: &SessionId) -> Error {
    let text = "The session belongs to nobody here, and you may not take it: that needs the capability session_claim.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn out_of_bounds(session: &SessionId) -> Error {
    let text = "The session is in a directory that callers may not use.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn too_deep(session: &SessionId) -> Error {
    let text = "The session is too far below the one that it works for to tell whose it is.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn taken_by_another(session: &SessionId) -> Error {
    about(ErrorKind::SessionForbidden, session, "Somebody else is about to take the session.")
}

pub(crate) fn lost_to_another(session: &SessionId) -> Error {
    let text =
        "Somebody else took the session while this was under way. What you asked for may have been done.";
    about(ErrorKind::SessionForbidden, session, text)
}

pub(crate) fn lost_before(session: &SessionId) -> Error {
    about(
        ErrorKind::SessionForbidden,
        session,
        "Somebody else took the session a moment ago. Nothing was done.",
    )
}

pub(crate) fn in_workspace() -> Error {
    let text = "is the session of a workspace, of which the gateway hears no events; it can be looked at, but not prompted";
    Error::invalid(SESSION_FIELD, text)
}

pub(crate) fn of_sub_agent() -> Error {
    let text = "is the session of a sub-agent, which works for another; prompt the one that it works for";
    Error::invalid(SESSION_FIELD, text)
}

pub(crate) fn busy(session: &SessionId) -> Error {
    let text = "Something runs in the session, and this needs it for itself. Try again when it is idle.";
    about(ErrorKind::SessionBusy, session, text).after(COME_AGAIN)
}

/// Somebody else has it at the agent itself, and was waited for.
pub(crate) fn left_to_others(session: &SessionId) -> Error {
    let text = "Somebody else works in the session, at the agent itself, and was not done in time. Nothing was sent. Try again \
                when it is idle.";
    about(ErrorKind::SessionBusy, session, text).after(COME_AGAIN)
}

pub(crate) fn left_at_work() -> Error {
    let text = "The gateway is shutting down. What you asked for may be done all the same; look again later.";
    Error::new(ErrorKind::Unavailable, text)
}

/// Which session it is is not told: it may be somebody else's.
pub(crate) fn works_there() -> Error {
    let text = "A session works there, and would lose what it works on. Try again when it is idle.";
    Error::new(ErrorKind::SessionBusy, text).after(COME_AGAIN)
}

/// Which session it is is not told.
pub(crate) fn lives_there() -> Error {
    let text = "The workspace has sessions that are not yours, and they would be deleted with it. Only their owners may do that, \
                and with the capability session_claim whoever deletes what is nobody's.";
    Error::new(ErrorKind::SessionForbidden, text)
}

pub(crate) fn fork_of_another() -> Error {
    let text = "The agent made the fork, but under a name that somebody else has. It is left as it is.";
    Error::new(ErrorKind::Internal, text)
}

pub(crate) fn fork_not_kept(cause: &Error) -> Error {
    let text = "The agent made the fork, but the gateway could not note that it is yours. It is left as it is, and nobody's.";
    Error::new(cause.kind(), text).caused_by(cause.clone())
}

/// The fork was found whose answer was lost.
pub(crate) fn fork_found(lost: &Error, fork: &SessionId) -> Error {
    let text = format!(
        "{} The fork is there, and yours; its last message may still lack something.",
        lost.message()
    );
    let mut found = Error::new(lost.kind(), text).perhaps_done();
    for (name, value) in lost.details() {
        found = found.detail(name, value);
    }
    found.detail("forkedSessionId", fork.as_str()).caused_by(lost.clone())
}

fn about(kind: ErrorKind, session: &SessionId, text: &str) -> Error {
    Error::new(kind, text).detail("sessionId", session.as_str())
}
