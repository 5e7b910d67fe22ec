//! The error table of 0.3, and the two formats of an error, for JSON-RPC and REST. Both formats are flat, with a field `type` that
//! names the kind of error.
//!
//! The HTTP status codes are those of the last release of 0.3. Words and numbers that A2A does not define are those of the Python
//! gateway that this gateway replaces. Its clients check `type`, because several errors share a number.

use std::borrow::Cow;

use bytes::Bytes;
use longshore_model::{Error, ErrorKind};
use serde_json::value::RawValue;

use super::Dialect;
use crate::json::{ObjectWriter, on_one_line, write_text};
use crate::jsonrpc::{self, Id};

#[cfg(test)]
mod tests;

/// The codes and the `type` of one kind of error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The code of the JSON-RPC error object.
    pub code: i32,
    /// The status of a REST response. A JSON-RPC response has this status only if the gateway refused the request before it had
    /// read the whole body (401, 403, 413, 429), or if a handler panicked (500). All other JSON-RPC errors have status 200.
    pub http: u16,
    /// The `type`, which programs should check.
    pub word: &'static str,
}

pub fn row(kind: ErrorKind) -> Row {
    let (code, http, word) = match kind {
        ErrorKind::Parse => (-32700, 400, "PARSE_ERROR"),
        ErrorKind::InvalidRequest => (-32600, 400, "INVALID_REQUEST"),
        ErrorKind::MethodNotFound => (-32601, 404, "METHOD_NOT_SUPPORTED"),
        ErrorKind::InvalidParams => (-32602, 400, "INVALID_PARAMS"),
        ErrorKind::Internal => (-32603, 500, "INTERNAL_ERROR"),

        ErrorKind::TaskNotFound => (-32001, 404, "TASK_NOT_FOUND"),
        ErrorKind::TaskNotCancelable => (-32002, 409, "TASK_NOT_CANCELABLE"),
        ErrorKind::PushNotSupported => (-32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ErrorKind::UnsupportedOperation => (-32004, 400, "UNSUPPORTED_OPERATION"),
        ErrorKind::ContentTypeNotSupported => (-32005, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        ErrorKind::InvalidAgentResponse => (-32006, 502, "INVALID_AGENT_RESPONSE"),
        ErrorKind::ExtendedCardNotConfigured => (-32007, 400, "AUTHENTICATED_EXTENDED_CARD_NOT_CONFIGURED"),
        // A2A 0.3 has neither of these two errors. The first has the number that the Python gateway uses. The second has the number
        // of an unsupported operation, because it has the same effect.
        ErrorKind::VersionNotSupported => (-32001, 400, "VERSION_NOT_SUPPORTED"),
        ErrorKind::ExtensionRequired => (-32004, 400, "EXTENSION_SUPPORT_REQUIRED"),

        ErrorKind::Unauthenticated => (-31051, 401, "UNAUTHENTICATED"),
        ErrorKind::PermissionDenied | ErrorKind::AuthorizationForbidden => {
            (-32007, 403, "AUTHORIZATION_FORBIDDEN")
        }
        ErrorKind::RouteNotFound => (-31053, 404, "ROUTE_NOT_FOUND"),
        ErrorKind::VerbNotAllowed => (-31054, 405, "METHOD_NOT_ALLOWED"),
        ErrorKind::WrongBinding => (-31061, 400, "INVALID_HTTP_JSON_PAYLOAD"),
        ErrorKind::BodyTooLarge => (-31055, 413, "REQUEST_BODY_TOO_LARGE"),
        ErrorKind::TooManyRequests => (-31056, 429, "TOO_MANY_REQUESTS"),
        ErrorKind::StreamBudgetExceeded => (-31062, 429, "STREAM_BUDGET_EXCEEDED"),
        ErrorKind::UpstreamBackpressure => (-31063, 429, "UPSTREAM_BACKPRESSURE"),
        ErrorKind::Unavailable => (-31057, 503, "UNAVAILABLE"),
        ErrorKind::AgentUnavailable | ErrorKind::UpstreamUnreachable => (-32002, 503, "UPSTREAM_UNREACHABLE"),
        ErrorKind::SessionGone | ErrorKind::SessionNotFound => (-32001, 404, "SESSION_NOT_FOUND"),
        ErrorKind::SessionBusy => (-31060, 409, "SESSION_BUSY"),

        ErrorKind::InterruptNotFound => (-32004, 404, "INTERRUPT_REQUEST_NOT_FOUND"),
        ErrorKind::InterruptExpired => (-32007, 400, "INTERRUPT_REQUEST_EXPIRED"),
        ErrorKind::InterruptTypeMismatch => (-32008, 400, "INTERRUPT_TYPE_MISMATCH"),
        ErrorKind::ExtensionNotActivated => (-32004, 400, "EXTENSION_NEGOTIATION_REQUIRED"),

        ErrorKind::SessionForbidden => (-32006, 403, "SESSION_FORBIDDEN"),
        ErrorKind::UpstreamHttpError => (-32003, 502, "UPSTREAM_HTTP_ERROR"),
        ErrorKind::UpstreamPayloadError => (-32005, 502, "UPSTREAM_PAYLOAD_ERROR"),
        ErrorKind::MethodDisabled => (-32601, 404, "METHOD_DISABLED"),
    };
    Row { code, http, word }
}

/// The error response to a JSON-RPC request.
pub fn jsonrpc(id: &Id, error: &Error) -> Bytes {
    jsonrpc::answer(id, 320, |object| {
        object.object("error", |object| {
            object.number("code", row(error.kind()).code);
            object.text("message", error.message());
            object.object("data", |data| write_facts(data, error, Dialect::Rpc));
        });
    })
}

/// The body of a failed REST request. Old clients expect the text under one of two names, depending on the server for which they
/// were written. JavaScript clients recognize an error only by its JSON-RPC code.
pub fn rest_body(error: &Error) -> Bytes {
    let mut out = Vec::with_capacity(320);
    let mut body = ObjectWriter::begin(&mut out);
    let text = respelled(error.message(), Dialect::Rest);
    body.text("message", &text);
    body.text("error", &text);
    body.number("code", row(error.kind()).code);
    write_facts(&mut body, error, Dialect::Rest);
    body.end();
    out.into()
}

/// Writes the `type` of an error and its other machine-readable details.
fn write_facts(object: &mut ObjectWriter<'_>, error: &Error, dialect: Dialect) {
    object.text("type", word(error));
    let violations = error.violations();
    let lists_fields = error.details().iter().any(|(name, _)| name == "fields");
    match violations {
        [] => {}
        [violation] if !lists_fields => object.text("field", &respelled(&violation.field, dialect)),
        _ => object.texts("fields", violations.iter().map(|violation| respelled(&violation.field, dialect))),
    }
    let details = error.details();
    for (index, (name, value)) in details.iter().enumerate() {
        // A later detail replaces an earlier one of the same name. Fields that are already written cannot be replaced.
        let is_replaced = details[index + 1..].iter().any(|(later, _)| later == name);
        let is_taken = matches!(name.as_str(), "type" | "message" | "error" | "code")
            || (!violations.is_empty() && matches!(name.as_str(), "field" | "fields"));
        if !is_replaced && !is_taken {
            let value = if name == "field" { respelled(value, dialect) } else { value.into() };
            write_fact(object.foreign_key(&snake_case(name)), name, &value);
        }
    }
}

/// Rewrites a text that begins with the name of a field. The engine writes `message.parts`, but a REST client sent the parts under
/// another name.
fn respelled(text: &str, dialect: Dialect) -> Cow<'_, str> {
    match text.strip_prefix("message.parts") {
        Some(rest) if dialect == Dialect::Rest && !rest.starts_with(|c: char| c.is_alphanumeric()) => {
            format!("message.{}{rest}", dialect.spelling().parts[0]).into()
        }
        _ => text.into(),
    }
}

/// The `type` of an error. For invalid parameters it depends on whether one field is at fault.
fn word(error: &Error) -> &'static str {
    match (error.kind(), error.violations()) {
        // The detail `unsupported` names a style of paging that this gateway does not support.
        (ErrorKind::InvalidParams, _) if error.details().iter().any(|(name, _)| name == "unsupported") => {
            "INVALID_PAGINATION_MODE"
        }
        (ErrorKind::InvalidParams, [violation]) if violation.description == "is required" => "MISSING_FIELD",
        (ErrorKind::InvalidParams, [_, ..]) => "INVALID_FIELD",
        (kind, _) => row(kind).word,
    }
}

/// The details that are numbers. All details are stored as text, because 1.0 has only text. An id that consists of digits stays
/// text.
const NUMBERS: [&str; 6] = ["maxBytes", "actualSize", "upstreamStatus", "limit", "max", "retryAfterSeconds"];

/// The details that are lists. A text of the caller may look like a list, and stays text.
const LISTS: [&str; 10] = [
    "acceptedOutputModes",
    "fields",
    "requestedExtensions",
    "requiredExtensions",
    "requiredOutputModes",
    "supported",
    "supportedMethods",
    "supportedOutputModes",
    "supportedProtocolVersions",
    "unsupported",
];

fn write_fact(out: &mut Vec<u8>, name: &str, value: &str) {
    let is_number = NUMBERS.contains(&name) && value.parse::<u64>().is_ok();
    let is_list = LISTS.contains(&name) && serde_json::from_str::<Vec<&RawValue>>(value).is_ok();
    if is_number || is_list {
        out.extend_from_slice(on_one_line(value).as_bytes());
    } else {
        write_text(out, value);
    }
}

pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}
