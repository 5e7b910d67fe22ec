//! The socket of a client. A write fails when the client has taken no byte for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::raw_socket::RawSocket;
use crate::limits::OncePerMinute;

/// The limits for clients that do not read. All connections share them.
#[derive(Debug)]
pub(super) struct SlowClients {
    /// How long a client may take no byte, while bytes wait for it, before it is disconnected.
    pub(super) timeout: Duration,
    /// How long a stream may be open, whether or not its client reads.
    pub(super) stream_duration: Option<Duration>,
    metrics: Arc<Metrics>,
    log: OncePerMinute,
}

/// A socket with a write timeout. The timer exists only while a write waits, so a client that reads costs nothing.
#[derive(Debug)]
pub(super) struct Socket {
    stream: RawSocket,
    clients: Arc<SlowClients>,
    /// The timer of the waiting write. Set while the kernel's buffer is full.
    waiting: Option<Pin<Box<Sleep>>>,
    state: WriteState,
}

/// The state of writing that a socket shares with the task that owns its connection.
#[derive(Clone, Default, Debug)]
pub(super) struct WriteState(Arc<SharedWriteState>);

#[derive(Default, Debug)]
struct SharedWriteState {
    /// The time at which a waiting write fails. Only used while a write waits.
    deadline: Mutex<Option<Instant>>,
    is_waiting: AtomicBool,
}

impl WriteState {
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// Whether bytes wait because the kernel's buffer is full.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.is_waiting.load(Ordering::Relaxed)
    }

    fn deadline(&self) -> Option<Instant> {
        *self.0.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_waiting(&self, is_waiting: bool) {
        self.0.is_waiting.store(is_waiting, Ordering::Relaxed);
    }
}

impl SlowClients {
    pub(super) fn new(
        timeout: Duration,
        stream_duration: Option<Duration>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self { timeout, stream_duration, metrics, log: OncePerMinute::default() })
    }

    /// The time at which a stream that begins now reaches its maximum duration. `None`: there is no maximum.
    pub(super) fn stream_deadline(&self) -> Option<Instant> {
        self.stream_duration.and_then(|duration| Instant::now().checked_add(duration))
    }

    /// Counts a client that took no bytes for too long.
    pub(super) fn note_slow(&self) {
        self.metrics.refused.of(Limit::WriteTimeout).increment();
        if self.log.is_due() {
            tracing::warn!(
                seconds = self.timeout.as_secs_f64(),
                "a client took no byte of what waited for it and is disconnected (serve.write_timeout)"
            );
        }
    }

    /// Counts a stream that reached its maximum duration while its client did not read.
    pub(super) fn note_deadline(&self) {
        self.metrics.stream_budget_rejected.increment();
        self.metrics.refused.of(Limit::StreamDuration).increment();
    }
}

impl Socket {
    pub(super) fn new(stream: RawSocket, clients: &Arc<SlowClients>, state: &WriteState) -> Self {
        Self { stream, clients: Arc::clone(clients), waiting: None, state: state.clone() }
    }

    pub(super) fn raw(&self) -> &RawSocket {
        &self.stream
    }

    /// Called after each attempt to write: starts the timer if the write waits, and fails the write when the timer fires.
    fn check(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.end_wait();
            return written;
        }
        let Self { clients, waiting, state, .. } = self;
        let timer = waiting.get_or_insert_with(|| {
            state.set_waiting(true);
            let due = Instant::now() + clients.timeout;
            Box::pin(tokio::time::sleep_until(state.deadline().map_or(due, |deadline| deadline.min(due))))
        });
        ready!(timer.as_mut().poll(cx));
        // The kernel reports the socket as writable only when a third of its buffer is free, which may take a slow client minutes,
        // but accepts a write if there is any room. So one more write is tried before the client counts as taking nothing.
        let written = self.stream.write_now(slices);
        if self.state.deadline().is_some_and(|deadline| deadline <= Instant::now()) {
            self.clients.note_deadline();
        } else if matches!(&written, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.clients.note_slow();
        } else {
            self.end_wait();
            return Poll::Ready(written);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn end_wait(&mut self) {
        if self.waiting.take().is_some() {
            self.state.set_waiting(false);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.waiting.is_some() {
            // Otherwise the kernel would keep the bytes that the client does not take.
            self.stream.drop_unsent();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(cx, written, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check(cx, written, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
