//! A connected TCP or unix socket.

use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

#[derive(Debug)]
pub(super) enum RawSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl RawSocket {
    /// Disables the delay of small writes (`TCP_NODELAY`). If that fails, the connection is only slower.
    pub(super) fn send_at_once(&self) {
        match self {
            Self::Tcp(stream) => drop(stream.set_nodelay(true)),
            // A unix socket never delays small writes.
            Self::Unix(_) => {}
        }
    }

    /// Writes as much as the kernel accepts now, even if the runtime considers the socket not writable.
    pub(super) fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => {
                let mut same = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
                same.write_vectored(slices)
            }
            Self::Unix(stream) => {
                let mut same = std::os::unix::net::UnixStream::from(stream.as_fd().try_clone_to_owned()?);
                same.write_vectored(slices)
            }
        }
    }

    /// Makes the kernel drop the unsent bytes when the socket is closed. A unix socket needs nothing: its bytes are dropped when
    /// the receiver closes.
    pub(super) fn drop_unsent(&self) {
        match self {
            // This fails if the client has already disconnected.
            Self::Tcp(stream) => drop(stream.set_zero_linger()),
            Self::Unix(_) => {}
        }
    }
}

impl AsyncRead for RawSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for RawSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
