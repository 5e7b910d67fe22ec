//! A TCP connection that can end with a reset instead of a close.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How a connection ends. Shared by the connection and its reply.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionEnd(Arc<AtomicBool>);

impl ConnectionEnd {
    /// The peer will see "connection reset" instead of an end of file.
    pub(super) fn reset(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_reset(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    ending: ConnectionEnd,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, ending: ConnectionEnd) -> Self {
        Self { stream, ending }
    }
}

/// The stream is closed right after this; a linger time of zero turns the close into a reset.
impl Drop for Connection {
    fn drop(&mut self) {
        if self.ending.is_reset()
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::warn!(%error, "the demo model closes a connection that it should reset");
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly shutdown before the reset would hide it.
        if self.ending.is_reset() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
