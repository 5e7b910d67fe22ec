//! Detects the HTTP version of a connection by its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::bare_refusal;
use super::stream::Handover;

/// The first bytes of an HTTP/2 client. No HTTP/1 request begins with them.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A connection whose first bytes were read to detect the protocol. The first read by hyper returns these bytes together with the
/// bytes after them. Reason: before each read, hyper makes sure that its buffer has 8 KB of free space. If the first read returned
/// only the few detected bytes, hyper would double its buffer and keep it for the life of the connection.
#[derive(Debug)]
pub(super) struct SniffedStream<S> {
    /// The unread rest of the first bytes.
    start: Bytes,
    rest: TokioIo<S>,
    /// Gets the information whether all written bytes have reached the kernel.
    handover: Arc<Handover>,
    /// The unwritten rest of an explained refusal, which replaces what hyper wrote.
    refusal: Bytes,
}

/// Reads until the protocol is known. `None`: the client closed the connection.
pub(super) async fn sniff<S: AsyncRead + Unpin>(
    mut stream: S,
) -> io::Result<Option<(Protocol, SniffedStream<S>)>> {
    let (mut start, mut read) = ([0; PREFACE.len()], 0);
    let protocol = loop {
        match stream.read(&mut start[read..]).await? {
            0 => return Ok(None),
            more => read += more,
        }
        if start[..read] != PREFACE[..read] {
            break Protocol::Http1;
        }
        if read == PREFACE.len() {
            break Protocol::Http2;
        }
    };
    Ok(Some((protocol, SniffedStream::new(stream, Bytes::copy_from_slice(&start[..read])))))
}

impl<S> SniffedStream<S> {
    /// Wraps a connection from which `start` was already read.
    pub(super) fn new(stream: S, start: Bytes) -> Self {
        Self { start, rest: TokioIo::new(stream), handover: Arc::default(), refusal: Bytes::new() }
    }

    /// Sets the handover that is told whether all written bytes have reached the kernel.
    pub(super) fn set_handover(&mut self, handover: &Arc<Handover>) {
        self.handover = Arc::clone(handover);
    }

    pub(super) fn into_inner(self) -> S {
        self.rest.into_inner()
    }
}

impl<S: AsyncRead + Unpin> Read for SniffedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start.is_empty() {
            return Pin::new(&mut self.rest).poll_read(cx, buffer);
        }
        let given = self.start.len().min(buffer.remaining());
        buffer.put_slice(&self.start.split_to(given));
        match Pin::new(&mut self.rest).poll_read(cx, buffer) {
            Poll::Pending => Poll::Ready(Ok(())),
            read @ Poll::Ready(_) => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> SniffedStream<S> {
    /// Replaces a refusal by hyper by one with a body. hyper calls again with the same bytes until they count as written.
    fn poll_write_refusal(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.refusal.is_empty() {
            let Some(refusal) = bare_refusal::explained(bytes) else {
                return Pin::new(&mut self.rest).poll_write(cx, bytes);
            };
            self.refusal = refusal;
            self.handover.set_unread(true);
        }
        while !self.refusal.is_empty() {
            match ready!(Pin::new(&mut self.rest).poll_write(cx, &self.refusal))? {
                0 => return Poll::Ready(Ok(0)),
                written => self.refusal.advance(written),
            }
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl<S: AsyncWrite + Unpin> Write for SniffedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handover.set_unflushed(true);
        if !self.handover.has_request() {
            return self.poll_write_refusal(cx, bytes);
        }
        Pin::new(&mut self.rest).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when it has written everything.
        self.handover.set_unflushed(false);
        Pin::new(&mut self.rest).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.rest).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.rest.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let (false, [bytes]) = (self.handover.has_request(), slices) {
            return self.poll_write(cx, bytes);
        }
        self.handover.set_unflushed(true);
        Pin::new(&mut self.rest).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The detected protocol, and all bytes that can be read afterwards, when a client writes these pieces and closes.
    async fn detected(pieces: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut client, server) = tokio::io::duplex(64);
        let writing = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let (sniffed, ()) = tokio::join!(sniff(server), writing);
        let (protocol, sniffed) = sniffed.unwrap()?;
        let mut text = Vec::new();
        TokioIo::new(sniffed).read_to_end(&mut text).await.unwrap();
        Some((protocol, text))
    }

    #[tokio::test]
    async fn the_protocol_is_detected_and_no_byte_is_lost() {
        let dribbled: Vec<&[u8]> = PREFACE.chunks(1).collect();
        let cases: [(&[&[u8]], Option<Protocol>); 9] = [
            (&[], None),
            (&[b"P"], None),
            (&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"], None),
            (&[b"G"], Some(Protocol::Http1)),
            (&[b"P", b"OST / HTTP/1.1\r\n\r\n"], Some(Protocol::Http1)),
            (&[b"PRI ", b"/x HTTP/1.1\r\n\r\n"], Some(Protocol::Http1)),
            (&[b"GET / HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n"], Some(Protocol::Http1)),
            (&[PREFACE, b"\0\0\0\x04"], Some(Protocol::Http2)),
            (&dribbled, Some(Protocol::Http2)),
        ];
        for (pieces, expected) in cases {
            let expected = expected.map(|protocol| (protocol, pieces.concat()));
            assert_eq!(detected(pieces).await, expected, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn the_first_bytes_are_read_together_with_those_after_them() {
        let (mut client, server) = tokio::io::duplex(1024);
        let head = [b'x'; 100];
        client.write_all(&head).await.unwrap();
        let (_, sniffed) = sniff(server).await.unwrap().unwrap();
        let (mut sniffed, mut buffer) = (TokioIo::new(sniffed), [0; 1024]);
        // This works for any size of the first buffer.
        assert_eq!(sniffed.read(&mut buffer[..3]).await.unwrap(), 3);
        assert_eq!(sniffed.read(&mut buffer).await.unwrap(), head.len() - 3);
    }
}
