//! Logs the bodies of requests and responses, for an operator who investigates a problem. Off by default.
//!
//! Only values that are known to be harmless are logged (see `redact`). Some bodies are never logged, whatever the configuration
//! says: streams, bodies that are not JSON, and calls of extension methods. The latter contain other people's work (sessions,
//! workspaces), decisions about it (asks), and the agent's configuration (providers).

mod redact;

use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use tracing::Level;

use crate::PayloadLog;
use crate::media;
use crate::reply::{Body, Response};

/// Logs the body of a request. `operation`: its name; `None`: the method is not part of the protocol.
pub(crate) fn log_request(config: PayloadLog, operation: Option<&str>, headers: &HeaderMap, body: &[u8]) {
    let declared = || headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if is_json(headers)
        && let Some((what, body)) = loggable(config, operation, declared, body)
    {
        tracing::debug!(what, body, "request body");
    }
}

/// Logs the parameters of a gRPC call, as JSON.
pub(crate) fn log_call(config: PayloadLog, operation: Option<&str>, params: &[u8]) {
    if let Some((what, body)) = loggable(config, operation, || Some(params.len()), params) {
        tracing::debug!(what, body, "request body");
    }
}

/// Logs the body of a response, unless the response is a stream or a file.
pub(crate) fn log_response(config: PayloadLog, operation: Option<&str>, response: &Response) {
    let Body::Full(body) = response.body() else { return };
    if is_json(response.headers())
        && let Some((what, body)) = loggable(config, operation, || Some(body.len()), body)
    {
        let status = response.status().as_u16();
        tracing::debug!(what, status, body, "response body");
    }
}

/// The name of the operation and the redacted body. `None`: the body may not be logged.
fn loggable<'a>(
    config: PayloadLog,
    operation: Option<&'a str>,
    declared_length: impl FnOnce() -> Option<usize>,
    body: &[u8],
) -> Option<(&'a str, String)> {
    let limit = config.body_limit;
    let is_short = || limit == 0 || declared_length().is_some_and(|length| length.max(body.len()) <= limit);
    let is_on = config.enabled && tracing::enabled!(Level::DEBUG);
    if !is_on || !is_short() {
        return None;
    }
    Some((operation?, redact::json(body)?))
}

fn is_json(headers: &HeaderMap) -> bool {
    media::check_content_type(headers, true).is_ok()
}
