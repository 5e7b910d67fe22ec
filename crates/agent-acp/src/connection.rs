//! A connection to one agent process: its requests and responses, its sessions, and the events of its turns.
//!
//! One [`Driver`] reads and writes; the caller spawns it. All lines of the agent come through one pipe, so the events of a turn and
//! the response to its prompt stay in order. Events that were not read yet wait in memory, up to a limit for all turns together
//! ([`backlog`]). At the limit the driver stops reading the pipe, so the agent waits and nothing is lost. But if other sessions are
//! waiting too, the driver continues after [`Limits::stall`]: it drops the events of the turn whose reader is too slow, and that
//! turn reports that a piece is missing. So a reader must continue to read the events of its turn while it waits for a response.

mod backlog;
mod choose;
mod dispatch;
mod driver;
mod error;
mod facts;
mod serve;
mod sessions;
mod unwritten;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use longshore_engine::queue;
use longshore_meter::Metrics;
use longshore_meter::label::WhyIgnored;
use longshore_model::Json;
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot, watch};
use tokio::time::{Instant, timeout};

use self::backlog::{Backlog, TurnEvents};
pub use self::backlog::{Loss, Queued};
use self::dispatch::EarlyUpdates;
pub use self::driver::Driver;
pub(crate) use self::driver::OUTPUT_ENDED;
pub use self::error::CallError;
pub use self::facts::{Chosen, Role, SessionFacts};
pub use self::sessions::OpenedSession;
pub(crate) use self::unwritten::Room;
use self::unwritten::Unwritten;
use crate::client::{Client, Report};
use crate::frame::{self, AgentRequestId, RpcError};
use crate::ignored::Ignored;
use crate::permission::Choice;
use crate::schema::{
    self, AgentCapabilities, AuthMethod, InitializeAnswer, PROTOCOL_VERSION, PermissionRequest, Update,
};
use crate::translate::{Replay, TurnEnd};

/// How many lines may wait to be written to the agent. If the queue is full, most requests wait for room, within their time limits.
/// Prompts, cancels and answers to permission requests fail at once, because the agent has apparently stopped reading.
/// [`Limits::unwritten_bytes`] limits the bytes of long lines.
const OUTBOX: usize = 1024;

/// How many bytes of text that is no JSON-RPC message are kept to explain a failure. Later text is dropped.
const MAX_NOISE: usize = 2048;

/// How many abandoned openings of sessions are tracked. Further sessions stay open in the agent.
const MAX_UNWANTED: usize = 64;

/// The bounds of a connection.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest line that the agent may send. A longer line is dropped: its request fails, or its turn reports a lost update.
    pub line_bytes: usize,
    /// How many bytes of unread events all turns may have, and how many bytes of unserved file requests. At the limit, the agent
    /// waits.
    pub queued_bytes: usize,
    /// How many bytes of long lines may wait to be written. At the limit, requests and prompts wait, within their time limits. A
    /// line longer than the limit waits until no other line waits.
    pub unwritten_bytes: usize,
    /// How long the agent may read no byte of its input while a line waits. After that the agent is ended, and its turns fail.
    pub write: Duration,
    /// How long a slow reader of one turn may make the agent wait while other sessions are waiting too. After that, events of this
    /// turn are dropped, and the turn reports that.
    pub stall: Duration,
    /// How many sessions may be open in the process. If there are more, the least recently used ones without a running turn are
    /// closed. 0: no limit.
    pub open_sessions: usize,
    /// How long the agent may take to start, and to open or load a session.
    pub start: Duration,
    /// How long other requests may take. Prompts have no limit here, because the engine limits turns.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes: frame::MAX_LINE_BYTES,
            queued_bytes: 32 * 1024 * 1024,
            unwritten_bytes: 32 * 1024 * 1024,
            write: Duration::from_mins(2),
            stall: Duration::from_secs(10),
            open_sessions: 16,
            start: Duration::from_mins(1),
            call: Duration::from_secs(30),
        }
    }
}

/// A connection: see the module. Clones are handles of the same connection.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    limits: Limits,
    state: Mutex<State>,
    backlog: Arc<Backlog>,
    /// The permits for the bytes of the agent's requests that wait to be served.
    requests: Arc<Semaphore>,
    unwritten: Unwritten,
    /// Whether the agent's output was recently not read because too many events were unread. The agent may read no input during
    /// that time.
    was_held_back: AtomicBool,
    /// Whether the agent's process has ended.
    exited: watch::Sender<bool>,
    /// Serves the agent's requests for files and commands. Unset: the agent may request none.
    client: OnceLock<Arc<Client>>,
    /// Signals that the agent has named the commands of a session.
    commands_named: watch::Sender<()>,
}

/// A line that waits to be written.
struct Outgoing {
    line: Vec<u8>,
    _room: Room,
    _held: Option<OwnedSemaphorePermit>,
}

struct State {
    /// The queue of lines to write. `None`: no more lines are written.
    outbox: Option<queue::Sender<Outgoing>>,
    unwritten: Unwritten,
    last_id: u64,
    pending: HashMap<u64, Pending>,
    sessions: HashMap<String, Route>,
    early: EarlyUpdates,
    open_asks: HashMap<AgentRequestId, String>,
    capabilities: AgentCapabilities,
    auth_methods: Vec<AuthMethod>,
    /// The methods that the agent advertised but turned out to lack.
    absent: HashSet<&'static str>,
    ignored: Ignored,
    metrics: Arc<Metrics>,
    noise: String,
    /// Why the connection is over. `None`: it is open.
    closed: Option<String>,
}

type Reply<T> = oneshot::Sender<Result<T, CallError>>;

/// A request to which the agent has not responded.
enum Pending {
    Call(Reply<Json>),
    /// The response will name a new session in this directory.
    NewSession {
        directory: String,
        /// Whether the session is a copy, which has a history with usage of its own.
        is_copy: bool,
        reply: Reply<OpenedSession>,
    },
    /// The session is known. The agent may repeat its history.
    OldSession {
        session: String,
        is_replayed: bool,
        reply: Reply<OpenedSession>,
    },
    Prompt {
        session: String,
    },
    /// A session is being opened, but its caller no longer waits. `None`: the response will name the session.
    Unwanted {
        session: Option<String>,
        is_copy: bool,
    },
    /// The connection closes or deletes a session for which no turn waits. Counts towards the same limit as `Unwanted`.
    Closing,
}

/// The connection's state of one session.
struct Route {
    facts: SessionFacts,
    phase: Phase,
    /// When the agent last sent something for the session that is not passed on to a turn.
    heard_at: Option<Instant>,
}

enum Phase {
    Idle,
    Loading(Replay),
    Turn { events: TurnEvents, is_cancelled: bool },
}

/// An event of a turn.
#[derive(Debug)]
pub enum TurnEvent {
    Update(Update),
    /// One or more consecutive updates are missing.
    LostUpdate(Loss),
    Permission {
        id: AgentRequestId,
        request: Box<PermissionRequest>,
    },
    /// The output of a command that the gateway runs for the agent.
    Terminal(Report),
    /// The end of the turn, which is always the last event.
    Ended(TurnEnd),
}

impl Connection {
    /// Creates a connection and its driver. The connection works only while the driver runs.
    pub fn new<R, W>(output: R, input: W, limits: Limits, metrics: Arc<Metrics>) -> (Self, Driver<R, W>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (outbox, lines) = queue::channel(OUTBOX);
        let unwritten = Unwritten::new(limits.unwritten_bytes);
        let state = State {
            outbox: Some(outbox),
            unwritten: unwritten.clone(),
            last_id: 0,
            pending: HashMap::new(),
            sessions: HashMap::new(),
            early: EarlyUpdates::default(),
            open_asks: HashMap::new(),
            capabilities: AgentCapabilities::default(),
            auth_methods: Vec::new(),
            absent: HashSet::new(),
            ignored: Ignored::default(),
            metrics,
            noise: String::new(),
            closed: None,
        };
        let connection = Self(Arc::new(Shared {
            backlog: Backlog::new(limits.queued_bytes),
            requests: Arc::new(Semaphore::new(limits.queued_bytes)),
            unwritten,
            was_held_back: AtomicBool::new(false),
            exited: watch::channel(false).0,
            client: OnceLock::new(),
            commands_named: watch::channel(()).0,
            limits,
            state: Mutex::new(state),
        }));
        let driver = Driver::new(connection.clone(), output, input, lines);
        (connection, driver)
    }

    /// Negotiates the protocol version. This is the first request.
    pub async fn initialize(&self) -> Result<InitializeAnswer, CallError> {
        // If no files and terminals are offered, the agent uses its own.
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": self.client_capabilities(),
            "clientInfo": {"name": "longshore", "version": env!("CARGO_PKG_VERSION")},
        });
        let answer = self.call("initialize", &params, self.0.limits.start).await?;
        let answer: InitializeAnswer = schema::read(&answer).ok_or(CallError::Unreadable)?;
        if answer.protocol_version != Some(PROTOCOL_VERSION) {
            return Err(CallError::WrongVersion(answer.protocol_version));
        }
        let mut state = self.lock();
        state.capabilities = answer.agent_capabilities.clone();
        state.auth_methods.clone_from(&answer.auth_methods);
        Ok(answer)
    }

    /// Logs in with one of the agent's methods.
    pub async fn authenticate(&self, method: &str) -> Result<(), CallError> {
        self.call("authenticate", &json!({"methodId": method}), self.0.limits.start).await.map(drop)
    }

    /// Waits until a prompt of about this many bytes may be queued.
    pub(crate) async fn room(&self, bytes: usize) -> Result<Room, CallError> {
        match timeout(self.0.limits.start, self.0.unwritten.room(bytes)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) => Err(self.lock().why_closed().unwrap_or_else(CallError::shut)),
            Err(_) => Err(CallError::Deaf),
        }
    }

    /// Sends a prompt, and returns the queue of the turn's events. Fails with [`CallError::Busy`] while another prompt runs in the
    /// session, because every agent handles a second prompt differently.
    pub fn prompt(
        &self,
        session: &str,
        prompt: &[impl Serialize],
    ) -> Result<queue::Receiver<Queued>, CallError> {
        self.prompt_in(None, session, prompt)
    }

    /// Like [`Self::prompt`], with the room that the prompt waited for.
    pub(crate) fn prompt_in(
        &self,
        room: Option<Room>,
        session: &str,
        prompt: &[impl Serialize],
    ) -> Result<queue::Receiver<Queued>, CallError> {
        let mut state = self.lock();
        match state.sessions.get(session) {
            None => return Err(state.why_closed().unwrap_or(CallError::NoSession)),
            Some(Route { phase: Phase::Idle, .. }) => {}
            Some(_) => return Err(CallError::Busy),
        }
        let id = state.register(Pending::Prompt { session: session.to_owned() });
        let line = frame::request(id, "session/prompt", &json!({"sessionId": session, "prompt": prompt}));
        if let Err(error) = state.send_in(room, line) {
            state.pending.remove(&id);
            return Err(error);
        }
        let (events, receiver) = self.0.backlog.turn();
        if let Some(route) = state.sessions.get_mut(session) {
            route.phase = Phase::Turn { events, is_cancelled: false };
        }
        Ok(receiver)
    }

    /// Asks the agent to stop the session's turn. First answers the open permission requests of the turn with `cancelled`, because
    /// two agents wait for that. Later requests of the turn get the same answer. Does nothing if no turn runs.
    pub fn cancel(&self, session: &str) -> Result<(), CallError> {
        let mut state = self.lock();
        if !matches!(state.sessions.get(session), Some(Route { phase: Phase::Turn { .. }, .. })) {
            return Ok(());
        }
        self.end_commands(session);
        // Queued as one item, so that no other line comes in between.
        let asks: Vec<_> = state.asks_of(session);
        let cancelled = asks.iter().flat_map(|id| frame::result(id, &Choice::Cancelled.outcome()));
        let notice = frame::notification("session/cancel", &json!({"sessionId": session}));
        state.send(cancelled.chain(notice).collect())?;
        for id in asks {
            state.open_asks.remove(&id);
        }
        if let Some(Route { phase: Phase::Turn { is_cancelled, .. }, .. }) = state.sessions.get_mut(session) {
            *is_cancelled = true;
        }
        Ok(())
    }

    /// Forgets the running turn of a session, which the agent does not end, and kills its commands. A late response to its prompt
    /// is dropped.
    pub fn abandon(&self, session: &str) {
        let mut state = self.lock();
        self.end_commands(session);
        state
            .pending
            .retain(|_, pending| !matches!(pending, Pending::Prompt { session: of } if of == session));
        state.end_turn(session);
    }

    /// Answers a permission request. Each can be answered once. Returns whether the request was still open.
    pub fn answer(&self, id: &AgentRequestId, choice: Choice<'_>) -> Result<bool, CallError> {
        let mut state = self.lock();
        if !state.open_asks.contains_key(id) {
            return Ok(false);
        }
        state.send(frame::result(id, &choice.outcome()))?;
        state.open_asks.remove(id);
        Ok(true)
    }

    /// Writes the waiting lines, and then closes the agent's input, whereupon the agent should end.
    pub fn shut(&self) {
        self.lock().outbox = None;
    }

    /// Called when the agent's process has ended: the driver reads the remaining output and then ends the connection.
    pub fn note_exit(&self) {
        self.0.exited.send_replace(true);
    }

    /// Whether requests can still get a response.
    pub fn is_open(&self) -> bool {
        !*self.0.exited.borrow() && self.closed().is_none()
    }

    /// The login methods that the agent names.
    pub fn auth_methods(&self) -> Vec<AuthMethod> {
        self.lock().auth_methods.clone()
    }

    /// When the agent last sent something for the session that its turn does not see.
    pub(crate) fn heard_at(&self, session: &str) -> Option<Instant> {
        self.lock().sessions.get(session)?.heard_at
    }

    /// Why the connection is over. `None`: it is not.
    pub fn closed(&self) -> Option<String> {
        self.lock().closed.clone()
    }

    /// The first lines of the agent's output that were no JSON-RPC messages.
    pub fn noise(&self) -> String {
        self.lock().noise.clone()
    }

    /// How often content outside of turns, and in ended turns, was ignored or only partly understood, by name.
    pub fn ignored(&self) -> BTreeMap<String, u64> {
        self.lock().ignored.counts()
    }

    /// Adds the counts of a turn's content that could not be translated.
    pub(crate) fn count_ignored(&self, ignored: &Ignored) {
        let mut state = self.lock();
        for (why, name, count) in ignored.iter() {
            state.count_many(why, name, count);
        }
    }

    /// Sends a request and waits for the response.
    async fn call(
        &self,
        method: &'static str,
        params: &impl Serialize,
        limit: Duration,
    ) -> Result<Json, CallError> {
        let (reply, answer) = oneshot::channel();
        self.request(method, params, limit, Pending::Call(reply), answer).await
    }

    async fn request<T>(
        &self,
        method: &'static str,
        params: &impl Serialize,
        limit: Duration,
        pending: Pending,
        answer: oneshot::Receiver<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let (id, outbox) = {
            let mut state = self.lock();
            let outbox = state.outbox()?;
            (state.register(pending), outbox)
        };
        // Also runs if the caller stops waiting. A late response is then counted and dropped.
        let _forget = Forget { connection: self, id };
        let line = frame::request(id, method, params);
        let exchange = async {
            // If the line cannot be sent, the connection is over, and the reply reports that.
            if let Ok(room) = self.0.unwritten.room(line.len()).await {
                let _ = outbox.send(Outgoing { line, _room: room, _held: None }).await;
            }
            answer.await
        };
        let answer = match timeout(limit, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.lock().why_closed().unwrap_or_else(CallError::shut)),
            Err(_) => Err(CallError::TimedOut { method, after: limit }),
        };
        if let Err(CallError::Rpc(error)) = &answer {
            let mut state = self.lock();
            if error.code == RpcError::METHOD_NOT_FOUND {
                state.absent.insert(method);
            }
            if error.code == RpcError::AUTH_REQUIRED {
                return Err(CallError::AuthRequired(state.auth_methods.clone()));
            }
        }
        answer
    }

    fn close(&self, why: String) {
        let mut state = self.lock();
        state.closed.get_or_insert(why);
        state.outbox = None;
        state.unwritten.close();
        state.open_asks.clear();
        // Dropping the queues and the reply channels tells the waiting callers.
        let pending = std::mem::take(&mut state.pending);
        for route in state.sessions.values_mut() {
            route.phase = Phase::Idle;
        }
        drop(state);
        drop(pending);
        self.end_all_commands();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn outbox(&self) -> Result<queue::Sender<Outgoing>, CallError> {
        self.outbox.clone().ok_or_else(|| self.why_closed().unwrap_or_else(CallError::shut))
    }

    fn why_closed(&self) -> Option<CallError> {
        self.closed.clone().map(CallError::Closed)
    }

    fn register(&mut self, pending: Pending) -> u64 {
        self.last_id += 1;
        self.pending.insert(self.last_id, pending);
        self.last_id
    }

    /// Queues a line. After an error, nothing was sent.
    fn send(&self, line: Vec<u8>) -> Result<(), CallError> {
        self.send_in(None, line)
    }

    /// Like [`Self::send`], with the room that the line waited for.
    fn send_in(&self, room: Option<Room>, line: Vec<u8>) -> Result<(), CallError> {
        let outbox = self.outbox()?;
        let room =
            room.map_or_else(|| self.unwritten.try_room(line.len()), Ok).map_err(|error| match error {
                TryAcquireError::NoPermits => CallError::Deaf,
                TryAcquireError::Closed => self.why_closed().unwrap_or_else(CallError::shut),
            })?;
        outbox.try_send(Outgoing { line, _room: room, _held: None }).map_err(|error| match error {
            TrySendError::Full(_) => CallError::Deaf,
            TrySendError::Closed(_) => self.why_closed().unwrap_or_else(CallError::shut),
        })
    }

    /// The open permission requests of a session.
    fn asks_of(&self, session: &str) -> Vec<AgentRequestId> {
        let asks = self.open_asks.iter().filter(|(_, of)| *of == session);
        asks.map(|(id, _)| id.clone()).collect()
    }

    fn count(&mut self, why: WhyIgnored, name: &str) {
        self.count_many(why, name, 1);
    }

    fn count_many(&mut self, why: WhyIgnored, name: &str, count: u64) {
        self.metrics.acp_ignored.of(why).add(count);
        if let Some(name) = self.ignored.add(why, name, count) {
            tracing::info!(
                ?name,
                "an agent sent something that the gateway ignores; further ones are only counted"
            );
        }
    }
}

/// Removes a pending request when its caller stops waiting.
struct Forget<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        // It is not known yet whether the agent opens the session.
        let (session, is_copy) = match state.pending.remove(&self.id) {
            Some(Pending::OldSession { session, .. }) => {
                state.sessions.remove(&session);
                (Some(session), false)
            }
            Some(Pending::NewSession { is_copy, .. }) => {
                state.drop_early();
                (None, is_copy)
            }
            _ => return,
        };
        let is_unwanted = |pending: &&Pending| matches!(pending, Pending::Unwanted { .. } | Pending::Closing);
        if state.pending.values().filter(is_unwanted).count() < MAX_UNWANTED {
            state.pending.insert(self.id, Pending::Unwanted { session, is_copy });
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.closed()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
