//! An event stream on a connection of HTTP/1.1, written without hyper.
//!
//! hyper keeps a buffer for reading and one for writing, of 8 KB each, for as long as an answer takes, and a stream may take
//! hours. So it hands the connection over when it has read such a request, and gets it back when the stream has ended.

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
use http::{HeaderMap, Method, Request, Version};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::OpenRequest;
use crate::reply::{Body, Response};

/// What is shorter is copied behind what else is to be written.
const SHORT: usize = 2 * 1024;

/// So much is pulled before it is written. What a client does not take is held once, and no more is pulled.
const PULLED: usize = 8 * 1024;

/// What is read of the next request while the stream lasts. It shows that the client is there, and waits.
const NEXT: usize = 256;

/// What the service and the owner of a connection tell each other.
#[derive(Default)]
pub(super) struct Handover {
    stream: Mutex<Option<Handed>>,
    /// Not all that was written before is with the kernel.
    is_behind: AtomicBool,
}

/// A stream that its connection is handed over for.
pub(super) struct Handed {
    /// Its head, as it is written. It may last for hours, and the head is of no other use any more.
    head: Vec<u8>,
    events: BoxStream<'static, Bytes>,
    is_last: bool,
    /// Until the stream has ended.
    open: OpenRequest,
}

/// What is known of a request whose answer may be a stream.
#[derive(Debug)]
pub(super) struct Asked {
    may_be_handed: bool,
    is_last: bool,
    is_read: Arc<AtomicBool>,
}

/// The body of a request, which notes that it was read to its end: only then the next request begins behind it.
#[derive(Debug)]
pub(super) struct NotedBody<B> {
    body: B,
    is_read: Arc<AtomicBool>,
}

/// How a stream is written.
struct Writing<'a, S> {
    socket: &'a mut S,
    events: Option<BoxStream<'static, Bytes>>,
    /// To be written, but for what was.
    bytes: Vec<u8>,
    written: usize,
    /// Behind that.
    long: Bytes,
    next: Vec<u8>,
}

impl Handover {
    /// All that was written is with the kernel, or not.
    pub(super) fn note_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Takes a stream over, if that may be. Otherwise gives the answer back.
    pub(super) fn offer(
        &self,
        asked: &Asked,
        answer: Response,
        open: OpenRequest,
    ) -> Option<(Response, OpenRequest)> {
        let may_be_handed = asked.may_be_handed
            && asked.is_read.load(Ordering::Relaxed)
            && !self.is_behind.load(Ordering::Relaxed);
        let (head, body) = answer.into_parts();
        let events = match body {
            Body::Events(events) if may_be_handed => events,
            body => return Some((Response::from_parts(head, body), open)),
        };
        let (head, is_last) = (written_head(&head, asked.is_last), asked.is_last);
        let handed = Handed { head, events, is_last, open };
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(handed);
        None
    }

    pub(super) fn take(&self) -> Option<Handed> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("is_behind", &self.is_behind).finish_non_exhaustive()
    }
}

impl Asked {
    /// Looks at a request before it is answered.
    pub(super) fn of<B: http_body::Body>(request: Request<B>) -> (Self, Request<NotedBody<B>>) {
        let is_read = Arc::new(AtomicBool::new(request.body().is_end_stream()));
        let headers = request.headers();
        let asked = Self {
            // Whoever waits to be told to send its body is left to hyper, and so are clients that know no chunks.
            may_be_handed: request.version() == Version::HTTP_11
                && request.method() != Method::HEAD
                && !headers.contains_key(EXPECT),
            is_last: is_last(headers),
            is_read: Arc::clone(&is_read),
        };
        (asked, request.map(|body| NotedBody { body, is_read }))
    }
}

/// Whether the client wants the connection closed behind the answer.
fn is_last(headers: &HeaderMap) -> bool {
    let words = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    words.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("close"))
}

impl<B: http_body::Body + Unpin> http_body::Body for NotedBody<B> {
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

impl Handed {
    /// Writes the stream to its end. Gives what was read of the next request, unless there is to be none.
    ///
    /// No async function, which would hold what it is given twice.
    pub(super) fn write<S>(
        self,
        socket: &mut S,
        next: &[u8],
    ) -> impl Future<Output = io::Result<Option<Bytes>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { head, events, is_last, open } = self;
        let (events, next) = (Some(events), next.to_vec());
        let mut writing = Writing { socket, events, bytes: head, written: 0, long: Bytes::new(), next };
        async move {
            std::future::poll_fn(|cx| writing.poll(cx)).await?;
            drop(open);
            Ok((!is_last).then(|| writing.next.into()))
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the date of an answer is that of the world, as hyper has it")]
fn written_head(head: &http::response::Parts, is_last: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    let mut line = |words: &[&[u8]]| words.iter().chain(&[&b"\r\n"[..]]).for_each(|word| bytes.extend(*word));
    let reason = head.status.canonical_reason().unwrap_or_default();
    line(&[b"HTTP/1.1 ", head.status.as_str().as_bytes(), b" ", reason.as_bytes()]);
    for (name, value) in &head.headers {
        line(&[name.as_str().as_bytes(), b": ", value.as_bytes()]);
    }
    line(&[TRANSFER_ENCODING.as_str().as_bytes(), b": chunked"]);
    line(&[DATE.as_str().as_bytes(), b": ", httpdate::fmt_http_date(SystemTime::now()).as_bytes()]);
    if is_last {
        line(&[CONNECTION.as_str().as_bytes(), b": close"]);
    }
    line(&[]);
    bytes
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writing<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.pull(cx);
            if self.bytes.is_empty() && self.long.is_empty() {
                if self.events.is_none() {
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
        self.look_at_client(cx)
    }

    /// Takes events, once all that was taken is written.
    fn pull(&mut self, cx: &mut Context<'_>) {
        if self.written > 0 || !self.long.is_empty() {
            return;
        }
        while self.bytes.len() < PULLED
            && self.long.is_empty()
            && let Some(events) = &mut self.events
        {
            match events.as_mut().poll_next(cx) {
                // Nothing would be the end.
                Poll::Ready(Some(bytes)) if bytes.is_empty() => {}
                Poll::Ready(Some(bytes)) => {
                    self.bytes.reserve(if bytes.len() < SHORT { bytes.len() + 16 } else { 16 });
                    self.bytes.extend(format!("{:x}\r\n", bytes.len()).as_bytes());
                    if bytes.len() < SHORT {
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

    /// A client that has closed its half is taken for gone, as hyper does.
    fn look_at_client(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
