//! The error table of 1.0, with the codes and names of specification 1.0.1, and the two formats of an error, for JSON-RPC and REST.

use bytes::Bytes;
use longshore_model::{Error, ErrorKind};

use crate::json::ObjectWriter;

/// The codes and names of one kind of error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The code of the JSON-RPC error object.
    pub code: i32,
    /// The status of a REST response. A JSON-RPC response has this status only if the gateway refused the request before it had
    /// read the whole body (401, 403, 413, 429), or if a handler panicked (500). All other JSON-RPC errors have status 200.
    pub http: u16,
    /// The canonical name of the status.
    pub status: &'static str,
    /// The `reason` of the `ErrorInfo`, which programs should check.
    pub reason: &'static str,
}

/// The namespace of every reason.
pub const DOMAIN: &str = "a2a-protocol.org";

/// Looks up the codes of an error kind.
///
/// A2A reserves -32001 to -32099, and JSON-RPC reserves all codes from -32768 to -32000. The gateway's own kinds use -31051 and
/// lower numbers, which are outside of both ranges, so that a client of a later A2A never takes such a code for one of A2A. Error
/// kinds of the extensions share codes with other kinds, because the specifications of the extensions say so. Clients tell them
/// apart by the reason.
pub fn row(kind: ErrorKind) -> Row {
    let (code, http, status, reason) = match kind {
        ErrorKind::Parse => (-32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR"),
        ErrorKind::InvalidRequest => (-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
        ErrorKind::MethodNotFound => (-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
        ErrorKind::InvalidParams => (-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"),
        ErrorKind::Internal => (-32603, 500, "INTERNAL", "INTERNAL_ERROR"),

        ErrorKind::TaskNotFound => (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ErrorKind::TaskNotCancelable => (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        ErrorKind::PushNotSupported => {
            (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED")
        }
        ErrorKind::UnsupportedOperation => (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ErrorKind::ContentTypeNotSupported => (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
        ErrorKind::InvalidAgentResponse => (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
        ErrorKind::ExtendedCardNotConfigured => {
            (-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
        }
        ErrorKind::ExtensionRequired => (-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
        ErrorKind::VersionNotSupported => (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),

        ErrorKind::Unauthenticated => (-31051, 401, "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ErrorKind::PermissionDenied => (-31052, 403, "PERMISSION_DENIED", "PERMISSION_DENIED"),
        ErrorKind::RouteNotFound => (-31053, 404, "NOT_FOUND", "ROUTE_NOT_FOUND"),
        // No canonical name corresponds to 405. This one is the closest.
        ErrorKind::VerbNotAllowed => (-31054, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED"),
        ErrorKind::WrongBinding => (-31061, 400, "INVALID_ARGUMENT", "INVALID_HTTP_JSON_PAYLOAD"),
        ErrorKind::BodyTooLarge => (-31055, 413, "RESOURCE_EXHAUSTED", "REQUEST_BODY_TOO_LARGE"),
        ErrorKind::TooManyRequests => (-31056, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS"),
        // This error usually comes in the middle of a stream. The HTTP status is then already 200, and this status is only in the
        // frame.
        ErrorKind::StreamBudgetExceeded => (-31062, 429, "RESOURCE_EXHAUSTED", "STREAM_BUDGET_EXCEEDED"),
        ErrorKind::UpstreamBackpressure => (-31063, 429, "RESOURCE_EXHAUSTED", "UPSTREAM_BACKPRESSURE"),
        ErrorKind::Unavailable => (-31057, 503, "UNAVAILABLE", "UNAVAILABLE"),
        // Not 502: the name UNAVAILABLE belongs to 503, clients retry on 503, and a 502 would look as if it came from a proxy in
        // front of the gateway.
        ErrorKind::AgentUnavailable => (-31058, 503, "UNAVAILABLE", "AGENT_UNAVAILABLE"),
        // A retry cannot help, but a new context can. So this is a failed precondition, for which A2A uses 400.
        ErrorKind::SessionGone => (-31059, 400, "FAILED_PRECONDITION", "SESSION_GONE"),
        // A retry can help. So this is a conflict, which A2A 1.1 uses for a task that changed in the meantime.
        ErrorKind::SessionBusy => (-31060, 409, "ABORTED", "SESSION_BUSY"),

        ErrorKind::InterruptNotFound => (-32004, 404, "NOT_FOUND", "INTERRUPT_REQUEST_NOT_FOUND"),
        ErrorKind::InterruptExpired => (-32007, 400, "FAILED_PRECONDITION", "INTERRUPT_REQUEST_EXPIRED"),
        ErrorKind::InterruptTypeMismatch => (-32008, 400, "INVALID_ARGUMENT", "INTERRUPT_TYPE_MISMATCH"),
        ErrorKind::ExtensionNotActivated => {
            (-32004, 400, "FAILED_PRECONDITION", "EXTENSION_NEGOTIATION_REQUIRED")
        }

        ErrorKind::SessionNotFound => (-32001, 404, "NOT_FOUND", "SESSION_NOT_FOUND"),
        ErrorKind::SessionForbidden => (-32006, 403, "PERMISSION_DENIED", "SESSION_FORBIDDEN"),
        ErrorKind::UpstreamUnreachable => (-32002, 503, "UNAVAILABLE", "UPSTREAM_UNREACHABLE"),
        ErrorKind::UpstreamHttpError => (-32003, 502, "UNKNOWN", "UPSTREAM_HTTP_ERROR"),
        ErrorKind::UpstreamPayloadError => (-32005, 502, "INTERNAL", "UPSTREAM_PAYLOAD_ERROR"),
        ErrorKind::AuthorizationForbidden => (-32007, 403, "PERMISSION_DENIED", "AUTHORIZATION_FORBIDDEN"),
        ErrorKind::MethodDisabled => (-32601, 404, "NOT_FOUND", "METHOD_DISABLED"),
    };
    Row { code, http, status, reason }
}

/// The body of a failed REST request, in the format of AIP-193.
pub fn rest_body(error: &Error) -> Bytes {
    let row = row(error.kind());
    let mut out = Vec::with_capacity(320);
    let mut body = ObjectWriter::begin(&mut out);
    body.object("error", |object| {
        object.number("code", row.http);
        object.text("status", row.status);
        object.text("message", error.message());
        write_details(object, "details", error);
    });
    body.end();
    out.into()
}

/// Writes the `error` of a JSON-RPC response.
pub(crate) fn write_jsonrpc(object: &mut ObjectWriter<'_>, error: &Error) {
    object.number("code", row(error.kind()).code);
    object.text("message", error.message());
    write_details(object, "data", error);
}

fn write_details(object: &mut ObjectWriter<'_>, key: &str, error: &Error) {
    let writers: [fn(&mut ObjectWriter<'_>, &Error); 2] = [write_error_info, write_bad_request];
    let used = if error.violations().is_empty() { 1 } else { 2 };
    object.array(key, &writers[..used], |out, write| {
        let mut detail = ObjectWriter::begin(out);
        write(&mut detail, error);
        detail.end();
    });
}

fn write_error_info(object: &mut ObjectWriter<'_>, error: &Error) {
    object.text("@type", "type.googleapis.com/google.rpc.ErrorInfo");
    object.text("reason", row(error.kind()).reason);
    object.text("domain", DOMAIN);
    let details = error.details();
    if !details.is_empty() {
        object.object("metadata", |object| {
            for (index, (name, value)) in details.iter().enumerate() {
                // A later detail replaces an earlier one of the same name, because an object has each key only once.
                let is_replaced = details[index + 1..].iter().any(|(later, _)| later == name);
                if !is_replaced {
                    crate::json::write_text(object.foreign_key(name), value);
                }
            }
        });
    }
}

fn write_bad_request(object: &mut ObjectWriter<'_>, error: &Error) {
    object.text("@type", "type.googleapis.com/google.rpc.BadRequest");
    object.array("fieldViolations", error.violations(), |out, violation| {
        let mut object = ObjectWriter::begin(out);
        object.text("field", &violation.field);
        object.text("description", &violation.description);
        object.end();
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write as _;

    use super::*;
    use crate::v03;

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for kind in ErrorKind::ALL {
            let Row { code, http, status, reason } = row(kind);
            writeln!(table, "{:<26} {code} {http} {status:<20} {reason}", format!("{kind:?}")).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn no_two_kinds_share_a_reason_and_only_those_of_extensions_share_a_code() {
        let of_extensions = [
            ErrorKind::InterruptNotFound,
            ErrorKind::InterruptExpired,
            ErrorKind::InterruptTypeMismatch,
            ErrorKind::ExtensionNotActivated,
            ErrorKind::SessionNotFound,
            ErrorKind::SessionForbidden,
            ErrorKind::UpstreamUnreachable,
            ErrorKind::UpstreamHttpError,
            ErrorKind::UpstreamPayloadError,
            ErrorKind::AuthorizationForbidden,
            ErrorKind::MethodDisabled,
        ];
        let kinds = ErrorKind::ALL.into_iter();
        let codes: HashSet<_> =
            kinds.clone().filter(|kind| !of_extensions.contains(kind)).map(|kind| row(kind).code).collect();
        let reasons: HashSet<_> = kinds.map(|kind| row(kind).reason).collect();
        let all = ErrorKind::ALL.len();
        assert_eq!((codes.len(), reasons.len()), (all - of_extensions.len(), all));
    }

    #[test]
    fn codes_of_the_gateway_are_outside_the_ranges_of_json_rpc_and_a2a() {
        const RESERVED: std::ops::RangeInclusive<i32> = -32768..=-32000;
        let own = [
            ErrorKind::Unauthenticated,
            ErrorKind::PermissionDenied,
            ErrorKind::RouteNotFound,
            ErrorKind::VerbNotAllowed,
            ErrorKind::WrongBinding,
            ErrorKind::BodyTooLarge,
            ErrorKind::TooManyRequests,
            ErrorKind::StreamBudgetExceeded,
            ErrorKind::UpstreamBackpressure,
            ErrorKind::Unavailable,
            ErrorKind::AgentUnavailable,
            ErrorKind::SessionGone,
            ErrorKind::SessionBusy,
        ];
        for kind in ErrorKind::ALL {
            assert_eq!(RESERVED.contains(&row(kind).code), !own.contains(&kind), "{kind:?}");
            // In 0.3, some of these kinds have the codes of the Python gateway.
            let old = v03::error::row(kind).code;
            assert!(RESERVED.contains(&old) || old == row(kind).code, "{kind:?}");
        }
    }

    #[test]
    fn a_rest_error_contains_its_details() {
        let version = Error::new(ErrorKind::VersionNotSupported, "A2A 2.0 is not spoken here; use 1.0.")
            .detail("requested", "9.9")
            .detail("supported", "1.0")
            .detail("requested", "2.0");
        let field = Error::invalid("pageSize", "must be from 1 to 100");
        let many = Error::new(ErrorKind::TooManyRequests, "Too many requests.")
            .detail("limit", "requests")
            .detail("max", "120")
            .after(std::time::Duration::from_millis(4200));
        for (name, error) in [("rest_version", version), ("rest_field", field), ("rest_many", many)] {
            insta::assert_snapshot!(name, std::str::from_utf8(&rest_body(&error)).unwrap());
        }
    }

    #[test]
    fn the_internal_cause_is_not_sent() {
        let error = Error::internal("disk /var/x is full");
        assert!(!std::str::from_utf8(&rest_body(&error)).unwrap().contains("disk"));
    }
}
