//! Errors of calls to an agent: what failed, whose fault it is, and whether to try again.

use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The URL, a setting or another input of the caller cannot be used.
    Input,
    /// No connection to the agent.
    Unreachable,
    /// No response in time.
    Timeout,
    /// The connection broke after the request was sent, so the agent may have received it.
    Lost,
    Unauthenticated,
    Forbidden,
    TaskNotFound,
    TaskNotCancelable,
    /// The agent refused the content of the request.
    InvalidRequest,
    /// The agent lacks the operation, or the task is not in a state for it.
    Unsupported,
    VersionNotSupported,
    /// The card names no interface that this client can use.
    NoInterface,
    /// The agent refused the request for now.
    Unavailable,
    /// The agent failed.
    AgentFailed,
    /// The response is not one of A2A.
    InvalidResponse,
    /// The response is longer than the limit.
    TooLarge,
}

/// The place to look for the cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Caller,
    Network,
    Agent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// The same request would fail again.
    Never,
    /// The same request can succeed, after this wait if the agent named one.
    Later(Option<Duration>),
}

impl ErrorKind {
    fn origin(self) -> Origin {
        match self {
            Self::Unreachable | Self::Timeout | Self::Lost => Origin::Network,
            Self::Unavailable
            | Self::AgentFailed
            | Self::InvalidResponse
            | Self::TooLarge
            | Self::NoInterface => Origin::Agent,
            _ => Origin::Caller,
        }
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ErrorKind,
    message: String,
    retry_after: Option<Duration>,
    code: Option<i64>,
    reason: Option<String>,
    is_throttled: bool,
}

impl Error {
    /// `message`: what failed, for which agent, and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (retry_after, code, reason) = (None, None, None);
        let (message, is_throttled) = (message.into(), false);
        Self(Box::new(Inner { kind, message, retry_after, code, reason, is_throttled }))
    }

    pub(crate) fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidResponse, message)
    }

    #[must_use]
    pub(crate) fn after(mut self, wait: Option<Duration>) -> Self {
        self.0.retry_after = wait;
        self
    }

    /// Adds the code and the machine-readable reason that the agent sent.
    #[must_use]
    pub(crate) fn with_code(mut self, code: Option<i64>, reason: Option<String>) -> Self {
        (self.0.code, self.0.reason) = (code, reason);
        self
    }

    /// Too many requests: whoever says so did not pass the request on.
    #[must_use]
    pub(crate) fn throttled(mut self, is_throttled: bool) -> Self {
        self.0.is_throttled = is_throttled;
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn origin(&self) -> Origin {
        self.0.kind.origin()
    }

    /// A lost request is not repeated: the agent may have received it.
    pub fn retry(&self) -> Retry {
        match self.0.kind {
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Unavailable => {
                Retry::Later(self.0.retry_after)
            }
            _ => Retry::Never,
        }
    }

    /// Whether the agent may have received the request, although it did not answer. A server between, such as a proxy, may give up
    /// on an agent that goes on.
    pub fn may_have_arrived(&self) -> bool {
        match self.0.kind {
            ErrorKind::Lost | ErrorKind::Timeout => true,
            ErrorKind::Unavailable => {
                self.0.code.is_none() && self.0.reason.is_none() && !self.0.is_throttled
            }
            _ => false,
        }
    }

    /// The JSON-RPC code, if the agent sent one.
    pub fn code(&self) -> Option<i64> {
        self.0.code
    }

    /// The word for programs, such as `TASK_NOT_FOUND`, if the agent sent one.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {})", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {}
