//! Errors of calls that are made for a caller of the control methods.

use std::time::Duration;

use longshore_engine::{UPSTREAM_STATUS, with_retry_hint};
use longshore_model::{Error, ErrorKind, Result, SessionId};

use crate::client::CallError;

/// The retry hint for a caller whom OpenCode refused only temporarily.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Appended to the text of an error after which OpenCode may have made the change.
const MAYBE_DONE: &str = " The change may have been done all the same: check before you try again.";

/// The purpose of a call, for its error text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    /// The action. Completes "could not ...".
    what: &'a str,
    session: Option<&'a SessionId>,
    changes: bool,
}

impl<'a> Purpose<'a> {
    pub(crate) const fn query(what: &'a str) -> Self {
        Self { what, session: None, changes: false }
    }

    /// The purpose of a call that makes a change, which must not be made twice.
    pub(crate) const fn change(what: &'a str) -> Self {
        Self { what, session: None, changes: true }
    }

    /// Adds the session that the call concerns.
    pub(crate) const fn in_session(self, session: &'a SessionId) -> Self {
        Self { session: Some(session), ..self }
    }
}

/// Turns the error of a call into the error for its caller.
pub(crate) trait ForPurpose<T> {
    fn for_purpose(self, purpose: Purpose<'_>) -> Result<T>;
}

impl<T> ForPurpose<T> for Result<T, CallError> {
    fn for_purpose(self, purpose: Purpose<'_>) -> Result<T> {
        self.map_err(|cause| cause.into_control_error(purpose))
    }
}

impl CallError {
    /// Whether OpenCode may have made the change.
    fn is_maybe_applied(&self) -> bool {
        match self {
            Self::Cut(_) | Self::Ended | Self::NoAnswer | Self::Garbled(_) | Self::TooLong => true,
            // A proxy in front of OpenCode gave up waiting, but OpenCode itself may have continued.
            Self::Refused { status, .. } => (502..=504).contains(status),
            Self::Unreachable(_)
            | Self::Down(_)
            | Self::Unauthorized
            | Self::NotFound
            | Self::NoMessage
            | Self::NoSuchPath
            | Self::Invalid(_)
            | Self::NoFreeSlot { .. } => false,
        }
    }

    /// The error for a caller of the control methods.
    pub(crate) fn into_control_error(self, purpose: Purpose<'_>) -> Error {
        let what = purpose.what;
        let is_maybe_applied = purpose.changes && self.is_maybe_applied();
        let advice = if is_maybe_applied { MAYBE_DONE } else { "" };
        let error = match self {
            Self::Unreachable(cause) => unreachable(what).caused_by(cause),
            Self::Cut(cause) => cut(purpose).caused_by(cause),
            Self::NoAnswer | Self::Ended => cut(purpose),
            Self::Down(reason) => unreachable(what).detail("detail", reason),
            Self::Unauthorized => refused(
                401,
                format!(
                    "OpenCode refused the gateway's user name or password, so the gateway could not {what}. The operator of \
                     the gateway must set them to those of the OpenCode server."
                ),
            )
            .permanent(),
            Self::NotFound => match purpose.session {
                Some(session) => Error::new(
                    ErrorKind::SessionNotFound,
                    format!("Session {session} was not found in OpenCode; opencode.sessions.list lists the sessions."),
                )
                .detail("sessionId", session.as_str()),
                None => refused(404, format!("OpenCode would not {what} (status 404).")),
            },
            Self::NoMessage | Self::NoSuchPath => refused(
                404,
                format!("The agent's address has nothing there (status 404), so the gateway could not {what}."),
            ),
            Self::Refused { status, message } => {
                let text = format!("OpenCode would not {what} (status {status}): {message}");
                let text = if advice.is_empty() { text } else { format!("{}.{advice}", text.trim_end_matches('.')) };
                with_retry_hint(refused(status, text).detail("detail", message), status)
            }
            Self::Garbled(sort) => Error::new(
                ErrorKind::UpstreamPayloadError,
                format!(
                    "OpenCode's answer cannot be read ({sort}), so the gateway could not {what}.{advice} The operator of \
                     the gateway must check the address and OpenCode's version."
                ),
            )
            .detail("detail", sort),
            Self::TooLong => {
                too_long(&format!("OpenCode's answer is too long, so the gateway could not {what}.{advice}"))
            }
            cause @ (Self::Invalid(_) | Self::NoFreeSlot { .. }) => cause.into_error(what),
        };
        if is_maybe_applied { error.mark_maybe_applied() } else { error }
    }
}

/// The error for a response which shows that OpenCode did something other than requested.
pub(crate) fn unexpected(text: &str) -> Error {
    Error::new(ErrorKind::UpstreamPayloadError, text)
}

/// The error for a response that is larger than the gateway reads or returns.
pub(crate) fn too_long(text: &str) -> Error {
    Error::new(ErrorKind::UpstreamPayloadError, text).detail("detail", "too long")
}

fn refused(status: u16, text: String) -> Error {
    Error::new(ErrorKind::UpstreamHttpError, text).detail(UPSTREAM_STATUS, status.to_string())
}

fn unreachable(what: &str) -> Error {
    Error::new(
        ErrorKind::UpstreamUnreachable,
        format!("OpenCode cannot be reached, so the gateway could not {what}. Try again later."),
    )
    .after(RETRY_AFTER)
}

/// The error for a broken connection, after which OpenCode may have received the request.
fn cut(purpose: Purpose<'_>) -> Error {
    if !purpose.changes {
        return unreachable(purpose.what);
    }
    Error::new(
        ErrorKind::UpstreamUnreachable,
        format!("OpenCode gave no complete response, so the gateway could not {}.{MAYBE_DONE}", purpose.what),
    )
}

#[cfg(test)]
mod tests {
    use longshore_model::Retry;

    use super::*;

    /// The columns: the kind of error, the upstream status, whether a retry may help, and whether the change may have been made.
    fn row(cause: CallError, purpose: Purpose<'_>) -> (&'static str, Option<String>, bool, bool) {
        let error = cause.into_control_error(purpose);
        let status = error.find_detail(UPSTREAM_STATUS).map(str::to_owned);
        let is_mentioned = error.message().contains(MAYBE_DONE.trim());
        assert_eq!(error.is_maybe_applied(), is_mentioned);
        (error.kind().label(), status, error.retry() == Retry::Later, is_mentioned)
    }

    #[test]
    fn each_failure_has_its_kind_and_only_interrupted_changes_may_have_been_made() {
        let session = SessionId::parse("ses_1").unwrap();
        let refused = |status| CallError::Refused { status, message: "no".to_owned() };
        let status = |status: u16| Some(status.to_string());
        let cases = [
            (CallError::NoAnswer, ("UPSTREAM_UNREACHABLE", None, true, true)),
            (CallError::Unauthorized, ("UPSTREAM_HTTP_ERROR", status(401), false, false)),
            (CallError::NotFound, ("SESSION_NOT_FOUND", None, false, false)),
            (CallError::NoSuchPath, ("UPSTREAM_HTTP_ERROR", status(404), false, false)),
            (refused(400), ("UPSTREAM_HTTP_ERROR", status(400), false, false)),
            (refused(409), ("UPSTREAM_HTTP_ERROR", status(409), true, false)),
            (refused(429), ("UPSTREAM_HTTP_ERROR", status(429), true, false)),
            (refused(500), ("UPSTREAM_HTTP_ERROR", status(500), true, false)),
            (refused(504), ("UPSTREAM_HTTP_ERROR", status(504), true, true)),
            (CallError::Garbled("a web page".to_owned()), ("UPSTREAM_PAYLOAD_ERROR", None, false, true)),
            (CallError::TooLong, ("UPSTREAM_PAYLOAD_ERROR", None, false, true)),
            (CallError::NoFreeSlot { calls: 1 }, ("UPSTREAM_BACKPRESSURE", None, true, false)),
        ];
        for (cause, expected) in cases {
            let text = cause.to_string();
            let changed = row(cause.clone(), Purpose::change("fork the session").in_session(&session));
            assert_eq!(changed, expected, "{text}");
            let queried = row(cause, Purpose::query("list the sessions").in_session(&session));
            assert_eq!(queried, (expected.0, expected.1, expected.2, false), "{text}");
        }
        let without_session = row(CallError::NotFound, Purpose::query("list the sessions"));
        assert_eq!(
            without_session,
            ("UPSTREAM_HTTP_ERROR", status(404), false, false),
            "the call names no session that could be missing"
        );
    }
}
