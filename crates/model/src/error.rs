//! Errors as every layer speaks of them.
//!
//! An error has a closed kind, an origin (whose fault it is), a hint whether trying again can help, a public
//! text that says what failed and what to do, and a private source that only the log sees. The wire maps
//! the kind to a code in one table per protocol line.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong. Each kind has one row in each line's error table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// The body is no JSON.
    Parse,
    /// JSON, but no request of this binding.
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    InvalidAgentResponse,
    ExtendedCardNotConfigured,
    ExtensionRequired,
    VersionNotSupported,
    Unauthenticated,
    PermissionDenied,
    /// No such path.
    RouteNotFound,
    /// The path exists, the verb does not.
    VerbNotAllowed,
    /// A request of JSON-RPC at a path of REST.
    WrongBinding,
    BodyTooLarge,
    TooManyRequests,
    /// A stream has had all that one stream may have. Its task goes on.
    StreamBudgetExceeded,
    /// As many calls to the agent as are allowed at once are under way.
    UpstreamBackpressure,
    /// The gateway or its store cannot serve this now.
    Unavailable,
    /// The agent cannot be reached, or did not answer in time.
    AgentUnavailable,
    /// The agent no longer knows the session.
    SessionGone,
    /// The session is taken by another turn.
    SessionBusy,
    /// No ask of this name is open, or it is not the caller's.
    InterruptNotFound,
    /// The ask was not answered in time.
    InterruptExpired,
    /// The answer is for another kind of ask.
    InterruptTypeMismatch,
    /// The request uses an extension that it did not activate.
    ExtensionNotActivated,
    /// The agent has no such session, says whoever controls its sessions.
    SessionNotFound,
    /// The session is somebody else's, or nobody's and the caller may not take it.
    SessionForbidden,
    /// A call for a caller did not reach the agent, or it did not answer in time.
    UpstreamUnreachable,
    /// The agent refused a call that was made for a caller.
    UpstreamHttpError,
    /// The agent answered a call for a caller with something that cannot be read.
    UpstreamPayloadError,
    /// The credential lacks a capability.
    AuthorizationForbidden,
    /// There is such a method, and the operator has it switched off.
    MethodDisabled,
}

impl ErrorKind {
    pub const ALL: [Self; 38] = [
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotSupported,
        Self::UnsupportedOperation,
        Self::ContentTypeNotSupported,
        Self::InvalidAgentResponse,
        Self::ExtendedCardNotConfigured,
        Self::ExtensionRequired,
        Self::VersionNotSupported,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::RouteNotFound,
        Self::VerbNotAllowed,
        Self::WrongBinding,
        Self::BodyTooLarge,
        Self::TooManyRequests,
        Self::StreamBudgetExceeded,
        Self::UpstreamBackpressure,
        Self::Unavailable,
        Self::AgentUnavailable,
        Self::SessionGone,
        Self::SessionBusy,
        Self::InterruptNotFound,
        Self::InterruptExpired,
        Self::InterruptTypeMismatch,
        Self::ExtensionNotActivated,
        Self::SessionNotFound,
        Self::SessionForbidden,
        Self::UpstreamUnreachable,
        Self::UpstreamHttpError,
        Self::UpstreamPayloadError,
        Self::AuthorizationForbidden,
        Self::MethodDisabled,
    ];

    /// One word for programs, logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Parse => "PARSE",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::MethodNotFound => "METHOD_NOT_FOUND",
            Self::InvalidParams => "INVALID_PARAMS",
            Self::Internal => "INTERNAL",
            Self::TaskNotFound => "TASK_NOT_FOUND",
            Self::TaskNotCancelable => "TASK_NOT_CANCELABLE",
            Self::PushNotSupported => "PUSH_NOT_SUPPORTED",
            Self::UnsupportedOperation => "UNSUPPORTED_OPERATION",
            Self::ContentTypeNotSupported => "CONTENT_TYPE_NOT_SUPPORTED",
            Self::InvalidAgentResponse => "INVALID_AGENT_RESPONSE",
            Self::ExtendedCardNotConfigured => "EXTENDED_CARD_NOT_CONFIGURED",
            Self::ExtensionRequired => "EXTENSION_REQUIRED",
            Self::VersionNotSupported => "VERSION_NOT_SUPPORTED",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::RouteNotFound => "ROUTE_NOT_FOUND",
            Self::VerbNotAllowed => "VERB_NOT_ALLOWED",
            Self::WrongBinding => "WRONG_BINDING",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::TooManyRequests => "TOO_MANY_REQUESTS",
            Self::StreamBudgetExceeded => "STREAM_BUDGET_EXCEEDED",
            Self::UpstreamBackpressure => "UPSTREAM_BACKPRESSURE",
            Self::Unavailable => "UNAVAILABLE",
            Self::AgentUnavailable => "AGENT_UNAVAILABLE",
            Self::SessionGone => "SESSION_GONE",
            Self::SessionBusy => "SESSION_BUSY",
            Self::InterruptNotFound => "INTERRUPT_NOT_FOUND",
            Self::InterruptExpired => "INTERRUPT_EXPIRED",
            Self::InterruptTypeMismatch => "INTERRUPT_TYPE_MISMATCH",
            Self::ExtensionNotActivated => "EXTENSION_NOT_ACTIVATED",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::SessionForbidden => "SESSION_FORBIDDEN",
            Self::UpstreamUnreachable => "UPSTREAM_UNREACHABLE",
            Self::UpstreamHttpError => "UPSTREAM_HTTP_ERROR",
            Self::UpstreamPayloadError => "UPSTREAM_PAYLOAD_ERROR",
            Self::AuthorizationForbidden => "AUTHORIZATION_FORBIDDEN",
            Self::MethodDisabled => "METHOD_DISABLED",
        }
    }

    fn origin(self) -> Origin {
        match self {
            Self::Internal | Self::Unavailable => Origin::Gateway,
            Self::InvalidAgentResponse
            | Self::AgentUnavailable
            | Self::SessionGone
            | Self::SessionBusy
            | Self::UpstreamUnreachable
            | Self::UpstreamHttpError
            | Self::UpstreamPayloadError => Origin::Agent,
            _ => Origin::Caller,
        }
    }

    fn retry(self) -> Retry {
        match self {
            Self::Unavailable
            | Self::AgentUnavailable
            | Self::TooManyRequests
            | Self::StreamBudgetExceeded
            | Self::UpstreamBackpressure
            | Self::SessionBusy
            | Self::UpstreamUnreachable => Retry::Later,
            _ => Retry::Never,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Caller,
    Agent,
    Gateway,
}

/// Whether the same request can succeed when it is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Never,
    Later,
}

/// A field of the request and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldViolation {
    /// Dotted, in the spelling that the caller used.
    pub field: String,
    pub description: String,
}

/// See the module.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    violations: Vec<FieldViolation>,
    details: Vec<(String, String)>,
    lasting: bool,
    retryable: bool,
    may_be_done: bool,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// `message` is public: what failed, for what input, and what to do. No path, no secret.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            violations: Vec::new(),
            details: Vec::new(),
            lasting: false,
            retryable: false,
            may_be_done: false,
            retry_after: None,
            source: None,
        }))
    }

    /// A parameter that breaks a rule.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        let mut error = Self::new(ErrorKind::InvalidParams, format!("{field}: {description}"));
        error.0.violations.push(FieldViolation { field, description });
        error
    }

    /// Names one more parameter that breaks a rule.
    #[must_use]
    pub fn also_invalid(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        let violation = FieldViolation { field: field.into(), description: description.into() };
        self.0.violations.push(violation);
        self
    }

    pub fn task_not_found(id: impl fmt::Display) -> Self {
        Self::new(ErrorKind::TaskNotFound, format!("There is no task {id} that you may see."))
            .detail("taskId", id.to_string())
    }

    /// Something of ours broke. The cause goes to the log, not to the caller.
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Internal, "The gateway failed to handle this request; its log says why.")
            .caused_by(source)
    }

    /// Adds a fact for machines: a name and a value.
    #[must_use]
    pub fn detail(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.details.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// The same under another name, for those who know it by that one.
    #[must_use]
    pub fn renamed(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Says that it does not pass by itself: somebody must change something first. So nobody waits for its end who could
    /// tell of it instead.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.0.lasting = true;
        self
    }

    /// Says that the same request can succeed later, though its kind does not always say so: whether a refusal of the agent
    /// passes depends on what it said.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.0.retryable = true;
        self
    }

    /// Says that what was to be changed may have been changed all the same: the answer was lost, not the request.
    #[must_use]
    pub fn perhaps_done(mut self) -> Self {
        self.0.may_be_done = true;
        self
    }

    pub fn may_be_done(&self) -> bool {
        self.0.may_be_done
    }

    /// Says how long to wait before the same request can succeed. Callers are told in whole seconds, by a fact for machines
    /// and, over HTTP, by a header.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        let seconds = whole_seconds(wait).to_string();
        self.detail("retryAfterSeconds", seconds)
    }

    /// What [`after`](Self::after) was told.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The same as callers are told it: whole seconds, at least one.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.retry_after.map(whole_seconds)
    }

    pub fn is_lasting(&self) -> bool {
        self.0.lasting
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn origin(&self) -> Origin {
        self.0.kind.origin()
    }

    pub fn retry(&self) -> Retry {
        if self.0.retryable { Retry::Later } else { self.0.kind.retry() }
    }

    /// The public text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn violations(&self) -> &[FieldViolation] {
        &self.0.violations
    }

    pub fn details(&self) -> &[(String, String)] {
        &self.0.details
    }

    /// The fact of this name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.0.details.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The private cause, for the log.
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }
}

/// Whoever comes back after this many has waited long enough, and nobody is told to come back at once.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.0.kind).field("message", &self.0.message);
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_told_to_wait_waits_long_enough() {
        let cases = [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60), (59_500, 60)];
        for (wait, told) in cases {
            let wait = Duration::from_millis(wait);
            let error =
                Error::new(ErrorKind::TooManyRequests, "Wait.").detail("limit", "streams").after(wait);
            assert_eq!((error.retry_after(), error.retry_after_seconds()), (Some(wait), Some(told)));
            let fact = ("retryAfterSeconds".to_owned(), told.to_string());
            assert_eq!(error.details(), [("limit".to_owned(), "streams".to_owned()), fact], "{wait:?}");
        }
        let error = Error::new(ErrorKind::TooManyRequests, "Wait.");
        assert_eq!((error.retry_after(), error.retry_after_seconds()), (None, None));
    }

    #[test]
    fn a_refusal_that_passes_says_so() {
        let refused = Error::new(ErrorKind::UpstreamHttpError, "The agent refused.");
        assert_eq!(refused.retry(), Retry::Never);
        assert_eq!(refused.retryable().retry(), Retry::Later);
    }

    #[test]
    fn what_passes_by_itself_may_be_tried_again() {
        let later: Vec<_> = ErrorKind::ALL
            .into_iter()
            .filter(|kind| kind.retry() == Retry::Later)
            .map(ErrorKind::label)
            .collect();
        let expected = [
            "TOO_MANY_REQUESTS",
            "STREAM_BUDGET_EXCEEDED",
            "UPSTREAM_BACKPRESSURE",
            "UNAVAILABLE",
            "AGENT_UNAVAILABLE",
            "SESSION_BUSY",
            "UPSTREAM_UNREACHABLE",
        ];
        assert_eq!(later, expected);
    }
}
