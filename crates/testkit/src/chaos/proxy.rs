//! A proxy that breaks connections: it cuts, stalls, slows and half-closes them. It never changes, doubles or reorders a
//! byte. So a client misses only what a break lost, and any other fault is not the proxy's. Clients connect over TCP. The server
//! listens on a port or on a unix socket.
//!
//! The seed and the number of a connection alone decide what happens to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Add, Range};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

const BUFFER_BYTES: usize = 16 * 1024;

/// How often connections break, and how. The numbers are weights: each connection meets one of these faults, or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub nothing: u32,
    /// Closed in both directions, in the middle of an answer.
    pub cut_answer: u32,
    /// Closed in both directions, in the middle of a request.
    pub cut_request: u32,
    /// The answer pauses for a while.
    pub stall: u32,
    /// The answer comes a few bytes at a time.
    pub slow: u32,
    /// The answer ends early as if it were complete, while requests are still accepted.
    pub half_close: u32,
    /// After how many bytes of that direction the fault happens.
    pub after: Range<usize>,
    pub stall_for: Range<Duration>,
}

impl Plan {
    /// No connection breaks.
    pub fn calm() -> Self {
        Self {
            nothing: 1,
            cut_answer: 0,
            cut_request: 0,
            stall: 0,
            slow: 0,
            half_close: 0,
            after: 0..1,
            stall_for: Duration::ZERO..Duration::from_millis(1),
        }
    }

    /// Few connections live for long.
    pub fn storm() -> Self {
        Self {
            nothing: 1,
            cut_answer: 10,
            cut_request: 1,
            stall: 2,
            slow: 2,
            half_close: 2,
            after: 0..6_000,
            stall_for: Duration::from_millis(50)..Duration::from_millis(600),
        }
    }
}

/// Counts of what the proxy did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub connections: u64,
    /// Connections that were cut in the middle or half-closed, with or without a reset.
    pub cuts: u64,
    /// Of these, answers that were event streams.
    pub streams_cut: u64,
    /// Connections that [`ChaosProxy::cut_now`] ended.
    pub ended: u64,
    pub stalls: u64,
    pub slowed: u64,
}

impl Add for Counts {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            connections: self.connections + more.connections,
            cuts: self.cuts + more.cuts,
            streams_cut: self.streams_cut + more.streams_cut,
            ended: self.ended + more.ended,
            stalls: self.stalls + more.stalls,
            slowed: self.slowed + more.slowed,
        }
    }
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Port(SocketAddr),
    UnixSocket(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Port(address)
    }
}

impl From<PathBuf> for Target {
    fn from(socket: PathBuf) -> Self {
        Self::UnixSocket(socket)
    }
}

/// A proxy between a client and a server. Dropping it stops it.
#[derive(Debug)]
pub struct ChaosProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    tasks: Tasks,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None`: new connections are closed at once.
    target: Option<Target>,
    plan: Plan,
    counts: Counts,
    seed: u64,
    /// Ends the open connections.
    open: CancellationToken,
}

/// The fault of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionFault {
    Nothing,
    CutAnswer { after: usize, reset: bool },
    CutRequest { after: usize, reset: bool },
    Stall { after: usize, pause: Duration },
    Slow,
    HalfClose { after: usize },
}

/// How one direction of a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The sender or the receiver closed it.
    Own,
    Cut {
        reset: bool,
    },
    /// Half-closed: the other direction goes on.
    Half,
}

impl ChaosProxy {
    /// Listens on a free port of loopback and passes everything on to `target`.
    pub async fn start(target: impl Into<Target>, seed: u64) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = State {
            target: Some(target.into()),
            plan: Plan::calm(),
            counts: Counts::default(),
            seed,
            open: CancellationToken::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state) });
        let tasks = Tasks::new();
        let (accepting, spawning) = (Arc::clone(&shared), tasks.clone());
        tasks.spawn("chaos proxy", async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = spawning.stopping().cancelled() => return,
                };
                let Ok((client, _)) = accepted else { continue };
                let (Some(target), fault, open) = accepting.next() else { continue };
                let shared = Arc::clone(&accepting);
                spawning.spawn("chaos connection", async move {
                    tokio::select! {
                        () = converse(&shared, client, &target, fault) => {}
                        () = open.cancelled() => shared.count(|counts| counts.ended += 1),
                    }
                });
            }
        });
        Ok(Self { shared, address, tasks })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// New connections go to this target. Open connections keep theirs.
    pub fn retarget(&self, target: impl Into<Target>) {
        self.shared.state().target = Some(target.into());
    }

    /// New connections are closed at once. For a target that is about to be killed: another process may get its port.
    pub fn lead_nowhere(&self) {
        self.shared.state().target = None;
    }

    /// Sets the faults of new connections.
    pub fn set_plan(&self, plan: Plan) {
        self.shared.state().plan = plan;
    }

    /// Ends every open connection.
    pub fn cut_now(&self) {
        let mut state = self.shared.state();
        std::mem::take(&mut state.open).cancel();
    }

    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// How many tasks run: one per open connection, and the listener.
    pub fn running(&self) -> usize {
        self.tasks.running()
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.cut_now();
        self.tasks.stopping().cancel();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.state().counts);
    }

    fn count_cut(&self, is_stream: bool) {
        self.count(|counts| {
            counts.cuts += 1;
            counts.streams_cut += u64::from(is_stream);
        });
    }

    /// The next connection: its target, its fault, and the token that ends it early.
    fn next(&self) -> (Option<Target>, ConnectionFault, CancellationToken) {
        let mut state = self.state();
        let number = state.counts.connections;
        state.counts.connections += 1;
        let fault = ConnectionFault::draw(&state.plan, state.seed, number);
        (state.target.clone(), fault, state.open.clone())
    }
}

impl ConnectionFault {
    fn draw(plan: &Plan, seed: u64, number: u64) -> Self {
        // Similar seeds must not give similar sequences of numbers.
        let mut rng = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let after = rng.random_range(plan.after.clone());
        let pause = rng.random_range(plan.stall_for.clone());
        let reset = rng.random_bool(0.5);
        let choices = [
            (plan.nothing, Self::Nothing),
            (plan.cut_answer, Self::CutAnswer { after, reset }),
            (plan.cut_request, Self::CutRequest { after, reset }),
            (plan.stall, Self::Stall { after, pause }),
            (plan.slow, Self::Slow),
            (plan.half_close, Self::HalfClose { after }),
        ];
        let whole: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut drawn = rng.random_range(0..whole.max(1));
        for (weight, fault) in choices {
            if drawn < weight {
                return fault;
            }
            drawn -= weight;
        }
        Self::Nothing
    }
}

async fn converse(shared: &Shared, mut client: TcpStream, target: &Target, fault: ConnectionFault) {
    // Without this, small answers would be delayed.
    drop(client.set_nodelay(true));
    // If no server listens, the client sees its connection closed.
    let is_reset = match target {
        Target::Port(address) => {
            let Ok(mut server) = TcpStream::connect(address).await else { return };
            drop(server.set_nodelay(true));
            let end = relay(shared, fault, client.split(), server.split()).await;
            let is_reset = end == (End::Cut { reset: true });
            if is_reset {
                drop(server.set_zero_linger());
            }
            is_reset
        }
        Target::UnixSocket(path) => {
            let Ok(mut server) = UnixStream::connect(path).await else { return };
            relay(shared, fault, client.split(), server.split()).await == (End::Cut { reset: true })
        }
    };
    if is_reset {
        drop(client.set_zero_linger());
    }
}

/// Passes bytes on between a client and a server, each in its two halves, until one of them or the fault ends the connection.
async fn relay(
    shared: &Shared,
    fault: ConnectionFault,
    (from_client, to_client): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    (from_server, to_server): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
) -> End {
    let mut up = pin!(request(shared, fault, from_client, to_server));
    let mut down = pin!(answer(shared, fault, from_server, to_client));
    let (mut is_up, mut is_down) = (true, true);
    loop {
        let (end, is_answer) = tokio::select! {
            end = &mut up, if is_up => (end, false),
            end = &mut down, if is_down => (end, true),
            else => return End::Own,
        };
        match (end, is_answer) {
            // Without the server the connection is useless.
            (End::Cut { .. }, _) | (End::Own, true) => return end,
            (End::Own | End::Half, false) => is_up = false,
            (End::Half, true) => is_down = false,
        }
    }
}

async fn request(
    shared: &Shared,
    fault: ConnectionFault,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
) -> End {
    match fault {
        ConnectionFault::CutRequest { after, reset } => cut(shared, from, to, after, reset).await,
        _ => pass(from, to, None).await,
    }
}

async fn answer(
    shared: &Shared,
    fault: ConnectionFault,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> End {
    match fault {
        ConnectionFault::Nothing | ConnectionFault::CutRequest { .. } => pass(from, to, None).await,
        ConnectionFault::CutAnswer { after, reset } => cut(shared, from, to, after, reset).await,
        ConnectionFault::Stall { after, pause } => {
            let Copied::All { next, .. } = copy(&mut from, &mut to, after).await else { return End::Own };
            shared.count(|counts| counts.stalls += 1);
            tokio::time::sleep(pause).await;
            if to.write_all(&[next]).await.is_err() {
                return End::Own;
            }
            pass(from, to, None).await
        }
        ConnectionFault::Slow => {
            shared.count(|counts| counts.slowed += 1);
            pass(from, to, Some(Duration::from_millis(2))).await
        }
        ConnectionFault::HalfClose { after } => {
            match copy(&mut from, &mut to, after).await {
                Copied::Ended => return End::Own,
                Copied::All { is_stream, .. } => shared.count_cut(is_stream),
            }
            // The client may have closed the connection already.
            drop(to.shutdown().await);
            End::Half
        }
    }
}

async fn cut(
    shared: &Shared,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    after: usize,
    reset: bool,
) -> End {
    match copy(&mut from, &mut to, after).await {
        Copied::Ended => return End::Own,
        Copied::All { is_stream, .. } => shared.count_cut(is_stream),
    }
    End::Cut { reset }
}

/// The result of passing on a number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copied {
    /// The connection ended earlier, or exactly there.
    Ended,
    All {
        /// The last answer that started is an event stream of HTTP/1.1.
        is_stream: bool,
        /// The byte after these, which was not passed on: a break after the last byte would break nothing.
        next: u8,
    },
}

/// Passes on exactly so many bytes.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut left: usize,
) -> Copied {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut is_stream = false;
    while left > 0 {
        let room = buffer.len().min(left);
        let Ok(read @ 1..) = from.read(&mut buffer[..room]).await else {
            drop(to.shutdown().await);
            return Copied::Ended;
        };
        is_stream = has_stream_begun(&buffer[..read]).unwrap_or(is_stream);
        if to.write_all(&buffer[..read]).await.is_err() {
            return Copied::Ended;
        }
        left -= read;
    }
    match from.read(&mut buffer[..1]).await {
        Ok(1..) => Copied::All { is_stream, next: buffer[0] },
        _ => Copied::Ended,
    }
}

/// Whether these bytes contain the head of an event stream. `None`: they contain no head of a response.
fn has_stream_begun(bytes: &[u8]) -> Option<bool> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let head = text.rfind("http/1.1 ")?;
    Some(text[head..].contains("content-type: text/event-stream"))
}

/// Passes on everything; with a pace, a few bytes at a time.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    pace: Option<Duration>,
) -> End {
    const FEW: usize = 7;
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let step = if pace.is_some() { FEW.max(read / 16) } else { read };
        for few in buffer[..read].chunks(step) {
            if to.write_all(few).await.is_err() {
                return End::Own;
            }
            if let Some(pace) = pace {
                tokio::time::sleep(pace).await;
            }
        }
    }
    drop(to.shutdown().await);
    End::Own
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: usize = 40_000;

    fn byte(at: usize) -> u8 {
        u8::try_from(at % 251).unwrap_or_default()
    }

    /// Answers every request of 10 bytes with [`ANSWER`] bytes that depend on their position.
    async fn server(tasks: &Tasks) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let spawning = tasks.clone();
        tasks.spawn("server", async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                spawning.spawn("connection", async move {
                    let mut request = [0; 10];
                    while socket.read_exact(&mut request).await.is_ok() {
                        let answer: Vec<u8> = (0..ANSWER).map(byte).collect();
                        if socket.write_all(&answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// The bytes that a client receives until the answer is complete or the connection ends.
    async fn ask(address: SocketAddr) -> Vec<u8> {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let mut got = Vec::new();
        if socket.write_all(b"0123456789").await.is_err() {
            return got;
        }
        let mut buffer = [0; 4096];
        while got.len() < ANSWER {
            let Ok(read @ 1..) = socket.read(&mut buffer).await else { break };
            got.extend_from_slice(&buffer[..read]);
        }
        got
    }

    fn check(got: &[u8]) {
        assert!(
            got.iter().enumerate().all(|(at, found)| *found == byte(at)),
            "a byte is at the wrong position"
        );
    }

    async fn with_plan(plan: Plan) -> (Vec<usize>, Counts) {
        let tasks = Tasks::new();
        let proxy = ChaosProxy::start(server(&tasks).await, 7).await.unwrap();
        proxy.set_plan(plan);
        let mut lengths = Vec::new();
        for _ in 0..20 {
            let got = ask(proxy.address()).await;
            check(&got);
            lengths.push(got.len());
        }
        (lengths, proxy.counts())
    }

    fn only(set: impl FnOnce(&mut Plan)) -> Plan {
        let mut plan = Plan { nothing: 0, after: 0..ANSWER, ..Plan::calm() };
        set(&mut plan);
        plan
    }

    #[tokio::test]
    async fn a_calm_connection_is_complete() {
        let (lengths, counts) = with_plan(Plan::calm()).await;
        assert!(lengths.iter().all(|length| *length == ANSWER));
        assert_eq!(counts, Counts { connections: 20, ..Counts::default() });
    }

    #[tokio::test]
    async fn cut_and_half_closed_answers_end_early_and_are_correct_until_then() {
        for plan in [only(|plan| plan.cut_answer = 1), only(|plan| plan.half_close = 1)] {
            let (lengths, counts) = with_plan(plan).await;
            assert!(lengths.iter().all(|length| *length < ANSWER), "{lengths:?}");
            assert!(lengths.iter().any(|length| *length > 0), "{lengths:?}");
            assert_eq!(counts.cuts, 20);
        }
    }

    #[tokio::test]
    async fn cut_requests_are_not_answered() {
        let plan = only(|plan| (plan.cut_request, plan.after) = (1, 0..10));
        let (lengths, counts) = with_plan(plan).await;
        assert!(lengths.iter().all(|length| *length == 0), "{lengths:?}");
        assert_eq!(counts.cuts, 20);
    }

    #[tokio::test]
    async fn stalled_and_slow_answers_are_complete() {
        let (lengths, counts) = with_plan(only(|plan| (plan.stall, plan.slow) = (1, 1))).await;
        assert!(lengths.iter().all(|length| *length == ANSWER), "{lengths:?}");
        assert_eq!(counts.stalls + counts.slowed, 20);
    }

    #[tokio::test]
    async fn a_seed_decides_the_faults() {
        let faults = |seed| (0..50).map(move |number| ConnectionFault::draw(&Plan::storm(), seed, number));
        assert!(faults(1).eq(faults(1)));
        assert!(!faults(1).eq(faults(2)));
    }

    #[tokio::test]
    async fn the_proxy_follows_its_target_and_cuts_at_once() {
        let tasks = Tasks::new();
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let proxy = ChaosProxy::start(nobody, 1).await.unwrap();
        assert_eq!(ask(proxy.address()).await.len(), 0);
        proxy.lead_nowhere();
        assert_eq!(ask(proxy.address()).await.len(), 0);
        proxy.retarget(server(&tasks).await);
        let mut open = TcpStream::connect(proxy.address()).await.unwrap();
        open.write_all(b"0123456789").await.unwrap();
        let mut whole = vec![0; ANSWER];
        open.read_exact(&mut whole).await.unwrap();
        check(&whole);
        proxy.cut_now();
        assert!(!matches!(open.read(&mut [0; 1]).await, Ok(1..)));
        assert_eq!(ask(proxy.address()).await.len(), ANSWER);
    }
}
