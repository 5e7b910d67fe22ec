//! Tests of clients that do not read, with a paused clock: time advances only while all tasks wait.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};

use longshore_meter::Metrics;
use longshore_meter::label::{Answered, Binding, Limit, ProtocolVersion};
use longshore_model::{Error as Refused, ErrorKind, Principal};
use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn};
use longshore_wire::contract::Deployment;
use longshore_wire::surface::OPERATIONS;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::raw_socket::RawSocket;
use super::super::socket::{SlowClients, Socket, WriteState};
use super::*;
use crate::auth::Caller;
use crate::guard::Bound;
use crate::limits::{Connection, Places};
use crate::multiplexer::MessageHead;
use crate::{Credentials, EdgeConfig, Limits as EdgeLimits, Rights, test_engine};

const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// More than a unix socket holds.
const LONG: usize = 1024 * 1024;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Fixture {
    dispatcher: Arc<Dispatcher>,
    turns: mpsc::Receiver<StartedTurn>,
    metrics: Arc<Metrics>,
    caller: Arc<Caller>,
    writes: WriteState,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(configure: impl FnOnce(&mut EdgeConfig)) -> Self {
        let credentials = Credentials::builder().api_key("key".into(), "ada").build().unwrap();
        let mut config = EdgeConfig::new(Deployment::default(), credentials);
        configure(&mut config);
        let metrics = Arc::clone(&config.metrics);
        let bound = Bound { address: None, has_tls: false };
        let (closing, tasks) = (CancellationToken::new(), longshore_engine::Tasks::new());
        let (agent, turns) = ScriptedAgent::manual();
        let engine = test_engine::engine(Arc::new(longshore_store::memory()), agent);
        let dispatcher = Dispatcher::new(engine, config, bound, closing, tasks);
        let caller = Arc::new(Caller { principal: Principal::new("ada"), rights: Rights::of_owner() });
        Self { dispatcher: Arc::new(dispatcher), turns, metrics, caller, writes: WriteState::default() }
    }

    fn requests(&self) -> Multiplexer {
        let head = MessageHead::new(HERE, Arc::clone(&self.caller), Binding::WebSocket, None, None);
        Multiplexer::new(Arc::clone(&self.dispatcher), Arc::new(head))
    }

    /// The gateway's end of a WebSocket, and the end of a client that reads nothing.
    async fn socket<'a>(
        &self,
        bodies: &'a Arc<Bodies>,
        principal: &'a Principal,
    ) -> (Server<'a>, UnixStream) {
        let (client, server) = UnixStream::pair().unwrap();
        let clients = SlowClients::new(WRITE_TIMEOUT, None, Arc::clone(&self.metrics));
        let socket = Socket::new(RawSocket::Unix(server), &clients, &self.writes);
        let socket = MeteredSocket::new(Transport::Plain(socket), bodies, principal);
        (WebSocketStream::from_raw_socket(socket, Role::Server, None).await, client)
    }

    /// How many requests were answered with success.
    fn answered(&self) -> u64 {
        let requests = OPERATIONS.iter().filter_map(|row| self.metrics.http_requests.of(row.method.as_str()));
        requests.map(|of| of.of(ProtocolVersion::V1).of(Binding::WebSocket).of(Answered::Ok).get()).sum()
    }
}

type Server<'a> = WebSocketStream<MeteredSocket<'a>>;

async fn connection() -> Arc<Connection> {
    let places = Places::new(&EdgeLimits::default(), Arc::default());
    let place = places.take(HERE, &CancellationToken::new()).await.unwrap();
    Arc::clone(&place.connection)
}

fn watch<'a>(connection: &'a Arc<Connection>, writes: &WriteState) -> ConnectionWatch<'a> {
    let (writes, shutdown) = (writes.clone(), CancellationToken::new());
    ConnectionWatch { connection, writes, idle_timeout: WRITE_TIMEOUT, shutdown }
}

fn limits(idle: Option<Duration>) -> Limits {
    Limits { idle, message_timeout: WRITE_TIMEOUT, write_timeout: WRITE_TIMEOUT }
}

fn unmetered() -> (Arc<Bodies>, Principal) {
    (Bodies::new(&EdgeLimits::default(), Arc::default()), Principal::new("ada"))
}

/// Writes until the socket is full.
fn fill(socket: &Server<'_>) {
    let Transport::Plain(socket) = &socket.get_ref().socket else { panic!("not a plain socket") };
    for size in [1024, 1] {
        while socket.raw().write_now(&[io::IoSlice::new(&[b'x'; 1024][..size])]).is_ok() {}
    }
}

/// A request with a message for the agent.
fn send(method: &str) -> Bytes {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}).to_string().into()
}

/// A request proceeds no matter at which message the socket becomes full, and the write fails after the limit.
#[tokio::test(start_paused = true)]
async fn requests_proceed_while_a_client_does_not_read() {
    for number in [0, 1, MESSAGES_AT_ONCE - 1, MESSAGES_AT_ONCE, MESSAGES_AT_ONCE + 1] {
        let mut fixture = Fixture::new();
        let (bodies, ada) = unmetered();
        let (mut socket, _client) = fixture.socket(&bodies, &ada).await;
        let mut requests = fixture.requests();
        for other in 0..MESSAGES_AT_ONCE * 2 {
            let text = if other == number { "x".repeat(LONG) } else { "x".to_owned() };
            requests.refuse(Refused::new(ErrorKind::InvalidRequest, text));
        }
        // All of these responses wait before the multiplexer polls the request.
        assert!(requests.work().now_or_never().is_none());
        requests.receive(send("SendMessage"));
        let begun = Instant::now();
        let writing = async {
            loop {
                let Some(message) = requests.next().await else { continue };
                let deadline = Deadline { writes: &fixture.writes, write_timeout: WRITE_TIMEOUT };
                if let Err(error) = write(&mut socket, &mut requests, message, deadline).await {
                    break error;
                }
            }
        };
        let turns = &mut fixture.turns;
        let completing = async {
            turns.recv().await.unwrap().complete().await;
            pending::<()>().await;
        };
        let failed = tokio::select! {
            failed = writing => failed,
            () = completing => unreachable!("it waits for ever"),
        };
        assert!(matches!(&failed, Error::Io(error) if error.kind() == io::ErrorKind::TimedOut), "{failed}");
        assert_eq!(begun.elapsed().as_secs(), WRITE_TIMEOUT.as_secs(), "{number}");
        assert_eq!(fixture.answered(), 1, "{number}");
        assert_eq!(fixture.metrics.refused.of(Limit::WriteTimeout).get(), 1, "{number}");
    }
}

/// The socket is full when the ping is written, and the request ends while the ping waits.
#[tokio::test(start_paused = true)]
async fn requests_proceed_while_a_ping_waits() {
    let mut fixture = Fixture::new();
    let (bodies, ada) = unmetered();
    let (mut socket, _client) = fixture.socket(&bodies, &ada).await;
    fill(&socket);
    let mut requests = fixture.requests();
    requests.receive(send("SendMessage"));
    let turns = &mut fixture.turns;
    let answering = async {
        let turn = turns.recv().await.unwrap();
        tokio::time::sleep(PING_EVERY + Duration::from_secs(1)).await;
        turn.complete().await;
        pending::<()>().await;
    };
    let connection = connection().await;
    let watch = watch(&connection, &fixture.writes);
    let (begun, limits) = (Instant::now(), limits(None));
    tokio::select! {
        end = run(&mut socket, requests, limits, &watch) => assert!(matches!(end, End::Client)),
        () = answering => {}
    }
    assert_eq!(begun.elapsed().as_secs(), (PING_EVERY + WRITE_TIMEOUT).as_secs());
    assert_eq!(fixture.answered(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_is_disconnected() {
    const LONG_AFTER: Duration = Duration::from_mins(5);

    for (answers, idle, expected) in [
        // The first ping is sent after one interval, and the missing pong is noticed at the next check.
        (false, None, PING_EVERY * 2),
        (false, Some(Duration::from_secs(10)), Duration::from_secs(10) * 2),
        (true, None, LONG_AFTER),
        (true, Some(Duration::from_secs(10)), LONG_AFTER),
    ] {
        let mut fixture = Fixture::new();
        let (bodies, ada) = unmetered();
        let (mut socket, client) = fixture.socket(&bodies, &ada).await;
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let mut requests = fixture.requests();
        // A socket with an open request is not closed as unused.
        requests.receive(send("SendMessage"));
        let reading = async {
            if answers {
                while let Some(Ok(_)) = client.next().await {}
            }
            pending::<()>().await;
        };
        let connection = connection().await;
        let watch = watch(&connection, &fixture.writes);
        let begun = Instant::now();
        let end = tokio::select! {
            end = run(&mut socket, requests, limits(idle), &watch) => Some(end),
            () = tokio::time::sleep(LONG_AFTER) => None,
            () = reading => None,
        };
        assert_eq!(begun.elapsed(), expected, "{answers} {idle:?}");
        assert!(
            end.is_none() == answers && end.is_none_or(|end| matches!(end, End::Client)),
            "{answers} {idle:?}"
        );
        drop(fixture.turns.recv().await);
    }
}

/// The ping waits for room. At the next check it is still behind bytes that the client has not read.
#[tokio::test(start_paused = true)]
async fn a_client_whose_ping_had_to_wait_is_not_expected_to_answer_before_the_next_check() {
    let mut fixture = Fixture::new();
    let (bodies, ada) = unmetered();
    let (mut socket, client) = fixture.socket(&bodies, &ada).await;
    fill(&socket);
    let mut requests = fixture.requests();
    requests.receive(send("SendMessage"));
    let reading = async {
        tokio::time::sleep(PING_EVERY + Duration::from_secs(20)).await;
        client.readable().await.unwrap();
        let mut taken = vec![0; LONG];
        while client.try_read(&mut taken).is_ok_and(|taken| taken > 0) {}
        pending::<()>().await;
    };
    let connection = connection().await;
    let watch = watch(&connection, &fixture.writes);
    let begun = Instant::now();
    tokio::select! {
        _ = run(&mut socket, requests, limits(None), &watch) => panic!("disconnected after {:?}", begun.elapsed()),
        () = tokio::time::sleep(PING_EVERY * 2 + Duration::from_secs(1)) => {}
        () = reading => {}
    }
    drop(fixture.turns.recv().await);
}

/// This client takes some bytes all the time, so it never reaches the write timeout, but it takes them too slowly.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_at_its_duration_also_while_its_client_reads_slowly() {
    // In the first case other messages are being written when the stream begins; in the second case there are none.
    for others in [20, 0] {
        end_of_a_stream_that_is_read_slowly(others).await;
    }
}

async fn end_of_a_stream_that_is_read_slowly(others: usize) {
    const DURATION: Duration = Duration::from_mins(2);
    const TAKEN: usize = 256 * 1024;

    let mut fixture = Fixture::with(|config| config.limits.stream_duration = Some(DURATION));
    let (bodies, ada) = unmetered();
    let (mut socket, mut client) = fixture.socket(&bodies, &ada).await;
    let mut requests = fixture.requests();
    for _ in 0..others {
        requests.refuse(Refused::new(ErrorKind::InvalidRequest, "x".repeat(LONG)));
    }
    // Their responses wait before the multiplexer polls the stream.
    assert!(requests.work().now_or_never().is_none());
    requests.receive(send("SendStreamingMessage"));
    let turns = &mut fixture.turns;
    let reading = async {
        let turn = turns.recv().await.unwrap();
        // Writing this event takes longer than the stream may last. Between two events the stream would notice its end itself.
        turn.say("b", &"x".repeat(8 * LONG)).await;
        let mut taken = vec![0; TAKEN];
        loop {
            tokio::time::sleep(WRITE_TIMEOUT / 3).await;
            client.read_exact(&mut taken).await.unwrap();
        }
    };
    let connection = connection().await;
    let watch = watch(&connection, &fixture.writes);
    let begun = Instant::now();
    tokio::select! {
        end = run(&mut socket, requests, limits(None), &watch) => assert!(matches!(end, End::Client)),
        () = tokio::time::sleep(DURATION * 4) => panic!("the stream is still open"),
        () = reading => {}
    }
    assert_eq!(begun.elapsed().as_secs(), (DURATION + WRITE_TIMEOUT).as_secs(), "{others}");
    let refused = |limit| fixture.metrics.refused.of(limit).get();
    assert_eq!((refused(Limit::StreamDuration), refused(Limit::WriteTimeout)), (1, 0));
    assert_eq!(fixture.metrics.stream_active.get(), 0);
}
