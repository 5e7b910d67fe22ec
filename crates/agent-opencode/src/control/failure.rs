//! Why a call that was made for a caller gave no result, in the words of the control surface.

use std::time::Duration;

use longshore_engine::{UPSTREAM_STATUS, come_again};
use longshore_model::{Error, ErrorKind, SessionId};

use crate::client::CallError;

/// Whoever was refused for a moment comes again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// For those whose change OpenCode may have made without saying so.
const PERHAPS: &str = " It may have been done all the same: look before you try again.";

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing<'a> {
    /// Completes "could not ...".
    what: &'a str,
    session: Option<&'a SessionId>,
    changes: bool,
}

impl<'a> Doing<'a> {
    pub(crate) const fn looking(what: &'a str) -> Self {
        Self { what, session: None, changes: false }
    }

    /// It is not to be done twice.
    pub(crate) const fn changing(what: &'a str) -> Self {
        Self { what, session: None, changes: true }
    }

    /// It is about this session.
    pub(crate) const fn of(self, session: &'a SessionId) -> Self {
        Self { session: Some(session), ..self }
    }
}

impl CallError {
    /// The error for a caller of the control surface.
    pub(crate) fn told(self, doing: &Doing<'_>) -> Error {
        let may_be_done = doing.changes && self.may_be_done();
        let error = self.worded(doing);
        if may_be_done { error.perhaps_done() } else { error }
    }

    /// Whether OpenCode may have done what it was asked for.
    fn may_be_done(&self) -> bool {
        match self {
            Self::Cut(_) | Self::NoAnswer | Self::Garbled(_) | Self::TooLong => true,
            // Something on the way to OpenCode gave up, and OpenCode may not have.
            Self::Refused { status, .. } => (502..=504).contains(status),
            Self::Unreachable(_)
            | Self::Unauthorized
            | Self::NotFound
            | Self::NoMessage
            | Self::NoSuchPath
            | Self::Invalid(_)
            | Self::Crowded { .. } => false,
        }
    }

    fn worded(self, doing: &Doing<'_>) -> Error {
        let what = doing.what;
        let perhaps = if doing.changes && self.may_be_done() { PERHAPS } else { "" };
        match self {
            Self::Unreachable(cause) => unreachable(what).caused_by(cause),
            Self::Cut(cause) => cut(doing).caused_by(cause),
            Self::NoAnswer => cut(doing),
            Self::Unauthorized => refused(
                401,
                format!(
                    "OpenCode refused the gateway's user name or password, so the gateway could not {what}. The operator of \
                     the gateway must set them to those of the OpenCode server."
                ),
            )
            .lasting(),
            Self::NotFound => match doing.session {
                Some(session) => Error::new(
                    ErrorKind::SessionNotFound,
                    format!("OpenCode has no session {session}; opencode.sessions.list tells which there are."),
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
                let text = if perhaps.is_empty() { text } else { format!("{}.{perhaps}", text.trim_end_matches('.')) };
                come_again(refused(status, text).detail("detail", message), status)
            }
            Self::Garbled(sort) => Error::new(
                ErrorKind::UpstreamPayloadError,
                format!(
                    "OpenCode's answer cannot be read ({sort}), so the gateway could not {what}.{perhaps} The operator of \
                     the gateway must check the address and OpenCode's version."
                ),
            )
            .detail("detail", sort),
            Self::TooLong => {
                too_long(&format!("OpenCode's answer is too long, so the gateway could not {what}.{perhaps}"))
            }
            cause @ (Self::Invalid(_) | Self::Crowded { .. }) => cause.into_error(what),
        }
    }
}

/// OpenCode's answer says that it did something else than it was asked for.
pub(crate) fn unexpected(text: &str) -> Error {
    Error::new(ErrorKind::UpstreamPayloadError, text)
}

/// There is more than can be read or told.
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
    .after(AGAIN)
}

/// OpenCode may have got the request.
fn cut(doing: &Doing<'_>) -> Error {
    if !doing.changes {
        return unreachable(doing.what);
    }
    Error::new(
        ErrorKind::UpstreamUnreachable,
        format!("OpenCode gave no whole answer when the gateway was to {}.{PERHAPS}", doing.what),
    )
}

#[cfg(test)]
mod tests {
    use longshore_model::Retry;

    use super::*;

    /// What is told, with the status and whether to come again.
    fn row(cause: CallError, doing: &Doing<'_>) -> (&'static str, Option<String>, bool, bool) {
        let error = cause.told(doing);
        let status = error.fact(UPSTREAM_STATUS).map(str::to_owned);
        let perhaps = error.message().contains(PERHAPS.trim());
        assert_eq!(error.may_be_done(), perhaps);
        (error.kind().label(), status, error.retry() == Retry::Later, perhaps)
    }

    #[test]
    fn each_failure_has_its_kind_and_only_lost_changes_may_have_been_done() {
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
            (CallError::Crowded { calls: 1 }, ("UPSTREAM_BACKPRESSURE", None, true, false)),
        ];
        for (cause, expected) in cases {
            let said = cause.to_string();
            let changed = row(cause.clone(), &Doing::changing("fork the session").of(&session));
            assert_eq!(changed, expected, "{said}");
            let looked = row(cause, &Doing::looking("look").of(&session));
            assert_eq!(looked, (expected.0, expected.1, expected.2, false), "{said}");
        }
        let nobody = row(CallError::NotFound, &Doing::looking("list"));
        assert_eq!(
            nobody,
            ("UPSTREAM_HTTP_ERROR", status(404), false, false),
            "there is no session to be missed"
        );
    }
}
