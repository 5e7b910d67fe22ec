//! What failed at the agent, in the words of those who control it.
//!
//! Turns have words of their own for it, which say what becomes of a task. Whoever called a method is told what the call came to.

use std::time::Duration;

use longshore_model::{Error, ErrorKind};

/// The fact that tells the status of the agent's answer.
pub const STATUS: &str = "upstreamStatus";

/// Whoever was refused for a moment comes again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// The error of a turn, or of what is asked on the way to one. The same text, facts and cause under another name, and with the hint
/// to come again where another time may do.
pub fn of_upstream(error: Error) -> Error {
    let status = error.fact(STATUS).and_then(|status| status.parse().ok());
    match (error.kind(), status) {
        (ErrorKind::AgentUnavailable | ErrorKind::InvalidAgentResponse, Some(status)) => {
            come_again(error.renamed(ErrorKind::UpstreamHttpError), status)
        }
        (ErrorKind::AgentUnavailable, None) if error.is_lasting() => {
            error.renamed(ErrorKind::UpstreamUnreachable)
        }
        (ErrorKind::AgentUnavailable, None) => hinted(error.renamed(ErrorKind::UpstreamUnreachable)),
        (ErrorKind::InvalidAgentResponse, None) => error.renamed(ErrorKind::UpstreamPayloadError),
        (ErrorKind::SessionGone, _) => error.renamed(ErrorKind::SessionNotFound),
        _ => error,
    }
}

/// With the hint to come again, if the status of the agent's answer says that another time may do.
pub fn come_again(error: Error, status: u16) -> Error {
    match status {
        409 | 429 | 500.. => hinted(error.retryable()),
        _ => error,
    }
}

fn hinted(error: Error) -> Error {
    if error.retry_after().is_some() { error } else { error.after(AGAIN) }
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
            let error =
                status.iter().fold(error, |error, status: &u16| error.detail(STATUS, status.to_string()));
            let told = of_upstream(error);
            assert_eq!(
                (told.kind().label(), told.retry_after().is_some()),
                (word, again),
                "{kind:?} {status:?}"
            );
            assert!(!again || told.retry() == Retry::Later, "{kind:?} {status:?}");
            assert_eq!((told.message(), told.fact("more")), ("What went wrong.", Some("facts")));
            assert_eq!(told.fact(STATUS), status.map(|status| status.to_string()).as_deref());
            assert_eq!(told.cause().map(ToString::to_string).as_deref(), Some("the cause"));
        }
        let told =
            of_upstream(Error::new(ErrorKind::AgentUnavailable, "Away.").after(Duration::from_secs(9)));
        assert_eq!(told.details().len(), 1, "one hint is enough: {:?}", told.details());
        let lasting = of_upstream(Error::new(ErrorKind::AgentUnavailable, "Away for good.").lasting());
        assert_eq!(lasting.retry_after(), None);
    }
}
