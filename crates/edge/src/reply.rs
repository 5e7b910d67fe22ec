//! Builds responses: bodies, headers, and the format of an error in each binding.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use longshore_engine::RareLine;
use longshore_model::{Error, ErrorKind, Origin};
use longshore_wire::jsonrpc::Id;

use crate::count;
use crate::media::Media;
use crate::multiplexer::MessageHead;
use crate::rules::Errors;
use crate::version::{ProtocolVersion, VERSION_HEADER};
pub(crate) type Response = http::Response<Body>;

/// The body of a response. hyper pulls it, so nothing is produced before the socket has room for it.
pub(crate) enum Body {
    Full(Bytes),
    Events(BoxStream<'static, Bytes>),
    /// The messages of a gRPC call, and its trailers.
    Grpc(BoxStream<'static, Frame<Bytes>>),
    /// A file of which exactly `left` bytes remain. If reading fails, the connection is closed in the middle of the response,
    /// because a response that has begun cannot be withdrawn in another way.
    File {
        chunks: BoxStream<'static, io::Result<Bytes>>,
        left: u64,
    },
    /// A WebSocket, which takes over the connection.
    Socket(Arc<MessageHead>),
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Socket(_) => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => {
                events.as_mut().poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Grpc(frames) => frames.as_mut().poll_next(cx).map(|next| next.map(Ok)),
            Self::File { chunks, left } => chunks.as_mut().poll_next(cx).map_ok(|bytes| {
                *left = left.saturating_sub(bytes.len() as u64);
                Frame::data(bytes)
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Events(_) | Self::Grpc(_) | Self::Socket(_) => SizeHint::default(),
            Self::File { left, .. } => SizeHint::with_exact(*left),
        }
    }
}

/// Sets the protocol version of a response, unless it is set already.
pub(crate) fn set_version(response: &mut Response, version: ProtocolVersion) {
    let version = HeaderValue::from_static(version.as_str());
    response.headers_mut().entry(VERSION_HEADER).or_insert(version);
}

/// The protocol version that the response names.
pub(crate) fn version_of(response: &Response) -> Option<ProtocolVersion> {
    let named = response.headers().get(VERSION_HEADER)?;
    ProtocolVersion::ALL.into_iter().find(|version| named == version.as_str())
}

/// Copies an error from the body into the head of the response: its kind for the metrics, and `Retry-After` for clients that
/// retry automatically.
pub(crate) fn note_error(response: &mut Response, error: &Error) {
    count::note_error(response, error.kind());
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// Removes the body of a response to HEAD. Keeps the headers, which are those that a GET would get.
pub(crate) fn strip_body(response: &mut Response) {
    if let Body::Full(body) = response.body_mut() {
        let length = std::mem::take(body).len();
        if length > 0 {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
}

pub(crate) fn empty(status: StatusCode) -> Response {
    full(status, Bytes::new())
}

pub(crate) fn full(status: StatusCode, body: Bytes) -> Response {
    with_status(status, Body::Full(body))
}

pub(crate) fn json(status: StatusCode, media: Media, body: Bytes) -> Response {
    let mut response = full(status, body);
    response.headers_mut().insert(CONTENT_TYPE, media.header());
    response
}

pub(crate) fn events(events: BoxStream<'static, Bytes>) -> Response {
    let mut response = with_status(StatusCode::OK, Body::Events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Without this header, nginx and similar proxies hold events back until their buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(crate) fn file(
    status: StatusCode,
    chunks: BoxStream<'static, io::Result<Bytes>>,
    length: u64,
) -> Response {
    with_status(status, Body::File { chunks, left: length })
}

/// An error of the REST binding, with its HTTP status.
pub(crate) fn rest_error(errors: &Errors, error: &Error, media: Media) -> Response {
    let status = StatusCode::from_u16((errors.status)(error.kind()));
    json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), media, (errors.rest)(error))
}

/// An error of the JSON-RPC binding. The status is 200, except for four kinds of refusals whose status proxies and HTTP clients
/// check. These refusals are sent before the whole body is read, so their id is null. A response with an id always has status 200.
pub(crate) fn rpc_error(errors: &Errors, id: &Id, error: &Error) -> Response {
    let status = match (id, error.kind()) {
        (Id::Null, ErrorKind::Unauthenticated) => StatusCode::UNAUTHORIZED,
        (Id::Null, ErrorKind::PermissionDenied) => StatusCode::FORBIDDEN,
        (Id::Null, ErrorKind::BodyTooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        (Id::Null, ErrorKind::TooManyRequests) => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::OK,
    };
    json(status, Media::Json, (errors.rpc)(id, error))
}

static UNAVAILABLE: RareLine = RareLine::new();

/// Logs an error. Called once for each error, when its response is built. Only the kind and the private cause are logged, because
/// the public text may quote what the caller sent.
pub(crate) fn log(error: &Error, what: &str) {
    let kind = error.kind();
    let cause = error.cause().map(chain);
    let cause = cause.as_deref().unwrap_or("none");
    match error.origin() {
        Origin::Caller => tracing::debug!(?kind, origin = "caller", cause, what, "request refused"),
        Origin::Agent => tracing::warn!(?kind, origin = "agent", cause, what, "request failed"),
        // While the store fails, every send is refused for the same reason, so this line is limited.
        Origin::Gateway if kind == ErrorKind::Unavailable => {
            if let Some(refused) = UNAVAILABLE.due() {
                tracing::warn!(?kind, origin = "gateway", refused, cause, what, "request failed");
            }
        }
        Origin::Gateway => tracing::warn!(?kind, origin = "gateway", cause, what, "request failed"),
    }
}

fn chain(cause: &(dyn std::error::Error + Send + Sync)) -> String {
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

pub(crate) fn with_status(status: StatusCode, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    // A response for one caller must not be cached for another. Caches recognize `Authorization`, but no other way of presenting
    // a credential. Responses that may be cached replace this header.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
