//! Accepts connections and serves HTTP/1.1 and HTTP/2 (with prior knowledge) on each.

mod protocol;
mod stream;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::ops::DerefMut;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use hyper_util::server::graceful::GracefulConnection;
use longshore_engine::Tasks;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Edge;
use crate::dispatch::Dispatcher;
use crate::reply;
use protocol::{Protocol, SniffedStream, sniff};
use stream::{HandedStream, Handover, RequestFacts};

/// What hyper may buffer for one connection before it stops pulling: the memory of a stalled reader, and the longest
/// request head. Rounded up by one batch of events. Other servers, the Python peer among them, also limit heads to 16 KB.
const BUFFER_BYTES: usize = 16 * 1024;

/// How many requests one HTTP/2 connection may have open. Further requests wait in the client.
const STREAMS_PER_CONNECTION: u32 = 1024;

/// How often an HTTP/2 client is pinged. A client that does not answer in time is disconnected.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The pause after a failed accept (mostly: out of file descriptors), in which other connections may close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn run(edge: Edge, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let Edge { engine, config, tasks } = edge;
    let most = u32::try_from(config.limits.connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
    let slots = Arc::new(Semaphore::new(most as usize));
    let cut = CancellationToken::new();
    let connections = Connections {
        protocols: Protocols::new(&tasks, &cut, config.header_timeout),
        idle_timeout: config.header_timeout,
        shutdown: shutdown.clone(),
        cut: cut.clone(),
    };
    let connections = Arc::new(connections);
    let grace = config.shutdown_grace;
    let metrics = Arc::clone(&config.metrics);
    let dispatcher = Dispatcher::new(engine, config, listener.local_addr()?, shutdown.clone(), tasks.clone());
    let dispatcher = Arc::new(dispatcher);

    loop {
        let slot = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !affects_one_connection_only(&error) {
                    tracing::warn!(%error, "cannot accept connections");
                    let _ = shutdown.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                }
                continue;
            }
        };
        let (connections, dispatcher) = (Arc::clone(&connections), Arc::clone(&dispatcher));
        let counted = metrics.hold(|metrics| &metrics.connections);
        // In a box, because the task would hold the future twice: once at its start, and once while it runs.
        let connection = Box::pin(async move {
            connections.serve(stream, peer.ip(), dispatcher).await;
            drop((slot, counted));
        });
        tasks.spawn("connection", connection);
    }

    // The listener is closed first, so that new clients are refused at once.
    drop(listener);
    if tokio::time::timeout(grace, slots.acquire_many(most)).await.is_err() {
        let open = most as usize - slots.available_permits();
        tracing::info!(open, "connections closed at the end of the shutdown grace period");
        cut.cancel();
        // Each connection drops everything as soon as it sees the token.
        let _ = slots.acquire_many(most).await;
    }
    Ok(())
}

struct Connections {
    protocols: Protocols,
    /// A connection without an open request is closed after this long.
    idle_timeout: Duration,
    shutdown: CancellationToken,
    cut: CancellationToken,
}

impl Connections {
    async fn serve(&self, stream: TcpStream, peer: IpAddr, dispatcher: Arc<Dispatcher>) {
        // Events are small and must not wait for each other. If the option cannot be set, the stream is only slower.
        let _ = stream.set_nodelay(true);
        // On a dual-stack socket an IPv4 client has a mapped IPv6 address.
        let peer = peer.to_canonical();
        // Child tokens, because each connection polls its tokens whenever it wakes, and would contend for a shared lock.
        let (shutdown, cut) = (self.shutdown.child_token(), self.cut.child_token());
        let requests = Arc::new(OpenRequests::new());
        // hyper has a timeout for HTTP/1 only, and only once the protocol is known, which takes up to 24 bytes.
        let sniffed = tokio::select! {
            sniffed = sniff(stream) => sniffed,
            () = tokio::time::sleep(self.idle_timeout) => return,
            () = shutdown.cancelled() => return,
        };
        let (protocol, stream) = match sniffed {
            Ok(Some(sniffed)) => sniffed,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "connection ended");
                return;
            }
        };
        let watch = ConnectionWatch { requests, idle_timeout: self.idle_timeout, shutdown, cut };
        match protocol {
            Protocol::Http1 => self.serve_http1(stream, peer, &dispatcher, watch).await,
            // In a box, because this future is the larger one, and rare.
            Protocol::Http2 => {
                let counted = Arc::clone(&watch.requests);
                let service = service_fn(move |request| {
                    let open = OpenRequest::begin(&counted);
                    let dispatcher = Arc::clone(&dispatcher);
                    async move {
                        let answer = dispatcher.answer(peer, request).await;
                        Ok::<_, Infallible>(answer.map(|body| AnswerBody { body, _open: open }))
                    }
                });
                let connection = Box::pin(self.protocols.http2.serve_connection(stream, service));
                Box::pin(watch.drive(connection)).await;
            }
        }
    }

    async fn serve_http1(
        &self,
        mut stream: SniffedStream<TcpStream>,
        peer: IpAddr,
        dispatcher: &Arc<Dispatcher>,
        watch: ConnectionWatch,
    ) {
        loop {
            // In a box, so that nothing of hyper stays in memory while a stream is written.
            let handed = Box::pin(self.serve_until_stream(stream, peer, dispatcher, &watch)).await;
            let Some((handed, mut socket, read)) = handed else { return };
            let ended = tokio::select! {
                ended = handed.write(&mut socket, &read) => ended,
                () = watch.cut.cancelled() => return,
            };
            match ended {
                Ok(Some(next)) if !watch.shutdown.is_cancelled() => stream = SniffedStream::new(socket, next),
                Ok(_) => {
                    // The client may have closed the connection already.
                    let _ = socket.shutdown().await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "connection ended");
                    return;
                }
            }
        }
    }

    /// Serves requests until one is answered with a stream. Then hyper returns the connection.
    async fn serve_until_stream(
        &self,
        mut stream: SniffedStream<TcpStream>,
        peer: IpAddr,
        dispatcher: &Arc<Dispatcher>,
        watch: &ConnectionWatch,
    ) -> Option<(HandedStream, TcpStream, Bytes)> {
        let handover = Arc::new(Handover::default());
        stream.set_handover(&handover);
        // In a box, because hyper reserves room for the future of a request as long as the connection is open.
        let service = service_fn(|request| {
            let open = OpenRequest::begin(&watch.requests);
            let (dispatcher, handover) = (Arc::clone(dispatcher), Arc::clone(&handover));
            Box::pin(async move {
                let (facts, request) = RequestFacts::inspect(request);
                let answer = dispatcher.answer(peer, request).await;
                match handover.offer(&facts, answer, open) {
                    // hyper writes nothing when a service fails, and leaves the connection unchanged.
                    None => Err(HandedOver),
                    Some((answer, open)) => Ok(answer.map(|body| AnswerBody { body, _open: open })),
                }
            })
        });
        let mut connection = self.protocols.http1.serve_connection(stream, service);
        watch.drive(Pin::new(&mut connection)).await;
        let handed = handover.take()?;
        let hyper::server::conn::http1::Parts { io, read_buf, .. } = connection.into_parts();
        Some((handed, io.into_inner(), Bytes::copy_from_slice(&read_buf)))
    }
}

/// The error that stops hyper when another writer takes over the connection.
#[derive(Debug)]
struct HandedOver;

impl std::error::Error for HandedOver {}

impl fmt::Display for HandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection was handed over to a stream")
    }
}

/// Everything that can end a connection besides its client.
struct ConnectionWatch {
    requests: Arc<OpenRequests>,
    idle_timeout: Duration,
    shutdown: CancellationToken,
    cut: CancellationToken,
}

impl ConnectionWatch {
    async fn drive<C>(&self, mut connection: Pin<impl DerefMut<Target = C>>)
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut idle = pin!(self.requests.wait_until_idle(self.idle_timeout));
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        // Clients disconnect all the time.
                        tracing::debug!(%error, "connection ended");
                    }
                    return;
                }
                () = idle.as_mut(), if !stopping => {
                    if !self.requests.state().has_had_request {
                        return;
                    }
                    // Graceful, because the end of the last response may still be in flight, and a request may have just
                    // arrived. hyper's pings drop a client that does not cooperate.
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.shutdown.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.cut.cancelled() => return,
            }
        }
    }
}

/// The requests of one connection.
#[derive(Debug)]
struct OpenRequests(Mutex<RequestState>);

#[derive(Clone, Copy, Debug)]
struct RequestState {
    has_had_request: bool,
    open: u32,
    /// When the last open request ended. Meaningless while a request is open.
    idle_since: Instant,
}

impl OpenRequests {
    fn new() -> Self {
        Self(Mutex::new(RequestState { has_had_request: false, open: 0, idle_since: Instant::now() }))
    }

    fn state(&self) -> MutexGuard<'_, RequestState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when no request has been open for this long. Requests do not wake this future: it checks when time is up.
    async fn wait_until_idle(&self, limit: Duration) {
        let mut due = Instant::now() + limit;
        loop {
            tokio::time::sleep_until(due).await;
            let (RequestState { open, idle_since, .. }, now) = (*self.state(), Instant::now());
            due = if open > 0 { now + limit } else { idle_since + limit };
            if due <= now {
                return;
            }
        }
    }
}

/// Counts as open from the head of a request until the body of its response is dropped, written or not.
#[derive(Debug)]
struct OpenRequest(Arc<OpenRequests>);

impl OpenRequest {
    fn begin(requests: &Arc<OpenRequests>) -> Self {
        let mut state = requests.state();
        state.has_had_request = true;
        state.open += 1;
        Self(Arc::clone(requests))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open -= 1;
        state.idle_since = Instant::now();
    }
}

/// The body of a response, which keeps its request open.
struct AnswerBody {
    body: reply::Body,
    _open: OpenRequest,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The configured servers of both protocols.
struct Protocols {
    http1: http1::Builder,
    http2: http2::Builder<TrackedExecutor>,
}

impl Protocols {
    fn new(tasks: &Tasks, cut: &CancellationToken, header_timeout: Duration) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            // A client that closed its half of the connection counts as gone; otherwise its request would be served in vain.
            .half_close(false)
            .max_buf_size(BUFFER_BYTES);
        let mut http2 = http2::Builder::new(TrackedExecutor { tasks: tasks.clone(), cut: cut.clone() });
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .keep_alive_interval(PING_EVERY)
            .max_send_buf_size(BUFFER_BYTES);
        Self { http1, http2 }
    }
}

/// Spawns the tasks that hyper runs for an HTTP/2 connection, one for each request. They end with the connection.
#[derive(Clone)]
struct TrackedExecutor {
    tasks: Tasks,
    cut: CancellationToken,
}

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks.spawn("http2 request", self.cut.clone().run_until_cancelled_owned(future));
    }
}

/// Whether the client closed its connection before it was accepted: the next accept is not affected.
fn affects_one_connection_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{self, StreamExt};
    use hyper::body::Incoming;
    use longshore_wire::contract::Deployment;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::{Credentials, EdgeConfig, test_engine};

    /// The capacity of the pipe that replaces the kernel's buffers in these tests.
    const PIPE: usize = 1024;
    const CHUNK: usize = 16 * 1024;

    /// The maximum size of a connection's future, without the buffers of hyper.
    const MAX_SIZE: usize = 2 * 1024;

    /// Serves an endless stream on a pipe. Returns the client's end and the number of pulled bytes.
    fn endless(tasks: &Tasks) -> (DuplexStream, Arc<AtomicUsize>) {
        let (client, server) = tokio::io::duplex(PIPE);
        let pulled = Arc::new(AtomicUsize::new(0));
        let protocols = Protocols::new(tasks, &CancellationToken::new(), Duration::from_secs(30));
        let count = Arc::clone(&pulled);
        tasks.spawn("server", async move {
            let service = service_fn(move |_: http::Request<Incoming>| {
                let count = Arc::clone(&count);
                let chunks = stream::repeat_with(move || {
                    count.fetch_add(CHUNK, Ordering::Relaxed);
                    Bytes::from_static(&[b'x'; CHUNK])
                });
                async move { Ok::<_, Infallible>(reply::events(chunks.boxed())) }
            });
            let (protocol, server) = sniff(server).await.unwrap().unwrap();
            match protocol {
                Protocol::Http1 => protocols.http1.serve_connection(server, service).await,
                Protocol::Http2 => protocols.http2.serve_connection(server, service).await,
            }
        });
        (client, pulled)
    }

    /// With a paused clock a sleep ends only when all other tasks wait.
    async fn wait_for_idle_runtime() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Sends a request and never reads. The edge may have pulled one buffer, the capacity of the pipe, and the chunks that
    /// overfilled both.
    async fn check(request: &[u8]) {
        let tasks = Tasks::new();
        let (mut client, pulled) = endless(&tasks);
        client.write_all(request).await.unwrap();
        wait_for_idle_runtime().await;
        let held = pulled.load(Ordering::Relaxed);
        assert!((CHUNK..=BUFFER_BYTES + PIPE + 2 * CHUNK).contains(&held), "{held} bytes were pulled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_http1_reader_costs_one_buffer() {
        check(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_http2_reader_costs_one_buffer() {
        let frames: [&[u8]; 4] = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            // SETTINGS: an initial window of 16 MiB, so that the window limits nothing.
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0],
            // WINDOW_UPDATE: as much for the connection.
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            // HEADERS on stream 1, the whole request: GET, http, /, authority x.
            &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 1, b'x'],
        ];
        check(&frames.concat()).await;
    }

    /// A connection with a stream stays open for hours, and thousands may be open.
    #[tokio::test]
    async fn an_open_connection_is_small() {
        let (tasks, cut) = (Tasks::new(), CancellationToken::new());
        let engine = test_engine::echoing();
        let credentials = Credentials::builder().api_key("key".into(), "ada").build().unwrap();
        let config = EdgeConfig::new(Deployment::default(), credentials);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let dispatcher = Arc::new(Dispatcher::new(engine, config, address, cut.clone(), tasks.clone()));
        let stream = TcpStream::connect(address).await.unwrap();
        let connections = Connections {
            protocols: Protocols::new(&tasks, &cut, Duration::from_secs(30)),
            idle_timeout: Duration::from_secs(30),
            shutdown: cut.clone(),
            cut,
        };
        let size = size_of_val(&connections.serve(stream, address.ip(), dispatcher));
        assert!(size <= MAX_SIZE, "{size}");
    }
}
