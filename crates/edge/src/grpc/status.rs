//! The status of a call in its trailers: a number, a text and the details of an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use longshore_model::{Error, ErrorKind};
use longshore_wire::v1::error as codes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::{CONTENT, Protobuf};
use crate::reply::{self, Response};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Tells clients that they must not send compressed messages.
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// The characters of a status text that are percent-encoded: all except printable ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The status number of a call that reached its deadline.
const DEADLINE_EXCEEDED: i32 = 4;

/// The status numbers by the names in the table of errors.
const NUMBERS: [(&str, i32); 10] = [
    ("UNKNOWN", 2),
    ("INVALID_ARGUMENT", 3),
    ("NOT_FOUND", 5),
    ("PERMISSION_DENIED", 7),
    ("RESOURCE_EXHAUSTED", 8),
    ("FAILED_PRECONDITION", 9),
    ("ABORTED", 10),
    ("INTERNAL", 13),
    ("UNAVAILABLE", 14),
    ("UNAUTHENTICATED", 16),
];

const UNIMPLEMENTED: i32 = 12;

/// The trailers of a successful reply.
pub(super) fn complete() -> HeaderMap {
    HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))])
}

/// The trailers of a failed reply.
pub(super) fn failed(protobuf: &dyn Protobuf, error: &Error) -> HeaderMap {
    let code = number(error.kind());
    let mut trailers = of(code, error.message());
    let details = STANDARD_NO_PAD.encode(protobuf.status(code, error));
    trailers.insert(DETAILS, HeaderValue::try_from(details).expect("base64 is a header value"));
    trailers
}

/// The trailers of a call whose deadline has passed. Its client has already given up.
pub(super) fn late() -> HeaderMap {
    of(DEADLINE_EXCEEDED, "The deadline of the call has passed; a task that it sent or follows goes on.")
}

/// The response to a call whose deadline passed before its first message.
pub(super) fn late_response() -> Response {
    let mut late = without_message(late());
    reply::note_error(&mut late, &Error::new(ErrorKind::Unavailable, "The deadline has passed."));
    late
}

/// A response that consists only of an error. The status is then in its head, and there are no separate trailers.
pub(crate) fn refusal(protobuf: &dyn Protobuf, error: &Error) -> Response {
    without_message(failed(protobuf, error))
}

/// A response without a message.
fn without_message(trailers: HeaderMap) -> Response {
    let mut response = reply::empty(StatusCode::OK);
    let headers = response.headers_mut();
    headers.extend(trailers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

fn of(code: i32, text: &str) -> HeaderMap {
    let text = utf8_percent_encode(text, ESCAPED).to_string();
    HeaderMap::from_iter([
        (STATUS, HeaderValue::from(code)),
        (MESSAGE, HeaderValue::try_from(text).expect("the text is escaped")),
    ])
}

/// The status number of an error. Both versions use the numbers of 1.0, because 0.3 defines none.
fn number(kind: ErrorKind) -> i32 {
    match kind {
        // No service has these calls. For a gRPC client this means that a feature is missing, and not that an object was not found.
        ErrorKind::RouteNotFound | ErrorKind::MethodNotFound | ErrorKind::VerbNotAllowed => UNIMPLEMENTED,
        _ => {
            let name = codes::row(kind).status;
            NUMBERS.iter().find(|(own, _)| *own == name).map_or(UNIMPLEMENTED, |(_, number)| *number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_table_has_a_number() {
        for kind in ErrorKind::ALL {
            let name = codes::row(kind).status;
            let is_known = NUMBERS.iter().any(|(own, _)| *own == name);
            assert!(is_known || number(kind) == UNIMPLEMENTED && name == "UNIMPLEMENTED", "{kind:?} {name}");
        }
    }

    #[test]
    fn a_text_is_escaped() {
        assert_eq!(of(5, "100 % ü\n")[MESSAGE], "100 %25 %C3%BC%0A");
    }
}
