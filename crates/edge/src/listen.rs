//! Serves HTTP/1.1 and HTTP/2 on each connection. A client selects HTTP/2 in the TLS handshake or, without TLS, by sending its
//! preface ("prior knowledge").

mod accept;
mod bare_refusal;
mod http2;
mod protocol;
mod raw_socket;
mod socket;
mod stream;
mod tls;
mod transport;
mod websocket;

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::net::IpAddr;
use std::ops::DerefMut;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::{http1, http2 as hyper_http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use hyper_util::server::graceful::GracefulConnection;
use longshore_engine::Tasks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::Credentials;
use crate::arrival::Arrival;
use crate::dispatch::Dispatcher;
use crate::limits::{Connection, OpenRequest};
use crate::reply;
use accept::Accepted;
pub use accept::Listeners;
pub(crate) use accept::run;
use http2::{Flow, FlowBody, RequestExecutor};
use protocol::{Protocol, SniffedStream, sniff};
use raw_socket::RawSocket;
use socket::{SlowClients, Socket, WriteState};
use stream::{Handed, HandedSocket, HandedStream, Handover, RequestFacts};
pub use tls::{ClientAuthority, Tls, TlsError, TlsParts};
use transport::Transport;

/// How much hyper buffers for one connection. This is the memory that a stalled reader costs, and the longest request head. hyper
/// may exceed it by one batch of events. Other servers also limit heads to 16 KB.
const BUFFER_BYTES: usize = 16 * 1024;

/// How many requests may be open on one HTTP/2 connection. Further requests wait in the client.
const STREAMS_PER_CONNECTION: u32 = 1024;

/// How often an HTTP/2 client or a WebSocket is pinged. A client that does not answer in time is disconnected.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How many bytes that the client still sends are read and discarded after the last response of a connection. A client that sends
/// a refused body to its end can then read the response. Without this, the kernel resets the connection because of unread bytes.
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// How long these bytes are read at most.
const LINGER_FOR: Duration = Duration::from_secs(2);

struct Connections {
    protocols: Protocols,
    clients: Arc<SlowClients>,
    /// Encrypts TCP connections. `None`: no TLS.
    tls: Option<Tls>,
    /// Recognizes client certificates, and the users of processes on the unix socket.
    credentials: Credentials,
    /// How long a connection may be without an open request. Includes the TLS handshake.
    idle_timeout: Duration,
    shutdown: CancellationToken,
}

/// A connection whose protocol is known.
struct Opened {
    protocol: Protocol,
    stream: SniffedStream<Transport>,
    /// The facts about the connection that each of its requests inherits.
    arrival: Option<Arc<Arrival>>,
}

impl Connections {
    async fn serve(
        &self,
        Accepted { socket, peer, only_grpc }: Accepted,
        dispatcher: Arc<Dispatcher>,
        connection: &Arc<Connection>,
    ) {
        // Events are small and must not be held back until there are more of them.
        socket.send_at_once();
        let writes = WriteState::default();
        let socket = Socket::new(socket, &self.clients, &writes);
        // A child token, because each connection polls its token on every wake-up, and a shared token would contend for one lock.
        let shutdown = self.shutdown.child_token();
        // hyper has a timeout only for HTTP/1, and it starts when the protocol is known. Before that, the TLS handshake and up to
        // 24 bytes must arrive.
        let opened = tokio::select! {
            opened = self.open(socket, only_grpc) => opened,
            () = tokio::time::sleep(self.idle_timeout) => return,
            () = shutdown.cancelled() => return,
            () = connection.cut.cancelled() => return,
        };
        let Opened { protocol, stream, arrival } = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "connection ended");
                return;
            }
        };
        let watch = ConnectionWatch { connection, writes, idle_timeout: self.idle_timeout, shutdown };
        match protocol {
            Protocol::Http1 => {
                let client = Client { peer, arrival };
                self.serve_http1(stream, &client, &dispatcher, watch).await;
            }
            // Boxed, because this future is larger than that of HTTP/1, and HTTP/2 is rare.
            Protocol::Http2 => {
                let (owner, clients) = (Arc::clone(connection), Arc::clone(&self.clients));
                let client = Client { peer, arrival };
                let service = service_fn(move |mut request| {
                    let open = OpenRequest::begin(&owner);
                    client.mark(&mut request);
                    let (dispatcher, clients) = (Arc::clone(&dispatcher), Arc::clone(&clients));
                    async move {
                        let answer = dispatcher.answer(peer, Some(&open), request).await;
                        let flowing = |body| FlowBody::new(AnswerBody { body, _open: open }, &clients);
                        Ok::<_, Infallible>(answer.map(flowing))
                    }
                });
                let flow = Arc::new(Flow::default());
                let connection = Box::pin(self.protocols.http2(&flow).serve_connection(stream, service));
                let stuck = async {
                    flow.wait_until_stuck(&self.clients).await;
                    self.clients.note_slow();
                };
                Box::pin(watch.drive(connection, || flow.is_waiting(), stuck)).await;
            }
        }
    }

    /// Does the TLS handshake, if the listener has TLS, and detects the protocol. `None`: the client closed the connection.
    async fn open(&self, socket: Socket, only_grpc: bool) -> io::Result<Option<Opened>> {
        let mut is_on_unix_socket = false;
        let (transport, caller) = match (&self.tls, socket.raw()) {
            (_, RawSocket::Unix(stream)) => {
                is_on_unix_socket = true;
                // The user id of the client's process.
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                let caller = user.and_then(|user| self.credentials.of_local_user(user));
                (Transport::Plain(socket), caller)
            }
            (None, RawSocket::Tcp(_)) => (Transport::Plain(socket), None),
            (Some(tls), RawSocket::Tcp(_)) => {
                // Boxed, because it is large, and connections without TLS do not need it.
                let stream = Box::pin(tls.accept(socket)).await?;
                let certificate = tls::client_certificate(&stream);
                let caller = certificate.and_then(|certificate| self.credentials.of_certificate(certificate));
                (Transport::Tls(stream), caller)
            }
        };
        let has_facts = caller.is_some() || is_on_unix_socket || only_grpc;
        let arrival = has_facts.then(|| Arc::new(Arrival { caller, is_on_unix_socket, only_grpc }));
        Ok(sniff(transport).await?.map(|(protocol, stream)| Opened { protocol, stream, arrival }))
    }

    async fn serve_http1(
        &self,
        mut stream: SniffedStream<Transport>,
        client: &Client,
        dispatcher: &Arc<Dispatcher>,
        watch: ConnectionWatch<'_>,
    ) {
        loop {
            // Boxed, so that the memory of hyper is freed while a stream is written.
            let served = Box::pin(self.serve_until_stream(stream, client, dispatcher, &watch)).await;
            let (handed, mut socket, read) = match served {
                Served::Stream(handed, socket, read) => (handed, socket, read),
                Served::Socket(handed, socket, read) => {
                    let write_timeout = self.clients.timeout;
                    let serving = websocket::serve(handed, socket, &read, dispatcher, &watch, write_timeout);
                    return Box::pin(serving).await;
                }
                Served::Unread(socket) => return Box::pin(linger(socket, &watch)).await,
                Served::Ended => return,
            };
            let ended = tokio::select! {
                ended = handed.write(&mut socket, &read) => ended,
                () = watch.connection.cut.cancelled() => return,
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

    /// Serves requests until one of them is answered with a stream. Then hyper gives the connection back.
    async fn serve_until_stream(
        &self,
        mut stream: SniffedStream<Transport>,
        client: &Client,
        dispatcher: &Arc<Dispatcher>,
        watch: &ConnectionWatch<'_>,
    ) -> Served {
        let handover = Arc::new(Handover::default());
        stream.set_handover(&handover);
        // Boxed, because hyper reserves room for the future of a request for as long as the connection is open.
        let service = service_fn(|mut request| {
            let open = OpenRequest::begin(watch.connection);
            handover.note_request();
            client.mark(&mut request);
            let (peer, dispatcher, handover) = (client.peer, Arc::clone(dispatcher), Arc::clone(&handover));
            Box::pin(async move {
                let (facts, request) = RequestFacts::inspect(request);
                let answer = dispatcher.answer(peer, Some(&open), request).await;
                let is_stream = matches!(answer.body(), reply::Body::Events(_));
                watch.writes.set_deadline(if is_stream { self.clients.stream_deadline() } else { None });
                match handover.offer(&facts, answer, open) {
                    // If a service returns an error, hyper writes nothing and leaves the connection unchanged.
                    None => Err(HandedOver),
                    Some((answer, open)) => Ok(answer.map(|body| AnswerBody { body, _open: open })),
                }
            })
        });
        let mut connection = self.protocols.http1.serve_connection(stream, service);
        let has_ended = watch.drive(Pin::new(&mut connection), || false, pending()).await;
        let hyper::server::conn::http1::Parts { io, read_buf, .. } = connection.into_parts();
        match handover.take() {
            Some(handed) => {
                let (socket, read) = (io.into_inner(), Bytes::copy_from_slice(&read_buf));
                match handed {
                    Handed::Stream(handed) => Served::Stream(handed, socket, read),
                    Handed::Socket(handed) => Served::Socket(handed, socket, read),
                }
            }
            None if has_ended && handover.has_unread() => Served::Unread(io.into_inner()),
            None => Served::Ended,
        }
    }
}

/// The state in which hyper left a connection.
enum Served {
    /// A stream takes over. Contains the bytes that were read after its request.
    Stream(HandedStream, Transport, Bytes),
    /// A WebSocket takes over. Contains the bytes that were read after its handshake.
    Socket(HandedSocket, Transport, Bytes),
    /// The last response is written, and the client may still send the rest of its request.
    Unread(Transport),
    Ended,
}

/// The client of a connection.
struct Client {
    peer: IpAddr,
    arrival: Option<Arc<Arrival>>,
}

impl Client {
    /// Adds the facts to a request that it inherits from its connection.
    fn mark<B>(&self, request: &mut http::Request<B>) {
        if let Some(arrival) = &self.arrival {
            request.extensions_mut().insert(Arc::clone(arrival));
        }
    }
}

/// Reads what the client still sends, until the client closes the connection or a limit is reached.
async fn linger(mut socket: Transport, watch: &ConnectionWatch<'_>) {
    let discard = async {
        let (mut buffer, mut left) = ([0; 4096], LINGER_BYTES);
        while let Ok(read) = socket.read(&mut buffer).await
            && read > 0
            && left > 0
        {
            left = left.saturating_sub(read);
        }
    };
    tokio::select! {
        () = discard => {}
        () = tokio::time::sleep(LINGER_FOR) => {}
        () = watch.connection.cut.cancelled() => {}
        () = watch.shutdown.cancelled() => {}
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

/// The conditions under which the gateway ends a connection.
struct ConnectionWatch<'a> {
    connection: &'a Arc<Connection>,
    writes: WriteState,
    idle_timeout: Duration,
    shutdown: CancellationToken,
}

impl ConnectionWatch<'_> {
    /// Serves the connection until it ends or must be closed. Returns whether the connection ended by itself, after its last
    /// response was written.
    ///
    /// `has_bytes`: whether hyper holds bytes for the client that are not yet written to the socket. `stuck`: returns when the
    /// client has taken none of those bytes for too long.
    async fn drive<C>(
        &self,
        mut connection: Pin<impl DerefMut<Target = C>>,
        has_bytes: impl Fn() -> bool,
        stuck: impl Future<Output = ()>,
    ) -> bool
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut idle = pin!(self.connection.wait_until_idle(self.idle_timeout));
        let mut stuck = pin!(stuck);
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        // Logged at level debug only, because clients disconnect all the time.
                        tracing::debug!(%error, "connection ended");
                    }
                    return true;
                }
                () = idle.as_mut() => {
                    // The connection is cut if it has had no request. It is also cut if its shutdown has begun and the client has
                    // taken all bytes but does not close its side.
                    let has_taken_all = !has_bytes() && !self.writes.is_waiting();
                    if !self.connection.has_had_request() || (stopping && has_taken_all) {
                        return false;
                    }
                    // A graceful shutdown, because the end of the last response may still be in flight, and a request may have just
                    // arrived.
                    if !stopping {
                        stopping = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    idle.set(self.connection.wait_until_idle(self.idle_timeout));
                }
                () = self.shutdown.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = stuck.as_mut() => return false,
                () = self.connection.cut.cancelled() => return false,
            }
        }
    }
}

/// The body of a response. Its request counts as open until the body is dropped.
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

/// The configured HTTP/1.1 and HTTP/2 servers of hyper.
struct Protocols {
    http1: http1::Builder,
    tasks: Tasks,
    cut: CancellationToken,
    clients: Arc<SlowClients>,
}

impl Protocols {
    fn new(
        tasks: &Tasks,
        cut: &CancellationToken,
        header_timeout: Duration,
        clients: &Arc<SlowClients>,
    ) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            // A client that closed its sending half counts as disconnected. Otherwise its request would be served in vain.
            .half_close(false)
            .max_buf_size(BUFFER_BYTES);
        Self { http1, tasks: tasks.clone(), cut: cut.clone(), clients: Arc::clone(clients) }
    }

    /// The HTTP/2 server for one connection. Counts the bytes that wait for the client.
    fn http2(&self, flow: &Arc<Flow>) -> hyper_http2::Builder<RequestExecutor> {
        let mut http2 = hyper_http2::Builder::new(RequestExecutor {
            tasks: self.tasks.clone(),
            cut: self.cut.clone(),
            clients: Arc::clone(&self.clients),
            connection: Arc::clone(flow),
        });
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .keep_alive_interval(PING_EVERY)
            .max_send_buf_size(BUFFER_BYTES);
        http2
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{self, StreamExt};
    use hyper::body::Incoming;
    use longshore_wire::contract::Deployment;
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::guard::Bound;
    use crate::limits::Places;
    use crate::{EdgeConfig, Limits, test_engine};

    /// The capacity of the pipe that replaces the kernel's buffers in these tests.
    const PIPE: usize = 1024;
    const CHUNK: usize = 16 * 1024;

    /// The maximum size of a connection's future, without hyper's buffers.
    const MAX_SIZE: usize = 2 * 1024;

    /// Serves an endless stream on a pipe. Returns the client's end and the number of bytes pulled from the stream.
    fn endless(tasks: &Tasks) -> (DuplexStream, Arc<AtomicUsize>) {
        let (client, server) = tokio::io::duplex(PIPE);
        let pulled = Arc::new(AtomicUsize::new(0));
        let clients = SlowClients::new(Duration::from_secs(30), None, Arc::default());
        let protocols = Protocols::new(tasks, &CancellationToken::new(), Duration::from_secs(30), &clients);
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
                Protocol::Http2 => protocols.http2(&Arc::default()).serve_connection(server, service).await,
            }
        });
        (client, pulled)
    }

    /// Waits until all other tasks wait, because with a paused clock a sleep ends only then.
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
            // SETTINGS: an initial window of 16 MiB, so that flow control does not limit the stream.
            &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0],
            // WINDOW_UPDATE: the same window for the whole connection.
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            // HEADERS on stream 1, which are the whole request: GET, http, /, authority x.
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
        let config = EdgeConfig::new(Deployment::default(), credentials.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bound = Bound { address: Some(address), has_tls: false };
        let dispatcher = Arc::new(Dispatcher::new(engine, config, bound, cut.clone(), tasks.clone()));
        let socket = RawSocket::Tcp(TcpStream::connect(address).await.unwrap());
        let clients = SlowClients::new(Duration::from_secs(30), None, Arc::default());
        let connections = Connections {
            protocols: Protocols::new(&tasks, &cut, Duration::from_secs(30), &clients),
            clients,
            tls: None,
            credentials,
            idle_timeout: Duration::from_secs(30),
            shutdown: cut.clone(),
        };
        let place = Places::new(&Limits::default(), Arc::default()).take(address.ip(), &cut).await.unwrap();
        let accepted = Accepted { socket, peer: address.ip(), only_grpc: false };
        let size = size_of_val(&connections.serve(accepted, dispatcher, &place.connection));
        assert!(size <= MAX_SIZE, "{size}");
    }
}
