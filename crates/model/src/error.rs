//! The error type of all layers.
//!
//! An error has a kind from a closed list, an origin (the party at fault), a hint whether a retry can help, a public text that says
//! what failed and what to do, and a private source that only the log contains. The wire crate maps the kind to a code, with one
//! table per protocol version.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::named_enum::named_enum;

named_enum! {
    /// The kind of an error. Each kind has one row in the error table of each protocol version.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum ErrorKind {
        /// The body is not JSON.
        Parse = "PARSE",
        /// The body is JSON, but not a request of this binding.
        InvalidRequest = "INVALID_REQUEST",
        MethodNotFound = "METHOD_NOT_FOUND",
        InvalidParams = "INVALID_PARAMS",
        Internal = "INTERNAL",
        TaskNotFound = "TASK_NOT_FOUND",
        TaskNotCancelable = "TASK_NOT_CANCELABLE",
        PushNotSupported = "PUSH_NOT_SUPPORTED",
        UnsupportedOperation = "UNSUPPORTED_OPERATION",
        ContentTypeNotSupported = "CONTENT_TYPE_NOT_SUPPORTED",
        InvalidAgentResponse = "INVALID_AGENT_RESPONSE",
        ExtendedCardNotConfigured = "EXTENDED_CARD_NOT_CONFIGURED",
        ExtensionRequired = "EXTENSION_REQUIRED",
        VersionNotSupported = "VERSION_NOT_SUPPORTED",
        Unauthenticated = "UNAUTHENTICATED",
        PermissionDenied = "PERMISSION_DENIED",
        /// No such path.
        RouteNotFound = "ROUTE_NOT_FOUND",
        /// The path exists, but not for this HTTP method.
        VerbNotAllowed = "VERB_NOT_ALLOWED",
        /// A JSON-RPC request at a REST path.
        WrongBinding = "WRONG_BINDING",
        BodyTooLarge = "BODY_TOO_LARGE",
        TooManyRequests = "TOO_MANY_REQUESTS",
        /// A stream has reached one of its limits. Its task continues.
        StreamBudgetExceeded = "STREAM_BUDGET_EXCEEDED",
        /// The limit of concurrent calls to the agent is reached.
        UpstreamBackpressure = "UPSTREAM_BACKPRESSURE",
        /// The gateway or its store cannot serve the request now.
        Unavailable = "UNAVAILABLE",
        /// The agent cannot be reached, or did not respond in time.
        AgentUnavailable = "AGENT_UNAVAILABLE",
        /// The agent no longer knows the session.
        SessionGone = "SESSION_GONE",
        /// Another turn runs in the session.
        SessionBusy = "SESSION_BUSY",
        /// No ask with this id is open, or the ask does not belong to the caller.
        InterruptNotFound = "INTERRUPT_NOT_FOUND",
        /// The ask expired.
        InterruptExpired = "INTERRUPT_EXPIRED",
        /// The answer is for another kind of ask.
        InterruptTypeMismatch = "INTERRUPT_TYPE_MISMATCH",
        /// The request uses an extension that it did not activate.
        ExtensionNotActivated = "EXTENSION_NOT_ACTIVATED",
        /// The agent has no such session. Used by the control methods.
        SessionNotFound = "SESSION_NOT_FOUND",
        /// Another caller owns the session. Or the session is unowned and the caller may not claim it.
        SessionForbidden = "SESSION_FORBIDDEN",
        /// A control call did not reach the agent, or the agent did not respond in time.
        UpstreamUnreachable = "UPSTREAM_UNREACHABLE",
        /// The agent refused a control call.
        UpstreamHttpError = "UPSTREAM_HTTP_ERROR",
        /// The agent's response to a control call cannot be read.
        UpstreamPayloadError = "UPSTREAM_PAYLOAD_ERROR",
        /// The credential lacks a capability.
        AuthorizationForbidden = "AUTHORIZATION_FORBIDDEN",
        /// The operator has disabled the method.
        MethodDisabled = "METHOD_DISABLED",
    }
    /// The name of the kind for programs, logs and metrics.
    fn label
}

impl ErrorKind {
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

/// Whether the same request can succeed if it is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Never,
    Later,
}

/// A field of the request, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldViolation {
    /// The path of the field with dots, in the spelling that the caller used.
    pub field: String,
    pub description: String,
}

/// The error: see the module.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a mark of its own")]
struct Inner {
    kind: ErrorKind,
    message: String,
    violations: Vec<FieldViolation>,
    details: Vec<(String, String)>,
    permanent: bool,
    retryable: bool,
    is_maybe_applied: bool,
    needs_credentials: bool,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error. `message` is shown to callers: what failed, for which input, and what to do. It must contain no path and
    /// no secret.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            violations: Vec::new(),
            details: Vec::new(),
            permanent: false,
            retryable: false,
            is_maybe_applied: false,
            needs_credentials: false,
            retry_after: None,
            source: None,
        }))
    }

    /// The error for a parameter that breaks a rule.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        let mut error = Self::new(ErrorKind::InvalidParams, format!("{field}: {description}"));
        error.0.violations.push(FieldViolation { field, description });
        error
    }

    /// Adds one more parameter that breaks a rule.
    #[must_use]
    pub fn also_invalid(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        let violation = FieldViolation { field: field.into(), description: description.into() };
        self.0.violations.push(violation);
        self
    }

    pub fn task_not_found(id: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::TaskNotFound,
            format!("Task {id} was not found among the tasks that you may see."),
        )
        .detail("taskId", id.to_string())
    }

    /// The error for a fault of the gateway itself. The cause is only logged, and not shown to the caller.
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Internal, "The gateway failed to handle this request; its log says why.")
            .caused_by(source)
    }

    /// Adds a machine-readable detail: a name and a value.
    #[must_use]
    pub fn detail(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.details.push((name.into(), value.into()));
        self
    }

    /// Adds a sentence to the message.
    #[must_use]
    pub fn with_advice(mut self, sentence: &str) -> Self {
        self.0.message = format!("{} {sentence}", self.0.message);
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Changes the kind, for an API that has its own kind for this error.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Marks an error that lasts until a person changes something. Code that would otherwise wait reports such an error at once.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.0.permanent = true;
        self
    }

    /// Marks an error as temporary although its kind does not imply that. For example, only the agent's response shows whether a
    /// refusal is temporary.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.0.retryable = true;
        self
    }

    /// Marks an error after which the change may have been applied, because the response was lost and not the request.
    #[must_use]
    pub fn mark_maybe_applied(mut self) -> Self {
        self.0.is_maybe_applied = true;
        self
    }

    /// Marks an error of an agent that lacks credentials. When the agent has them, the same request can succeed.
    #[must_use]
    pub fn mark_needs_credentials(mut self) -> Self {
        self.0.needs_credentials = true;
        self
    }

    pub fn needs_credentials(&self) -> bool {
        self.0.needs_credentials
    }

    pub fn is_maybe_applied(&self) -> bool {
        self.0.is_maybe_applied
    }

    /// Sets after which wait the same request can succeed. Callers receive whole seconds, in a detail and, over HTTP, in a header.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        let seconds = whole_seconds(wait).to_string();
        self.detail("retryAfterSeconds", seconds)
    }

    /// The wait that [`after`](Self::after) set.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The wait in whole seconds, at least one, as callers receive it.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.retry_after.map(whole_seconds)
    }

    pub fn is_permanent(&self) -> bool {
        self.0.permanent
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

    /// The value of the detail with this name.
    pub fn find_detail(&self, name: &str) -> Option<&str> {
        self.0.details.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The private cause, for the log.
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.source.as_deref()
    }
}

/// Rounds up, so that a caller who waits this long waits long enough. At least 1, so that no caller retries at once.
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
    fn the_wait_is_rounded_up_to_whole_seconds() {
        let cases = [(0, 1), (1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60), (59_500, 60)];
        for (wait, seconds) in cases {
            let wait = Duration::from_millis(wait);
            let error =
                Error::new(ErrorKind::TooManyRequests, "Wait.").detail("limit", "streams").after(wait);
            assert_eq!((error.retry_after(), error.retry_after_seconds()), (Some(wait), Some(seconds)));
            let detail = ("retryAfterSeconds".to_owned(), seconds.to_string());
            assert_eq!(error.details(), [("limit".to_owned(), "streams".to_owned()), detail], "{wait:?}");
        }
        let error = Error::new(ErrorKind::TooManyRequests, "Wait.");
        assert_eq!((error.retry_after(), error.retry_after_seconds()), (None, None));
    }

    #[test]
    fn retryable_overrides_the_kind() {
        let refused = Error::new(ErrorKind::UpstreamHttpError, "The agent refused.");
        assert_eq!(refused.retry(), Retry::Never);
        assert_eq!(refused.retryable().retry(), Retry::Later);
    }

    #[test]
    fn only_temporary_kinds_are_retryable() {
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
