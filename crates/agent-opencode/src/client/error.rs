//! The errors of calls to OpenCode, and their conversion to errors for callers.

use std::fmt;
use std::sync::Arc;

use longshore_engine::UPSTREAM_STATUS;
use longshore_model::{Error, ErrorKind};

use super::slots::SHORT_WAIT;

/// Why a call to OpenCode failed.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No connection: OpenCode did not receive the request.
    Unreachable(Arc<reqwest::Error>),
    /// The connection broke or the call timed out. OpenCode may have received the request.
    Cut(Arc<reqwest::Error>),
    /// The call was not made, because OpenCode is known to be down. The reason may be shown to a caller.
    Down(String),
    /// OpenCode ended during the call, and may have received the request.
    Ended,
    /// No response came in time. An OpenCode that is just starting accepts requests and never responds to them.
    NoAnswer,
    /// OpenCode does not accept the gateway's password.
    Unauthorized,
    /// OpenCode itself reports that it does not have the session or the ask.
    NotFound,
    /// OpenCode has the session, but not the message.
    NoMessage,
    /// A 404 that says nothing about a session: it comes from a server that may not be OpenCode, or the call names no session.
    NoSuchPath,
    /// OpenCode refused the request. The text may be shown to a caller.
    Refused { status: u16, message: String },
    /// The response is not in OpenCode's format, for example the HTML page of its web interface.
    Garbled(String),
    /// The response is larger than the gateway reads.
    TooLong,
    /// The request could not be built, for example because an id is not valid.
    Invalid(Error),
    /// The call was not made, because no call slot became free while it waited.
    NoFreeSlot { calls: usize },
}

impl CallError {
    /// The error for a caller. `doing` completes "could not ...".
    pub(crate) fn into_error(self, doing: &str) -> Error {
        match self {
            Self::Unreachable(cause) | Self::Cut(cause) => unreachable(doing).caused_by(cause),
            Self::NoAnswer | Self::Ended => unreachable(doing),
            Self::Down(reason) => Error::new(
                ErrorKind::AgentUnavailable,
                format!("{reason} The gateway could not {doing}. Try again in a few seconds."),
            ),
            Self::Unauthorized => Error::new(
                ErrorKind::AgentUnavailable,
                "OpenCode refused the gateway's user name or password. The operator of the gateway must set them \
                 to those of the OpenCode server.",
            )
            .detail(UPSTREAM_STATUS, "401")
            .permanent(),
            Self::NotFound => Error::new(
                ErrorKind::SessionGone,
                "OpenCode no longer knows this session. Start a new context.",
            ),
            Self::NoMessage => Error::new(
                ErrorKind::InvalidAgentResponse,
                format!("OpenCode has no such message, so the gateway could not {doing}."),
            )
            .detail(UPSTREAM_STATUS, "404"),
            Self::Refused { status, message } => Error::new(
                ErrorKind::InvalidAgentResponse,
                format!("OpenCode would not {doing} (status {status}): {message}"),
            )
            .detail(UPSTREAM_STATUS, status.to_string()),
            Self::TooLong => Error::new(
                ErrorKind::InvalidAgentResponse,
                format!("OpenCode's answer is too long, so the gateway could not {doing}."),
            ),
            Self::NoSuchPath => strange("status 404", doing).detail(UPSTREAM_STATUS, "404"),
            Self::Garbled(what) => strange(&what, doing),
            Self::Invalid(error) => error,
            Self::NoFreeSlot { calls } => Error::new(
                ErrorKind::UpstreamBackpressure,
                format!(
                    "OpenCode is busy with {calls} calls of this gateway, which is the limit, so the gateway could not \
                     {doing}. Try again in a moment."
                ),
            )
            .detail("limit", "upstream_calls")
            .detail("max", calls.to_string())
            .after(SHORT_WAIT),
        }
    }

    /// Whether OpenCode certainly did not receive the request.
    pub(crate) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Down(_))
    }

    /// Whether the call may succeed when it is repeated.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Cut(_)
            | Self::Down(_)
            | Self::Ended
            | Self::NoAnswer
            | Self::Unauthorized
            | Self::NoSuchPath
            | Self::Garbled(_)
            | Self::NoFreeSlot { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            Self::NotFound | Self::NoMessage | Self::TooLong | Self::Invalid(_) => false,
        }
    }

    /// Whether the server rejects the gateway, or does not respond like OpenCode. Then waiting alone does not help.
    pub(crate) fn is_invalid_response(&self) -> bool {
        match self {
            Self::Unauthorized | Self::NoSuchPath | Self::Garbled(_) => true,
            // A proxy in front of an unreachable OpenCode answers with 502 to 504.
            Self::Refused { status, .. } => *status >= 500 && !(502..=504).contains(status),
            Self::Unreachable(_)
            | Self::Cut(_)
            | Self::Down(_)
            | Self::Ended
            | Self::NoAnswer
            | Self::NotFound
            | Self::NoMessage
            | Self::TooLong
            | Self::Invalid(_)
            | Self::NoFreeSlot { .. } => false,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(_) => f.write_str("no connection"),
            Self::Cut(_) => f.write_str("the connection broke or timed out"),
            Self::Down(_) => f.write_str("OpenCode is down"),
            Self::Ended => f.write_str("OpenCode ended during the call"),
            Self::NoAnswer => f.write_str("no answer"),
            Self::Unauthorized => f.write_str("status 401"),
            Self::NotFound | Self::NoMessage | Self::NoSuchPath => f.write_str("status 404"),
            Self::Refused { status, .. } => write!(f, "status {status}"),
            Self::Garbled(what) => f.write_str(what),
            Self::TooLong => f.write_str("a response that is too long"),
            Self::Invalid(error) => error.fmt(f),
            Self::NoFreeSlot { .. } => f.write_str("too many calls at once"),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<reqwest::Error> for CallError {
    fn from(error: reqwest::Error) -> Self {
        // The address may contain credentials.
        let error = error.without_url();
        let is_connect = error.is_connect();
        let error = Arc::new(error);
        if is_connect { Self::Unreachable(error) } else { Self::Cut(error) }
    }
}

fn strange(what: &str, doing: &str) -> Error {
    Error::new(
        ErrorKind::InvalidAgentResponse,
        format!(
            "The agent's address does not answer like OpenCode ({what}), so the gateway could not {doing}. \
             The operator of the gateway must check the address and OpenCode's version."
        ),
    )
}

fn unreachable(doing: &str) -> Error {
    Error::new(
        ErrorKind::AgentUnavailable,
        format!("OpenCode cannot be reached, so the gateway could not {doing}. Try again later."),
    )
}
