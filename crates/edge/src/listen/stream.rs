//! Writes an event stream on an HTTP/1.1 connection without hyper.
//!
//! hyper keeps a read buffer and a write buffer, of 8 KB each, until a response ends, and a stream may last for hours. So when the
//! response is a stream, hyper gives the connection back, this module writes the stream, and a new hyper connection continues
//! afterwards.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::header::{CONNECTION, DATE, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::OpenRequest;
use crate::multiplexer::MessageHead;
use crate::reply::{self, Body, Response};

/// Events shorter than this are copied into the write buffer. Longer ones are written from the bytes that all readers share.
const COPIED_BELOW: usize = 2 * 1024;

/// How many bytes are pulled before they are written. While the client does not read, nothing more is pulled.
const PULLED: usize = 8 * 1024;

/// How many bytes of the next request are read during the stream. The reads detect a disconnect of the client. The rest of the
/// request waits in the kernel.
const NEXT: usize = 256;

/// Passes a stream from hyper's service to the task that owns the connection.
#[derive(Default)]
pub(super) struct Handover {
    handed: Mutex<Option<Handed>>,
    /// Whether some written bytes have not reached the kernel yet.
    is_unflushed: AtomicBool,
    /// Whether a request has arrived.
    has_request: AtomicBool,
    /// Whether the client may still send a part of the last request.
    has_unread: AtomicBool,
}

/// The response that takes over a connection.
pub(super) enum Handed {
    Stream(HandedStream),
    Socket(HandedSocket),
}

/// A WebSocket that takes over its connection until the connection ends.
pub(super) struct HandedSocket {
    /// The encoded head of the response.
    pub(super) head: Vec<u8>,
    pub(super) requests: Arc<MessageHead>,
    /// Keeps the request open until the WebSocket has ended.
    pub(super) open: OpenRequest,
}

/// A stream that takes over its connection.
pub(super) struct HandedStream {
    /// The encoded head of the response. Freed once it is written, because the stream may last for hours.
    head: Vec<u8>,
    events: BoxStream<'static, Bytes>,
    closes_connection: bool,
    /// Keeps the request open until the stream has ended.
    open: OpenRequest,
}

/// The facts of a request that decide whether its stream can take over the connection.
#[derive(Debug)]
pub(super) struct RequestFacts {
    can_be_handed_over: bool,
    closes_connection: bool,
    is_read: Arc<AtomicBool>,
}

/// The body of a request, which records whether it was read to its end. Only then do the next bytes of the connection belong to
/// the next request.
#[derive(Debug)]
pub(super) struct TrackedBody<B> {
    body: B,
    is_read: Arc<AtomicBool>,
}

/// The state of writing a stream.
struct StreamWriter<'a, S> {
    socket: &'a mut S,
    events: Option<BoxStream<'static, Bytes>>,
    /// The bytes to write. The first `written` of them are written.
    bytes: Vec<u8>,
    written: usize,
    /// A long event, which is written after `bytes`.
    long: Bytes,
    next: Vec<u8>,
}

impl Handover {
    /// Records whether some written bytes have not reached the kernel yet.
    pub(super) fn set_unflushed(&self, is_unflushed: bool) {
        self.is_unflushed.store(is_unflushed, Ordering::Relaxed);
    }

    pub(super) fn note_request(&self) {
        self.has_request.store(true, Ordering::Relaxed);
    }

    /// Whether a request has arrived. Before that, hyper writes only its own refusals.
    pub(super) fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Records whether the client may still send a part of the last request.
    pub(super) fn set_unread(&self, has_unread: bool) {
        self.has_unread.store(has_unread, Ordering::Relaxed);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.has_unread.load(Ordering::Relaxed)
    }

    /// Takes over the connection if the response is a stream for which that is possible. Otherwise returns the response.
    pub(super) fn offer(
        &self,
        facts: &RequestFacts,
        answer: Response,
        open: OpenRequest,
    ) -> Option<(Response, OpenRequest)> {
        let is_read = facts.is_read.load(Ordering::Relaxed);
        self.set_unread(!is_read);
        let can_be_handed_over =
            facts.can_be_handed_over && is_read && !self.is_unflushed.load(Ordering::Relaxed);
        let (head, body) = answer.into_parts();
        let handed = match body {
            Body::Events(events) if can_be_handed_over => {
                let (mut head, closes_connection) = (head, facts.closes_connection);
                head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                let head = encode_head(&head, closes_connection);
                Handed::Stream(HandedStream { head, events, closes_connection, open })
            }
            Body::Socket(requests) if can_be_handed_over => {
                Handed::Socket(HandedSocket { head: encode_head(&head, false), requests, open })
            }
            // The client sent the handshake before it had read the response to an earlier request.
            Body::Socket(_) => return Some((reply::empty(StatusCode::SERVICE_UNAVAILABLE), open)),
            body => return Some((Response::from_parts(head, body), open)),
        };
        *self.handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(handed);
        None
    }

    pub(super) fn take(&self) -> Option<Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("is_unflushed", &self.is_unflushed).finish_non_exhaustive()
    }
}

impl RequestFacts {
    /// Records the facts of a request before it is answered.
    pub(super) fn inspect<B: http_body::Body>(request: Request<B>) -> (Self, Request<TrackedBody<B>>) {
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        let headers = request.headers();
        let facts = Self {
            // hyper itself serves clients that wait for `100 Continue`, and clients that do not support chunked encoding.
            can_be_handed_over: request.version() == Version::HTTP_11
                && request.method() != Method::HEAD
                && !headers.contains_key(EXPECT),
            closes_connection: closes_connection(headers),
            is_read: Arc::clone(&is_read),
        };
        (facts, request.map(|body| TrackedBody { body, is_read }))
    }
}

/// Whether the client wants the connection closed after the response.
fn closes_connection(headers: &HeaderMap) -> bool {
    let words = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    words.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("close"))
}

impl<B: http_body::Body + Unpin> http_body::Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl HandedStream {
    /// Writes the stream to its end. Returns the bytes of the next request that were read meanwhile. `None`: the connection must be
    /// closed.
    ///
    /// This is not an async function, because its future would hold the arguments twice.
    pub(super) fn write<S>(
        self,
        socket: &mut S,
        next: &[u8],
    ) -> impl Future<Output = io::Result<Option<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { head, events, closes_connection, open } = self;
        let (events, next) = (Some(events), next.to_vec());
        let mut writing = StreamWriter { socket, events, bytes: head, written: 0, long: Bytes::new(), next };
        async move {
            std::future::poll_fn(|cx| writing.poll(cx)).await?;
            drop(open);
            Ok((!closes_connection).then(|| writing.next.into()))
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the Date header has the system time, as in hyper's responses")]
fn encode_head(head: &http::response::Parts, closes_connection: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let mut line = |words: &[&[u8]]| words.iter().chain(&[&b"\r\n"[..]]).for_each(|word| bytes.extend(*word));
    let reason = head.status.canonical_reason().unwrap_or_default();
    line(&[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes()]);
    for (name, value) in &head.headers {
        line(&[name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    line(&[DATE.as_str().as_bytes(), b": ", httpdate::fmt_http_date(SystemTime::now()).as_bytes()]);
    if closes_connection {
        line(&[CONNECTION.as_str().as_bytes(), b": close"]);
    }
    line(&[]);
    bytes
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamWriter<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.pull(cx);
            if self.bytes.is_empty() && self.long.is_empty() {
                // A plain socket holds no bytes back, but TLS does when the socket is full.
                let flushed = Pin::new(&mut *self.socket).poll_flush(cx)?;
                if flushed.is_ready() && self.events.is_none() {
                    return Poll::Ready(Ok(()));
                }
                break;
            }
            let slices = [IoSlice::new(&self.bytes[self.written..]), IoSlice::new(&self.long)];
            match Pin::new(&mut *self.socket).poll_write_vectored(cx, &slices) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(taken)) => self.note_written(taken),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        self.poll_client(cx)
    }

    /// Pulls further events, once all pulled bytes are written.
    fn pull(&mut self, cx: &mut Context<'_>) {
        if self.written > 0 || !self.long.is_empty() {
            return;
        }
        while self.bytes.len() < PULLED
            && self.long.is_empty()
            && let Some(events) = &mut self.events
        {
            match events.as_mut().poll_next(cx) {
                // An empty chunk would end the response.
                Poll::Ready(Some(bytes)) if bytes.is_empty() => {}
                Poll::Ready(Some(bytes)) => {
                    self.bytes.reserve(if bytes.len() < COPIED_BELOW { bytes.len() + 16 } else { 16 });
                    self.bytes.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
                    if bytes.len() < COPIED_BELOW {
                        self.bytes.extend(&bytes[..]);
                        self.bytes.extend(b"\r\n");
                    } else {
                        self.long = bytes;
                    }
                }
                Poll::Ready(None) => {
                    self.events = None;
                    self.bytes.extend(b"0\r\n\r\n");
                }
                Poll::Pending => return,
            }
        }
    }

    fn note_written(&mut self, taken: usize) {
        let of_bytes = taken.min(self.bytes.len() - self.written);
        self.written += of_bytes;
        let of_long = taken - of_bytes;
        if self.written < self.bytes.len() {
            return;
        }
        (self.bytes, self.written) = (Vec::new(), 0);
        if !self.long.is_empty() {
            self.long = self.long.split_off(of_long);
            if self.long.is_empty() {
                self.long = Bytes::new();
                self.bytes.extend(b"\r\n");
            }
        }
    }

    /// Reads from the client. As in hyper, a client that closed its sending half counts as disconnected.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.next.is_empty() {
            let mut room = [0; NEXT];
            let mut room = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut *self.socket).poll_read(cx, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.next = room.filled().to_vec();
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests;
