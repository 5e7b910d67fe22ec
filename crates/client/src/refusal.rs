//! Reads the errors that agents send, in the formats of both versions and bindings.

use std::time::Duration;

use longshore_model::ErrorKind as Known;
use longshore_wire::{v1, v03};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::plain::is_plain;

/// The longest error text of an agent that is kept, in characters.
const MAX_MESSAGE: usize = 1000;

pub(crate) const TOO_MANY_REQUESTS: u16 = 429;

/// Reads the `error` of a JSON-RPC response.
pub(crate) fn of_jsonrpc(error: &Value) -> Error {
    let code = error["code"].as_i64();
    let reason = reason(&error["data"]);
    let kind = reason.as_deref().and_then(kind_of_reason).or(code.and_then(kind_of_code));
    let retry_after = retry_after(&error["data"]);
    let message = said(error["message"].as_str().unwrap_or_default());
    Error::new(kind.unwrap_or(ErrorKind::AgentFailed), message).with_code(code, reason).after(retry_after)
}

/// Reads the status of a gRPC call.
pub(crate) fn of_grpc(
    code: i32,
    message: &str,
    reason: Option<String>,
    retry_after: Option<Duration>,
) -> Error {
    let kind = reason.as_deref().and_then(kind_of_reason).unwrap_or_else(|| kind_of_grpc(code));
    Error::new(kind, said(message)).with_code(None, reason).after(retry_after).throttled(code == 8)
}

/// The kind of error for a gRPC status number.
fn kind_of_grpc(code: i32) -> ErrorKind {
    match code {
        1 => ErrorKind::Lost,
        3 => ErrorKind::InvalidRequest,
        4 => ErrorKind::Timeout,
        5 => ErrorKind::TaskNotFound,
        7 => ErrorKind::Forbidden,
        8 | 14 => ErrorKind::Unavailable,
        // FAILED_PRECONDITION and UNIMPLEMENTED: the task is not in a state for the operation, or the agent lacks the operation.
        9 | 12 => ErrorKind::Unsupported,
        // OUT_OF_RANGE: the message is longer than the caller's limit.
        11 => ErrorKind::TooLarge,
        16 => ErrorKind::Unauthenticated,
        _ => ErrorKind::AgentFailed,
    }
}

/// Reads the body of a failed HTTP request. `None`: the body is no A2A error, so only the status says what happened.
pub(crate) fn of_body(status: u16, body: &Value) -> Option<Error> {
    // JSON-RPC and REST of 1.0 have the error in the field `error`; in REST of 0.3, the body itself is the error.
    let error = if body["error"].is_object() { &body["error"] } else { body };
    let message =
        ["message", "detail", "title", "error"].into_iter().find_map(|name| error[name].as_str())?;
    let reason = reason(error).or_else(|| reason(&error["details"])).or_else(|| reason(&error["data"]));
    // Only negative codes are those of JSON-RPC. The code of a REST error of 1.0 is its HTTP status.
    let code = error["code"].as_i64().filter(|code| *code < 0);
    let kind = reason.as_deref().and_then(kind_of_reason).or(code.and_then(kind_of_code));
    let retry_after = retry_after(&error["details"]).or_else(|| retry_after(&error["data"]));
    let kind = kind.unwrap_or_else(|| kind_of_status(status));
    let error = Error::new(kind, said(message)).with_code(code, reason).after(retry_after);
    Some(error.throttled(status == TOO_MANY_REQUESTS))
}

pub(crate) fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        401 => ErrorKind::Unauthenticated,
        403 | 407 => ErrorKind::Forbidden,
        405 | 501 => ErrorKind::Unsupported,
        408 => ErrorKind::Timeout,
        429 | 502 | 503 | 504 => ErrorKind::Unavailable,
        400 | 402 | 409..=428 | 431 => ErrorKind::InvalidRequest,
        500..=599 => ErrorKind::AgentFailed,
        // Includes 404: without an A2A error in the body, no A2A agent serves this URL.
        _ => ErrorKind::InvalidResponse,
    }
}

/// The machine-readable reason: `reason` of an `ErrorInfo` in an array, or `type` of an object.
fn reason(data: &Value) -> Option<String> {
    let word = match data {
        Value::Array(details) => details.iter().find_map(|detail| detail["reason"].as_str()),
        Value::Object(_) => data["type"].as_str().or(data["reason"].as_str()),
        _ => None,
    };
    // Agents other than Longshore have a URL in `type`.
    word.filter(|word| {
        word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    })
    .map(str::to_owned)
}

fn retry_after(data: &Value) -> Option<Duration> {
    let seconds = match data {
        Value::Array(details) => {
            details.iter().find_map(|detail| detail["metadata"]["retryAfterSeconds"].as_str()?.parse().ok())
        }
        _ => data["retryAfterSeconds"].as_str().and_then(|text| text.parse().ok()),
    };
    seconds.map(Duration::from_secs)
}

fn kind_of_reason(reason: &str) -> Option<ErrorKind> {
    let known = Known::ALL
        .into_iter()
        .find(|kind| v1::error::row(*kind).reason == reason || v03::error::row(*kind).word == reason)?;
    Some(kind_of(known))
}

/// The kind for an error code of A2A or JSON-RPC. Other codes have no common meaning among agents.
fn kind_of_code(code: i64) -> Option<ErrorKind> {
    Some(match code {
        -32001 => ErrorKind::TaskNotFound,
        -32002 => ErrorKind::TaskNotCancelable,
        -32003 | -32004 | -32007 | -32008 | -32601 => ErrorKind::Unsupported,
        -32005 | -32600 | -32602 | -32700 => ErrorKind::InvalidRequest,
        -32006 | -32603 => ErrorKind::AgentFailed,
        -32009 => ErrorKind::VersionNotSupported,
        _ => return None,
    })
}

fn kind_of(known: Known) -> ErrorKind {
    match known {
        Known::Unauthenticated => ErrorKind::Unauthenticated,
        Known::PermissionDenied | Known::AuthorizationForbidden | Known::SessionForbidden => {
            ErrorKind::Forbidden
        }
        Known::TaskNotFound => ErrorKind::TaskNotFound,
        Known::TaskNotCancelable => ErrorKind::TaskNotCancelable,
        Known::VersionNotSupported => ErrorKind::VersionNotSupported,
        Known::PushNotSupported
        | Known::UnsupportedOperation
        | Known::ExtendedCardNotConfigured
        | Known::MethodNotFound
        | Known::MethodDisabled
        | Known::RouteNotFound
        | Known::VerbNotAllowed => ErrorKind::Unsupported,
        Known::TooManyRequests
        | Known::StreamBudgetExceeded
        | Known::UpstreamBackpressure
        | Known::Unavailable
        | Known::AgentUnavailable
        | Known::UpstreamUnreachable
        | Known::SessionBusy => ErrorKind::Unavailable,
        Known::Internal
        | Known::InvalidAgentResponse
        | Known::UpstreamHttpError
        | Known::UpstreamPayloadError => ErrorKind::AgentFailed,
        _ => ErrorKind::InvalidRequest,
    }
}

/// The agent's error text, shortened and without characters that could change a terminal.
fn said(message: &str) -> String {
    let plain: String = message.chars().filter(|c| is_plain(*c) || *c == '\n').take(MAX_MESSAGE).collect();
    if plain.trim().is_empty() { "The agent gave no reason.".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use longshore_model::{Error as Refused, ErrorKind as Known};
    use longshore_wire::jsonrpc::{self, Id};
    use serde_json::json;

    use super::*;

    /// Every Longshore error has the same kind in every format in which it is sent.
    #[test]
    fn all_formats_of_an_error_have_the_same_kind() {
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        for known in Known::ALL {
            let refused = Refused::new(known, "No.").after(Duration::from_secs(7));
            let id = Id::Null;
            let kinds = [
                of_jsonrpc(&parse(&jsonrpc::error(&id, &refused))["error"]),
                of_jsonrpc(&parse(&v03::error::jsonrpc(&id, &refused))["error"]),
                of_body(v1::error::row(known).http, &parse(&v1::error::rest_body(&refused))).unwrap(),
                of_body(v03::error::row(known).http, &parse(&v03::error::rest_body(&refused))).unwrap(),
            ];
            for error in &kinds[1..] {
                let same = error.kind() == kinds[0].kind();
                // 0.3 has the same reason for these two errors.
                let shared = matches!(known, Known::SessionGone | Known::SessionNotFound);
                assert!(same || shared, "{known:?}: {kinds:?}");
            }
            assert!(kinds[0].message().contains("No."), "{known:?}");
        }
    }

    #[test]
    fn errors_of_other_agents_are_read_by_code_and_status() {
        let rpc = |code: i64| of_jsonrpc(&json!({"code": code, "message": "x"})).kind();
        assert_eq!(rpc(-32001), ErrorKind::TaskNotFound);
        assert_eq!(rpc(-32601), ErrorKind::Unsupported);
        assert_eq!(rpc(-1), ErrorKind::AgentFailed);
        let body = json!({"type": "https://example.com/p", "title": "Not found", "detail": "No task."});
        assert_eq!(of_body(404, &body).unwrap().message(), "No task.");
        assert!(of_body(404, &json!({"anything": 1})).is_none());
        for (status, kind) in [
            (401, ErrorKind::Unauthenticated),
            (403, ErrorKind::Forbidden),
            (404, ErrorKind::InvalidResponse),
            (429, ErrorKind::Unavailable),
            (500, ErrorKind::AgentFailed),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(kind_of_status(status), kind);
        }
    }

    /// Only a response of the agent itself, or of a rate limiter before it, proves that the agent did not accept the request.
    #[test]
    fn a_proxy_that_cannot_reach_the_agent_leaves_it_open_whether_the_request_arrived() {
        let (proxy, agent) =
            (json!({"message": "No."}), jsonrpc::error(&Id::Null, &Refused::new(Known::Unavailable, "No.")));
        let agent: Value = serde_json::from_slice(&agent).unwrap();
        for (error, may_have_arrived) in [
            (of_body(504, &proxy).unwrap(), true),
            (of_body(503, &agent).unwrap(), false),
            (of_body(429, &proxy).unwrap(), false),
            (of_grpc(14, "No.", None, None), true),
            (of_grpc(8, "No.", None, None), false),
            (of_jsonrpc(&agent["error"]), false),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(error.may_have_arrived(), may_have_arrived, "{error:?}");
        }
    }

    #[test]
    fn an_error_text_cannot_change_a_terminal_and_is_cut() {
        let error = of_jsonrpc(
            &json!({"code": 1, "message": format!("\u{1b}\u{9b}\u{202e}\u{2066}{}", "x".repeat(5000))}),
        );
        assert_eq!(error.message(), "x".repeat(MAX_MESSAGE));
    }
}
