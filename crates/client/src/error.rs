//! Errors of calls to an agent. Each says what failed, who caused it, and whether the caller should try again.

use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The URL, a setting or another input of the caller cannot be used.
    Input,
    /// The client could not connect to the agent.
    Unreachable,
    /// The agent did not respond in time.
    Timeout,
    /// The connection broke after the request was sent, so the agent may have received it.
    Lost,
    Unauthenticated,
    Forbidden,
    TaskNotFound,
    TaskNotCancelable,
    /// The agent refused the content of the request.
    InvalidRequest,
    /// The agent does not have the operation, or the task is not in a state for it.
    Unsupported,
    VersionNotSupported,
    /// The card names no interface that this client can use.
    NoInterface,
    /// The agent refused the request, but may accept it later.
    Unavailable,
    /// The agent had an internal error.
    AgentFailed,
    /// The response is not valid A2A.
    InvalidResponse,
    /// The response is longer than the limit.
    TooLarge,
}

/// The party that caused an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Caller,
    Network,
    Agent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// The same request would fail again, or may not be repeated safely.
    Never,
    /// The same request can succeed later. The value is the wait that the agent named, if it named one.
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

/// An error of a call to an agent.
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
    /// `message`: what failed, at which agent, and what to do about it.
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

    /// Adds the error code and the machine-readable reason that the agent sent.
    #[must_use]
    pub(crate) fn with_code(mut self, code: Option<i64>, reason: Option<String>) -> Self {
        (self.0.code, self.0.reason) = (code, reason);
        self
    }

    /// Marks a response with status 429. Its sender, the agent or a proxy, did not process the request.
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

    /// Whether to try again. A lost request is never repeated, because the agent may have received it.
    pub fn retry(&self) -> Retry {
        match self.0.kind {
            ErrorKind::Unreachable | ErrorKind::Timeout | ErrorKind::Unavailable => {
                Retry::Later(self.0.retry_after)
            }
            _ => Retry::Never,
        }
    }

    /// Whether the agent may have received the request although the client got no answer. A proxy in between, for example, may give
    /// up on an agent that goes on.
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

    /// The machine-readable reason, such as `TASK_NOT_FOUND`, if the agent sent one.
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
