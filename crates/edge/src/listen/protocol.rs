//! Which HTTP a connection speaks, by its first bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use super::stream::Handover;

/// What a client of HTTP/2 begins with. No request of HTTP/1 does.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// A connection whose first bytes were looked at. Whoever reads from it gets them together with what has come after them:
/// in two parts they would not fit into hyper's first buffer, and it would take one of twice the size for good.
#[derive(Debug)]
pub(super) struct Begun<S> {
    /// What is left of them.
    start: Bytes,
    rest: TokioIo<S>,
    /// Is told whether all that was written is with the kernel.
    handover: Arc<Handover>,
}

/// Reads until it is clear what is spoken. `None`: the client went away.
pub(super) async fn begin<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<Option<(Protocol, Begun<S>)>> {
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
    Ok(Some((protocol, Begun::again(stream, Bytes::copy_from_slice(&start[..read])))))
}

impl<S> Begun<S> {
    /// A connection of which this was read, and not looked at.
    pub(super) fn again(stream: S, start: Bytes) -> Self {
        Self { start, rest: TokioIo::new(stream), handover: Arc::default() }
    }

    /// Who is told whether all that was written is with the kernel.
    pub(super) fn tell(&mut self, handover: &Arc<Handover>) {
        self.handover = Arc::clone(handover);
    }

    pub(super) fn into_inner(self) -> S {
        self.rest.into_inner()
    }
}

impl<S: AsyncRead + Unpin> Read for Begun<S> {
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

impl<S: AsyncWrite + Unpin> Write for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handover.note_behind(true);
        Pin::new(&mut self.rest).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper calls this when it has written all that it had.
        self.handover.note_behind(false);
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
        self.handover.note_behind(true);
        Pin::new(&mut self.rest).poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// What is found when a client writes these pieces and closes, and all that can be read then.
    async fn found(pieces: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut client, server) = tokio::io::duplex(64);
        let writing = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        let (begun, ()) = tokio::join!(begin(server), writing);
        let (protocol, begun) = begun.unwrap()?;
        let mut text = Vec::new();
        TokioIo::new(begun).read_to_end(&mut text).await.unwrap();
        Some((protocol, text))
    }

    #[tokio::test]
    async fn the_first_bytes_tell_and_are_not_lost() {
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
            assert_eq!(found(pieces).await, expected, "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn the_first_bytes_come_with_those_behind_them() {
        let (mut client, server) = tokio::io::duplex(1024);
        let head = [b'x'; 100];
        client.write_all(&head).await.unwrap();
        let (_, begun) = begin(server).await.unwrap().unwrap();
        let (mut begun, mut buffer) = (TokioIo::new(begun), [0; 1024]);
        // However small the first buffer is.
        assert_eq!(begun.read(&mut buffer[..3]).await.unwrap(), 3);
        assert_eq!(begun.read(&mut buffer).await.unwrap(), head.len() - 3);
    }
}
