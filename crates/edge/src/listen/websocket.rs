//! Serves a WebSocket after its handshake: passes the client's messages to a multiplexer, and writes the multiplexer's messages.
//!
//! While the client does not read, no event is read from a log and no further message is read from the client, but open requests
//! proceed. Long messages are written in fragments. So a stalled client costs one buffer, one event that does not fit into the
//! socket, and the responses to its requests. A client that takes no byte for the write timeout is disconnected (`Socket`). A
//! client that takes bytes too slowly is disconnected one write timeout after its first stream has reached its maximum duration.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use longshore_model::Principal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, Utf8Bytes};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Result, error::ProtocolError};

use super::socket::WriteState;
use super::stream::HandedSocket;
use super::transport::Transport;
use super::{ConnectionWatch, LINGER_BYTES, LINGER_FOR, PING_EVERY};
use crate::dispatch::Dispatcher;
use crate::limits::{Bodies, HeldBody};
use crate::multiplexer::Multiplexer;

/// How many bytes are read at once. A message that fits into this buffer is not counted among the unfinished bodies.
const READ_BUFFER: usize = 4 * 1024;

/// How many bytes are collected before they are written to the socket.
const WRITE_BUFFER: usize = 8 * 1024;

/// A longer message is written in fragments of this size.
const FRAGMENT: usize = 16 * 1024;

/// How many messages are written before the client's messages are read again.
const MESSAGES_AT_ONCE: usize = 64;

/// The length of a client's control frame without its payload.
const CONTROL_HEAD: usize = 6;

/// Why a WebSocket ends.
enum End {
    /// The client disconnected or closed the WebSocket.
    Client,
    /// The gateway closes the WebSocket.
    Close(CloseCode, &'static str),
    /// The gateway closes the WebSocket because it cannot parse what the client sends.
    Unreadable(CloseCode, &'static str),
}

/// Serves until the client or the gateway closes the WebSocket. `read`: bytes that were read after the handshake.
pub(super) async fn serve(
    handed: HandedSocket,
    mut socket: Transport,
    read: &[u8],
    dispatcher: &Arc<Dispatcher>,
    watch: &ConnectionWatch<'_>,
    write_timeout: Duration,
) {
    let HandedSocket { head, requests: message_head, open: _open } = handed;
    let serving = async {
        if socket.write_all(&head).await.is_err() || socket.flush().await.is_err() {
            return;
        }
        let bindings = dispatcher.bindings();
        let most = Some(bindings.limits.max_bytes).filter(|most| *most > 0);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_message_size(most)
            .max_frame_size(most);
        let principal = &message_head.caller.principal;
        let socket = MeteredSocket::new(socket, &bindings.bodies, principal);
        let mut socket =
            WebSocketStream::from_partially_read(socket, read.to_vec(), Role::Server, Some(config)).await;
        let requests = Multiplexer::new(Arc::clone(dispatcher), Arc::clone(&message_head));
        let (idle, message_timeout) = (dispatcher.websocket_idle(), bindings.limits.timeout);
        let limits = Limits { idle, message_timeout, write_timeout };
        let end = run(&mut socket, requests, limits, watch).await;
        // The streams have ended, and closing the WebSocket has a time limit of its own.
        watch.writes.set_deadline(None);
        finish(socket, end).await;
    };
    tokio::select! {
        () = serving => {}
        () = watch.connection.cut.cancelled() => {}
    }
}

#[derive(Clone, Copy)]
struct Limits {
    idle: Option<Duration>,
    message_timeout: Duration,
    write_timeout: Duration,
}

async fn run(
    socket: &mut WebSocketStream<MeteredSocket<'_>>,
    mut requests: Multiplexer,
    limits: Limits,
    watch: &ConnectionWatch<'_>,
) -> End {
    let every = limits.idle.map_or(PING_EVERY, |idle| idle.min(PING_EVERY)).max(Duration::from_millis(10));
    let mut checks = tokio::time::interval_at(Instant::now() + every, every);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shutdown = std::pin::pin!(watch.shutdown.cancelled());
    let deadline = Deadline { writes: &watch.writes, write_timeout: limits.write_timeout };
    let (mut is_closing, mut has_heard, mut last_used) = (false, true, Instant::now());
    loop {
        if is_closing && requests.is_idle() {
            return End::Close(CloseCode::Away, "the gateway shuts down; reconnect and resume");
        }
        tokio::select! {
            message = requests.next() => {
                if let Some(message) = message {
                    let writing = write(socket, &mut requests, message, deadline);
                    if note_wait(writing, &mut has_heard).await.is_err() {
                        return End::Client;
                    }
                }
                last_used = Instant::now();
            }
            incoming = socket.next(), if !is_closing && requests.has_room() => {
                has_heard = true;
                if let Some(end) = receive(socket, &mut requests, incoming, &mut last_used) {
                    return end;
                }
            }
            _ = checks.tick() => {
                let now = Instant::now();
                if socket.get_ref().since.is_some_and(|since| since + limits.message_timeout <= now) {
                    return End::Unreadable(CloseCode::Policy, "the message did not arrive in time");
                }
                if !requests.is_idle() {
                    last_used = now;
                }
                if limits.idle.is_some_and(|idle| last_used + idle <= now) {
                    return End::Close(CloseCode::Normal, "no request for a long time");
                }
                // The gateway does not expect a pong while it does not read the client's messages.
                if !is_closing && requests.has_room() && !std::mem::take(&mut has_heard) {
                    // The client's messages may have arrived while this task was busy.
                    let Some(incoming) = socket.next().now_or_never() else {
                        tracing::debug!("a WebSocket ends: its client did not answer a ping");
                        return End::Client;
                    };
                    if let Some(end) = receive(socket, &mut requests, incoming, &mut last_used) {
                        return end;
                    }
                }
                let pinging = socket.send(Message::Ping(Bytes::new()));
                let pinging = while_working(&mut requests, pinging, deadline);
                if note_wait(pinging, &mut has_heard).await.is_err() {
                    return End::Client;
                }
            }
            () = shutdown.as_mut(), if !is_closing => is_closing = true,
        }
    }
}

/// Handles what the client sent. Returns the reason if the WebSocket ends.
fn receive(
    socket: &mut WebSocketStream<MeteredSocket<'_>>,
    requests: &mut Multiplexer,
    incoming: Option<Result<Message>>,
    last_used: &mut Instant,
) -> Option<End> {
    match incoming {
        Some(Ok(Message::Text(text))) => {
            *last_used = Instant::now();
            socket.get_mut().end_message();
            requests.receive(Bytes::from(text));
        }
        Some(Ok(Message::Binary(_))) => {
            return Some(End::Close(CloseCode::Unsupported, "send text messages"));
        }
        Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
            socket.get_mut().end_control(payload.len());
        }
        Some(Ok(Message::Close(_))) | None => return Some(End::Client),
        Some(Ok(Message::Frame(_))) => {}
        Some(Err(error)) => return Some(socket.get_ref().explain(&error)),
    }
    None
}

/// Waits until something is written. If a write had to wait and then succeeded, the client reads, so it counts as alive, although
/// its pong may come much later.
async fn note_wait(writing: impl Future<Output = Result<()>>, has_heard: &mut bool) -> Result<()> {
    let mut writing = std::pin::pin!(writing);
    if let Some(written) = writing.as_mut().now_or_never() {
        return written;
    }
    *has_heard = true;
    writing.await
}

/// Writes a message, and all further messages that are ready.
async fn write(
    socket: &mut WebSocketStream<MeteredSocket<'_>>,
    requests: &mut Multiplexer,
    message: Bytes,
    deadline: Deadline<'_>,
) -> Result<()> {
    while_working(requests, feed(socket, message), deadline).await?;
    for _ in 1..MESSAGES_AT_ONCE {
        let Some(next) = requests.next().now_or_never().flatten() else { break };
        while_working(requests, feed(socket, next), deadline).await?;
    }
    while_working(requests, socket.flush(), deadline).await
}

/// The time at which a write to a slowly reading client is given up.
#[derive(Clone, Copy)]
struct Deadline<'a> {
    writes: &'a WriteState,
    write_timeout: Duration,
}

impl Deadline<'_> {
    /// Sets the deadline to the end of the first open stream, because a stream checks its end only while it is read.
    fn set(self, requests: &Multiplexer) {
        let end = requests.next_stream_end();
        self.writes.set_deadline(end.and_then(|end| end.checked_add(self.write_timeout)));
    }
}

/// Waits until something is written. Requests proceed meanwhile, but no event is read.
async fn while_working(
    requests: &mut Multiplexer,
    writing: impl Future<Output = Result<()>>,
    deadline: Deadline<'_>,
) -> Result<()> {
    deadline.set(requests);
    tokio::select! {
        biased;
        written = writing => written,
        never = requests.work() => match never {},
    }
}

/// Puts a message into the write buffer, and waits while the buffer is full.
async fn feed(socket: &mut WebSocketStream<MeteredSocket<'_>>, mut message: Bytes) -> Result<()> {
    let mut kind = Data::Text;
    loop {
        let part = message.split_to(message.len().min(FRAGMENT));
        let is_last = message.is_empty();
        socket.feed(Message::Frame(Frame::message(part, OpCode::Data(kind), is_last))).await?;
        if is_last {
            return Ok(());
        }
        kind = Data::Continue;
    }
}

/// Sends the close frame, and waits a moment for that of the client.
async fn finish(mut socket: WebSocketStream<MeteredSocket<'_>>, end: End) {
    let frame = |code, reason| CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
    let is_readable = !matches!(end, End::Unreadable(..));
    let closing = async {
        if let End::Close(code, reason) | End::Unreadable(code, reason) = end {
            socket.close(Some(frame(code, reason))).await?;
        }
        if is_readable {
            // Also sends the response to a close frame of the client.
            while let Some(Ok(_)) = socket.next().await {}
        }
        Ok::<_, Error>(())
    };
    let _ = tokio::time::timeout(LINGER_FOR, closing).await;
    let mut socket = socket.into_inner().socket;
    let _ = socket.shutdown().await;
    if !is_readable {
        // The kernel resets a connection that is closed with unread bytes, and the client could then not read the reason.
        let discard = async {
            let (mut buffer, mut left) = ([0; READ_BUFFER], LINGER_BYTES);
            while let Ok(read) = socket.read(&mut buffer).await
                && read > 0
                && left > 0
            {
                left = left.saturating_sub(read);
            }
        };
        let _ = tokio::time::timeout(LINGER_FOR, discard).await;
    }
}

/// A socket that counts the bytes of the arriving message towards the limit for all unfinished bodies of the gateway.
struct MeteredSocket<'a> {
    socket: Transport,
    bodies: &'a Arc<Bodies>,
    principal: &'a Principal,
    held: HeldBody,
    arrived: usize,
    /// When the first byte of the message arrived.
    since: Option<Instant>,
    is_refused: bool,
}

impl<'a> MeteredSocket<'a> {
    fn new(socket: Transport, bodies: &'a Arc<Bodies>, principal: &'a Principal) -> Self {
        let held = bodies.begin(principal);
        Self { socket, bodies, principal, held, arrived: 0, since: None, is_refused: false }
    }

    /// Called when a message has arrived completely.
    fn end_message(&mut self) {
        self.arrived = 0;
        self.since = None;
        self.held = self.bodies.begin(self.principal);
    }

    /// Called when a control frame has arrived, which may come between the fragments of a message.
    fn end_control(&mut self, payload: usize) {
        self.arrived = self.arrived.saturating_sub(payload + CONTROL_HEAD);
        if self.arrived == 0 {
            self.since = None;
        }
    }

    fn explain(&self, error: &Error) -> End {
        let (code, reason) = match error {
            Error::Capacity(_) => (CloseCode::Size, "the message is too long"),
            Error::Utf8(_) => (CloseCode::Invalid, "the message is not UTF-8 text"),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return End::Client,
            Error::Protocol(_) => (CloseCode::Protocol, "the frames are not those of RFC 6455"),
            _ if self.is_refused => (CloseCode::Again, "too many messages are arriving; try again later"),
            _ => return End::Client,
        };
        End::Unreadable(code, reason)
    }
}

impl AsyncRead for MeteredSocket<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        if read > 0 {
            self.arrived += read;
            self.since.get_or_insert_with(Instant::now);
        }
        let arrived = self.arrived;
        if arrived > READ_BUFFER && self.held.grow_to(arrived).is_err() {
            self.is_refused = true;
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredSocket<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
