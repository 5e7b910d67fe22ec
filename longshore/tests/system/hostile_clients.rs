//! Thousands of clients that do not read, never end their requests, or send more than the agent works off. Reports what they
//! cost, and what another caller notices.

mod unfinished_tasks;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longshore_testkit::chaos::measured::report;
use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::gateway::{Gateway, Setup, TOKEN, resident_kilobytes};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const SOCKETS: usize = 10_000;
const BODIES: usize = 1_000;

/// Files of the test process that are not sockets of hostile clients.
const OTHER_FILES: u64 = 500;

/// An answer that takes longer counts as none.
const PATIENCE: Duration = Duration::from_secs(10);

/// The default of `serve.write_timeout`: the time that a client may take no byte.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

const CARD: &str = "/.well-known/agent-card.json";

#[tokio::test(flavor = "multi_thread")]
async fn campaign_ten_thousand_clients_that_do_not_read_keep_nobody_out() {
    let run = Run::start(&[]).await;
    let sockets = SOCKETS.min(allowed_sockets());
    let (mut slow, mut caller) = (Vec::with_capacity(sockets), Latencies::default());
    let pipelined = format!("GET {CARD} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(200);
    let no_window = [http2_start(0), http2_headers(1, &head("GET", CARD), true)].concat();
    for number in 0..sockets {
        let request = if number % 10 == 0 { pipelined.as_bytes() } else { &no_window };
        let mut socket = connect(run.address).await;
        // The gateway may have closed the connection for a newer one.
        let _ = tokio::time::timeout(PATIENCE, socket.write_all(request)).await;
        slow.push(socket);
        if number % 100 == 99 {
            caller.measure(run.address).await;
        }
    }
    let full = run.memory();
    let opened = Instant::now();
    // The slow clients are closed after their time, and nobody waits for that.
    while run.connections().await > 1 {
        assert!(opened.elapsed() < WRITE_TIMEOUT * 4, "slow clients stay connected");
        caller.measure(run.address).await;
    }
    let measured = format!(
        "memory {} MB before, {} MB with all, {} MB after; all closed {:.1} s after the last one came; {caller}",
        run.before / 1024,
        full / 1024,
        run.memory() / 1024,
        opened.elapsed().as_secs_f64()
    );
    report(format!("{sockets} clients that send requests and never read"), measured)
        .expect("a row can be written");
    let log = run.gateway.log();
    assert!(log.contains("limits.connections") && log.contains("serve.write_timeout"), "{log}");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_a_thousand_unfinished_bodies_are_bounded_together() {
    const BYTES: usize = 900_000;
    /// The limit, twice because a growing buffer is copied, and some for everything else. The clients send more than twice as much.
    const ALLOWED_KILOBYTES: u64 = 2 * 32 * 1024 + 64 * 1024;
    const { assert!(BODIES as u64 / 3 * BYTES as u64 / 1024 > 2 * ALLOWED_KILOBYTES) };
    let run = Run::start(&["--max-body-bytes", "33554432"]).await;
    let (mut open, mut caller, mut peak) = (Vec::new(), Latencies::default(), 0);
    let bytes = vec![b' '; BYTES];
    let http1 = format!(
        "POST /message:send HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: 9000000\r\n\r\n"
    );
    let token = format!("Bearer {TOKEN}");
    let mut fields = head("POST", "/message:send").to_vec();
    fields.extend([("authorization", &*token), ("content-type", "application/json")]);
    // A third of the bodies is long. The rest is as long as the first windows of HTTP/2 allow, two on one connection.
    let bodies = [1, 3].map(|stream| {
        let data = [frame(0, 0, stream, &bytes[..16 * 1024]), frame(0, 0, stream, &bytes[..16_000])];
        [http2_headers(stream, &fields, false), data.concat()].concat()
    });
    let http2 = [http2_start(65_535), bodies.concat()].concat();
    for number in 0..BODIES / 3 {
        for request in [[http1.as_bytes(), &bytes].concat(), http2.clone()] {
            let mut socket = TcpStream::connect(run.address).await.expect("the gateway takes connections");
            // A refused body is not read to its end.
            let _ = tokio::time::timeout(PATIENCE, socket.write_all(&request)).await;
            open.push(socket);
        }
        peak = run.memory().max(peak);
        if number % 10 == 0 {
            caller.measure(run.address).await;
        }
    }
    let grown = peak.saturating_sub(run.before);
    let measured =
        format!("memory {} MB before, at most {} MB with all; {caller}", run.before / 1024, peak / 1024);
    report(format!("{BODIES} unfinished bodies of up to {BYTES} bytes"), measured)
        .expect("a row can be written");
    assert!(grown < ALLOWED_KILOBYTES, "the memory grew by {grown} KB");
    let page = run.metrics().await;
    let refused = sample(&page, "longshore_refused_total{limit=\"body_bytes\"}");
    assert!(refused > 0, "{page}");
    drop(open);
}

struct Run {
    gateway: Gateway,
    address: SocketAddr,
    /// The memory before the clients came, in kilobytes.
    before: u64,
    _fake: FakeOpenCode,
}

impl Run {
    async fn start(flags: &[&str]) -> Self {
        Self::start_with(FakeOpenCode::start(), flags, |setup| setup).await
    }

    async fn start_with(fake: FakeOpenCode, flags: &[&str], change: impl FnOnce(Setup) -> Setup) -> Self {
        let setup = change(Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url()));
        let setup = flags.iter().fold(setup, |setup, flag| setup.flag(*flag));
        let gateway = Gateway::start(setup).await;
        let address = address_of(&gateway);
        Latencies::default().measure(address).await;
        let before = resident_kilobytes(gateway.pid());
        Self { gateway, address, before, _fake: fake }
    }

    fn memory(&self) -> u64 {
        resident_kilobytes(self.gateway.pid())
    }

    async fn metrics(&self) -> String {
        call(self.address, "GET", "/metrics", Some(TOKEN), "").await.0
    }

    /// The open connections, the one of this call among them.
    async fn connections(&self) -> u64 {
        sample(&self.metrics().await, "longshore_connections")
    }
}

fn address_of(gateway: &Gateway) -> SocketAddr {
    gateway.url().trim_start_matches("http://").parse().expect("the gateway has an address")
}

/// How long the answers to another caller took.
#[derive(Default)]
struct Latencies {
    health: Vec<Duration>,
    caller: Vec<Duration>,
}

impl Latencies {
    /// Makes a health check, and calls with a credential, each on a new connection.
    async fn measure(&mut self, address: SocketAddr) {
        self.measure_as(address, TOKEN).await;
    }

    async fn measure_as(&mut self, address: SocketAddr, token: &str) {
        let (health, took) = call(address, "GET", "/livez", None, "").await;
        assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
        self.health.push(took);
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}"#;
        for (verb, path, body) in [("GET", "/tasks", ""), ("POST", "/", list)] {
            let (answer, took) = call(address, verb, path, Some(token), body).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("tasks"), "{answer}");
            self.caller.push(took);
        }
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, times) in [("health", &self.health), ("a caller", &self.caller)] {
            let mut times = times.clone();
            times.sort();
            let (middle, most) = (times[times.len() / 2], times[times.len() - 1]);
            write!(
                f,
                "{name}: {} responses, p50 {:.1} ms, longest {:.1} ms; ",
                times.len(),
                middle.as_secs_f64() * 1e3,
                most.as_secs_f64() * 1e3
            )?;
        }
        Ok(())
    }
}

/// One request on a new connection: the answer, and how long it took.
async fn call(
    address: SocketAddr,
    verb: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (String, Duration) {
    call_within(PATIENCE, address, verb, path, token, body).await
}

async fn call_within(
    patience: Duration,
    address: SocketAddr,
    verb: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (String, Duration) {
    let begun = Instant::now();
    let credential = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{credential}content-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(patience, exchange).await;
    let answer = answer.unwrap_or_else(|_| panic!("{verb} {path} was not answered in {patience:?}"));
    (answer.unwrap_or_else(|error| panic!("{verb} {path}: {error}")), begun.elapsed())
}

/// A connection with a small receive buffer.
async fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a test can open a socket");
    socket.set_recv_buffer_size(4 * 1024).expect("any size will do");
    let connected = tokio::time::timeout(PATIENCE, socket.connect(address)).await;
    connected.expect("the gateway takes connections").expect("the gateway takes connections")
}

/// How many sockets this process can open, after it has raised its limit.
fn allowed_sockets() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("a process can raise its limit to the maximum");
    let files = limit.maximum.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES);
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// The value of a series on a metrics page.
fn sample(page: &str, series: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {series}: {page}"))
}

fn head<'a>(verb: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", verb), (":scheme", "http"), (":path", path), (":authority", "localhost")]
}

/// The preface and the settings of an HTTP/2 client: each stream may send this many bytes.
fn http2_start(window: u32) -> Vec<u8> {
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4];
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &window.to_be_bytes()].concat()
}

/// The head of a request, in literal fields.
fn http2_headers(stream: u8, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a test's headers are short"));
            block.extend(text.as_bytes());
        }
    }
    frame(1, if ends { 5 } else { 4 }, stream, &block)
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}
