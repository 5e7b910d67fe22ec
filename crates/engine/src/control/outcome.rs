//! The outcome of a control call in one word, for the audit log and for metrics.

use longshore_model::{Error, ErrorKind, Result};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    Success,
    InvalidParams,
    /// The operator switched the method off.
    Disabled,
    /// The credential lacks a capability.
    AuthorizationForbidden,
    /// The session belongs to another caller.
    Forbidden,
    Busy,
    /// The agent has no such session.
    NotFound,
    UpstreamHttpError,
    UpstreamUnreachable,
    UpstreamBackpressure,
    UpstreamPayloadError,
    InternalError,
}

impl Outcome {
    pub const ALL: [Self; 12] = [
        Self::Success,
        Self::InvalidParams,
        Self::Disabled,
        Self::AuthorizationForbidden,
        Self::Forbidden,
        Self::Busy,
        Self::NotFound,
        Self::UpstreamHttpError,
        Self::UpstreamUnreachable,
        Self::UpstreamBackpressure,
        Self::UpstreamPayloadError,
        Self::InternalError,
    ];

    pub fn of<T>(result: &Result<T>) -> Self {
        result.as_ref().err().map_or(Self::Success, Self::of_error)
    }

    pub fn of_error(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Parse
            | ErrorKind::InvalidRequest
            | ErrorKind::InvalidParams
            | ErrorKind::UnsupportedOperation
            | ErrorKind::ContentTypeNotSupported
            | ErrorKind::ExtensionRequired
            | ErrorKind::ExtensionNotActivated
            | ErrorKind::VersionNotSupported
            | ErrorKind::WrongBinding
            | ErrorKind::BodyTooLarge
            | ErrorKind::TaskNotFound
            | ErrorKind::TaskNotCancelable
            | ErrorKind::InterruptNotFound
            | ErrorKind::InterruptExpired
            | ErrorKind::InterruptTypeMismatch
            | ErrorKind::PushNotSupported
            | ErrorKind::ExtendedCardNotConfigured
            | ErrorKind::RouteNotFound
            | ErrorKind::VerbNotAllowed => Self::InvalidParams,
            ErrorKind::MethodNotFound | ErrorKind::MethodDisabled => Self::Disabled,
            ErrorKind::Unauthenticated | ErrorKind::AuthorizationForbidden => Self::AuthorizationForbidden,
            ErrorKind::PermissionDenied | ErrorKind::SessionForbidden => Self::Forbidden,
            ErrorKind::SessionBusy | ErrorKind::TooManyRequests | ErrorKind::StreamBudgetExceeded => {
                Self::Busy
            }
            ErrorKind::SessionGone | ErrorKind::SessionNotFound => Self::NotFound,
            ErrorKind::UpstreamHttpError => Self::UpstreamHttpError,
            ErrorKind::AgentUnavailable | ErrorKind::UpstreamUnreachable => Self::UpstreamUnreachable,
            ErrorKind::UpstreamBackpressure => Self::UpstreamBackpressure,
            ErrorKind::InvalidAgentResponse | ErrorKind::UpstreamPayloadError => Self::UpstreamPayloadError,
            ErrorKind::Internal | ErrorKind::Unavailable => Self::InternalError,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::InvalidParams => "invalid_params",
            Self::Disabled => "disabled",
            Self::AuthorizationForbidden => "authorization_forbidden",
            Self::Forbidden => "forbidden",
            Self::Busy => "busy",
            Self::NotFound => "upstream_404",
            Self::UpstreamHttpError => "upstream_http_error",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamBackpressure => "upstream_backpressure",
            Self::UpstreamPayloadError => "upstream_payload_error",
            Self::InternalError => "internal_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_word_of_its_own_and_some_result_maps_to_it() {
        let words: std::collections::HashSet<_> = Outcome::ALL.map(Outcome::as_str).into();
        assert_eq!(words.len(), Outcome::ALL.len());
        let of_kind = |kind| Outcome::of::<()>(&Err(Error::new(kind, "No.")));
        let mut seen: Vec<_> = ErrorKind::ALL.into_iter().map(of_kind).collect();
        seen.push(Outcome::of(&Ok(())));
        assert!(Outcome::ALL.iter().all(|outcome| seen.contains(outcome)));
    }
}
