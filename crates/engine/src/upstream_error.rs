//! Errors of the agent, as callers of control methods get them.
//!
//! A turn reports errors that say what happens to the task. A caller of a control method needs an error that says what happened
//! to the call.

use std::time::Duration;

use longshore_model::{Error, ErrorKind};

/// The error detail with the HTTP status of the agent's response.
pub const UPSTREAM_STATUS: &str = "upstreamStatus";

/// The retry hint for a temporary error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Converts the error of a turn, or of a query before a turn, into the error of a control call. Text, details and cause do not
/// change. The kind changes, and the error gets a retry hint if a retry may help.
pub fn to_control_error(error: Error) -> Error {
    let status = error.find_detail(UPSTREAM_STATUS).and_then(|status| status.parse().ok());
    match (error.kind(), status) {
        (ErrorKind::AgentUnavailable | ErrorKind::InvalidAgentResponse, Some(status)) => {
            with_retry_hint(error.with_kind(ErrorKind::UpstreamHttpError), status)
        }
        (ErrorKind::AgentUnavailable, None) if error.is_permanent() => {
            error.with_kind(ErrorKind::UpstreamUnreachable)
        }
        (ErrorKind::AgentUnavailable, None) => with_hint(error.with_kind(ErrorKind::UpstreamUnreachable)),
        (ErrorKind::InvalidAgentResponse, None) => error.with_kind(ErrorKind::UpstreamPayloadError),
        (ErrorKind::SessionGone, _) => error.with_kind(ErrorKind::SessionNotFound),
        _ => error,
    }
}

/// Adds a retry hint if the HTTP status of the agent's response says that a retry may help.
pub fn with_retry_hint(error: Error, status: u16) -> Error {
    match status {
        409 | 429 | 500.. => with_hint(error.retryable()),
        _ => error,
    }
}

fn with_hint(error: Error) -> Error {
    if error.retry_after().is_some() { error } else { error.after(RETRY_AFTER) }
}

#[cfg(test)]
mod tests {
    use longshore_model::Retry;

    use super::*;

    #[test]
    fn each_error_of_a_turn_has_its_word_for_callers_and_keeps_what_it_says() {
        let cases = [
            (ErrorKind::AgentUnavailable, None, "UPSTREAM_UNREACHABLE", true),
            (ErrorKind::AgentUnavailable, Some(401), "UPSTREAM_HTTP_ERROR", false),
            (ErrorKind::InvalidAgentResponse, None, "UPSTREAM_PAYLOAD_ERROR", false),
            (ErrorKind::InvalidAgentResponse, Some(400), "UPSTREAM_HTTP_ERROR", false),
            (ErrorKind::InvalidAgentResponse, Some(404), "UPSTREAM_HTTP_ERROR", false),
            (ErrorKind::InvalidAgentResponse, Some(409), "UPSTREAM_HTTP_ERROR", true),
            (ErrorKind::InvalidAgentResponse, Some(429), "UPSTREAM_HTTP_ERROR", true),
            (ErrorKind::InvalidAgentResponse, Some(500), "UPSTREAM_HTTP_ERROR", true),
            (ErrorKind::InvalidAgentResponse, Some(503), "UPSTREAM_HTTP_ERROR", true),
            (ErrorKind::SessionGone, None, "SESSION_NOT_FOUND", false),
            (ErrorKind::UpstreamBackpressure, None, "UPSTREAM_BACKPRESSURE", false),
            (ErrorKind::InvalidParams, None, "INVALID_PARAMS", false),
        ];
        for (kind, status, word, again) in cases {
            let error = Error::new(kind, "What went wrong.").caused_by("the cause").detail("more", "facts");
            let error = status
                .iter()
                .fold(error, |error, status: &u16| error.detail(UPSTREAM_STATUS, status.to_string()));
            let converted = to_control_error(error);
            assert_eq!(
                (converted.kind().label(), converted.retry_after().is_some()),
                (word, again),
                "{kind:?} {status:?}"
            );
            assert!(!again || converted.retry() == Retry::Later, "{kind:?} {status:?}");
            assert_eq!(
                (converted.message(), converted.find_detail("more")),
                ("What went wrong.", Some("facts"))
            );
            assert_eq!(
                converted.find_detail(UPSTREAM_STATUS),
                status.map(|status| status.to_string()).as_deref()
            );
            assert_eq!(converted.cause().map(ToString::to_string).as_deref(), Some("the cause"));
        }
        let converted =
            to_control_error(Error::new(ErrorKind::AgentUnavailable, "Away.").after(Duration::from_secs(9)));
        assert_eq!(converted.details().len(), 1, "one hint is enough: {:?}", converted.details());
        let permanent =
            to_control_error(Error::new(ErrorKind::AgentUnavailable, "Away for good.").permanent());
        assert_eq!(permanent.retry_after(), None);
    }
}
