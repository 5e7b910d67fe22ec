//! The gRPC binding of both protocol versions, on HTTP/2.
//!
//! A call is a POST to `/service/call`. Its body is one message after a prefix of five bytes. The reply consists of such messages,
//! and its status is in the trailers. The messages are protocol buffers that correspond to the JSON of the REST binding. So a
//! call's message is converted to JSON and decoded like any other request, and the JSON of the reply is converted back.
//! [`Protobuf`] does the conversion, so that this crate does not depend on protocol buffers.
//!
//! The metadata of a call are its headers, with the same names as in the other bindings: `a2a-version`, `a2a-extensions`,
//! `authorization`, `x-api-key`, `last-event-id`. Only `grpc-timeout` is specific to gRPC. Each event has its id in its metadata,
//! as `longshore.cursor`.

mod call;
mod deadline;
pub(crate) mod services;
mod status;

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version};
use http_body::Frame;
use longshore_model::{Error, ErrorKind, EventId, Result};
use longshore_wire::surface::Operation;
use longshore_wire::v1::method::Method as OperationName;

pub(crate) use self::call::answer;
pub use self::services::{GrpcBody, GrpcServices};
pub(crate) use self::status::refusal;
use crate::reply::{self, Body, Response};
use crate::version::ProtocolVersion;

/// Converts the messages of A2A between protocol buffers and JSON.
pub trait Protobuf: fmt::Debug + Sync {
    /// Converts the message of a call into the parameters that the operation has in JSON-RPC. For 0.3 the result is in `ProtoJSON`.
    fn request(&self, version: ProtocolVersion, operation: OperationName, message: &[u8]) -> Result<String>;

    /// Converts the JSON of a REST response into the reply to a call.
    fn reply(&self, version: ProtocolVersion, operation: OperationName, json: &[u8]) -> Result<Vec<u8>>;

    /// Converts the JSON of an event into a stream message. `cursor`: the position at which a reader resumes after the event.
    fn event(&self, version: ProtocolVersion, cursor: Option<EventId>, json: &[u8]) -> Result<Vec<u8>>;

    /// Encodes a `google.rpc.Status` with the details of an error.
    fn status(&self, code: i32, error: &Error) -> Vec<u8>;
}

const CONTENT: &str = "application/grpc";

/// The length of the prefix of a message: a flag for compression, and the length of the message.
const PREFIX: usize = 5;

/// Whether a request is a gRPC call with messages in protocol buffers.
pub(crate) fn is_call(parts: &Parts) -> bool {
    let media = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    parts.version == Version::HTTP_2
        && parts.method == Method::POST
        && media.strip_prefix(CONTENT).is_some_and(|format| matches!(format, "" | "+proto"))
}

/// Marks an event that cannot be written as a message. It is shorter than any message with its prefix.
const UNWRITABLE: &[u8] = b"!";

/// The message of an event with its prefix. All readers of the same form share these bytes.
pub(crate) fn event(
    protobuf: &dyn Protobuf,
    version: ProtocolVersion,
    cursor: Option<EventId>,
    json: &[u8],
) -> Bytes {
    match protobuf.event(version, cursor, json) {
        Ok(message) => framed(&message),
        Err(error) => {
            reply::log(&error, "event");
            Bytes::from_static(UNWRITABLE)
        }
    }
}

/// Fails if the event could not be written, because a reader must not miss an event without knowing.
pub(crate) fn check_written(id: Option<EventId>, event: &[u8]) -> Result<()> {
    if event != UNWRITABLE {
        return Ok(());
    }
    let cursor = id.map(|id| format!(" {id}")).unwrap_or_default();
    let text = format!(
        "The event{cursor} cannot be written as a message of gRPC; read the task over JSON-RPC or HTTP+JSON."
    );
    Err(Error::new(ErrorKind::Internal, text))
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// The single message of a request.
fn only_message(body: &Bytes) -> Result<Bytes> {
    let incomplete =
        || Error::new(ErrorKind::InvalidRequest, "The call has no complete message; send exactly one.");
    let (prefix, message) = body.split_at_checked(PREFIX).ok_or_else(incomplete)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    if prefix[0] != 0 {
        return Err(Error::new(
            ErrorKind::VerbNotAllowed,
            "The message is compressed; send it without compression.",
        ));
    }
    match message.len().cmp(&length) {
        std::cmp::Ordering::Less => Err(incomplete()),
        std::cmp::Ordering::Equal => Ok(body.slice(PREFIX..)),
        std::cmp::Ordering::Greater => Err(Error::new(
            ErrorKind::InvalidRequest,
            "The call has more than one message; send exactly one.",
        )),
    }
}

/// A response whose body consists of these frames. The last frame holds the trailers.
fn response(frames: impl stream::Stream<Item = Frame<Bytes>> + Send + 'static) -> Response {
    let mut response = reply::with_status(StatusCode::OK, Body::Grpc(frames.boxed()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT));
    response
}

/// The row of an operation, if it is served over gRPC.
fn served(operation: Option<&'static Operation>) -> Result<&'static Operation> {
    operation.ok_or_else(|| Error::internal("a route without a gRPC operation"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_call_is_known_by_its_content_type() {
        let cases = [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/json", false),
        ];
        for (content, expected) in cases {
            for version in [Version::HTTP_2, Version::HTTP_11] {
                let request = Request::post("/").version(version).header(CONTENT_TYPE, content);
                let (parts, ()) = request.body(()).unwrap().into_parts();
                assert_eq!(is_call(&parts), expected && version == Version::HTTP_2, "{content} {version:?}");
            }
        }
    }

    #[test]
    fn a_call_has_exactly_one_message() {
        let read = |body: &[u8]| only_message(&Bytes::copy_from_slice(body)).map_err(|error| error.kind());
        assert_eq!(read(&framed(b"")), Ok(Bytes::new()));
        assert_eq!(read(&framed(b"abc")), Ok(Bytes::from_static(b"abc")));
        for bad in
            [&b""[..], &[0, 0, 0], &[0, 0, 0, 0, 2, 1], &[0, 0, 0, 0, 1, 1, 0], &[0, 255, 255, 255, 255]]
        {
            assert_eq!(read(bad), Err(ErrorKind::InvalidRequest), "{bad:?}");
        }
        assert_eq!(read(&[1, 0, 0, 0, 1, 1]), Err(ErrorKind::VerbNotAllowed));
    }
}
