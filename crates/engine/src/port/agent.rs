//! A coding agent, seen from the engine.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::path::PathBuf;

use longshore_model::{
    AgentEvent, Answer, Artifact, Ask, Error, Order, PromptId, PromptOptions, RequestId, Result, SessionId,
    TaskId, TraceContext,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BoxFuture;
use super::store::TurnRecord;
use crate::queue;

/// Drives one coding agent.
///
/// The engine guarantees one turn at a time per session. The agent guarantees that a turn's events come in
/// order, that none is lost between the prompt and [`AgentEvent::Ended`], and that it never prompts twice. Of a turn that is
/// taken up again it says when it has [`AgentEvent::CaughtUp`]: no deadline ends anything before.
pub trait Agent: Send + Sync + Debug {
    /// Looks at what a caller wishes before anything is kept or done, and refuses what cannot be had: a directory that is
    /// out of bounds, a model that is not there. An agent that cannot be reached refuses nothing for that reason; the
    /// turn will.
    fn admit<'a>(&'a self, wishes: Admission<'a>) -> BoxFuture<'a, Result<Admitted>>;

    /// A session that was not made here. `None`: there is none of that name in a directory that callers may use.
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>>;

    /// Whether something runs in the session, whoever started it.
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>>;

    /// Makes a session. Called once per context, before its first turn, or again when the agent forgot the session.
    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>>;

    /// A fresh name for a prompt. It is stored before the prompt is sent.
    fn new_prompt(&self) -> PromptId;

    /// Starts (or takes up again) a turn.
    ///
    /// Returns once the agent has taken the prompt. Before that it waits until the session is idle, so that a
    /// turn that was just aborted is really over. Fails with `SessionGone` when the agent no longer knows
    /// the session, and with `AgentUnavailable` when it cannot be reached; then nothing was prompted.
    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>>;

    /// Answers an ask of the session or of a sub-agent below it. Fails with `InterruptNotFound` when the agent no longer
    /// asks this.
    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>>;

    /// Stops whatever runs in the session. Stopping an idle session is no error.
    fn abort<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>>;

    /// Stops what still runs of turns that are over here, the newest of a session first. Gives the sessions in which one may
    /// run yet, to be asked about again. A session that works on something else by now is left alone.
    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>>;

    /// Whether the agent could work now. It is really asked, by something that costs it nothing.
    fn check(&self) -> BoxFuture<'_, Result<()>>;
}

/// What a caller wishes of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// As the caller wrote it.
    pub directory: Option<&'a str>,
    pub workspace: Option<&'a str>,
    /// Where the context works already, if it does: where a caller who wishes for nothing else stays.
    pub current: Option<&'a str>,
    pub options: &'a PromptOptions,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// Where to work: what was wished, resolved, else where the context works, else the agent's own default.
    pub directory: String,
}

#[derive(Clone, Debug)]
pub struct NewSession {
    /// Where the agent works: a directory that it has admitted.
    pub directory: String,
}

/// An agent's conversation, and where it works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    pub directory: String,
}

#[derive(Clone, Debug)]
pub struct TurnRequest {
    pub task: TaskId,
    pub session: Session,
    pub prompt: PromptId,
    /// Empty when a turn is resumed.
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// How the input is to be given to the agent. `None`: as a plain prompt.
    pub order: Option<Order>,
    /// Somebody else began it: it is not ours to stop because it takes long.
    pub is_adopted: bool,
    /// Set after a restart of the gateway: the prompt may have been sent already, and must not be sent again.
    pub resume: Option<Resume>,
    /// To be marked when the prompt goes out.
    pub prompting: Prompting,
    /// Where the send that makes this turn stands in its caller's trace. `None`: nobody said, or the turn is resumed.
    pub trace: Option<TraceContext>,
}

/// A piece of a prompt, checked and ready to be given to an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Text(String),
    File(InputFile),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputFile {
    pub name: Option<String>,
    /// Without parameters, in lower case.
    pub media_type: String,
    /// The content is UTF-8 text.
    pub is_text: bool,
    pub source: FileSource,
    /// `None`: only the far end knows.
    pub content: Option<ContentFacts>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentFacts {
    pub bytes: u64,
    pub sha256: [u8; 32],
}

#[derive(Clone, PartialEq, Eq)]
pub enum FileSource {
    /// The bytes came with the message.
    Inline(Vec<u8>),
    /// A file in the workspace: the resolved path.
    Workspace(PathBuf),
    /// Somewhere that callers may refer to. The gateway does not fetch it.
    Remote(String),
}

impl Debug for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Workspace(_) => f.write_str("Workspace"),
            Self::Remote(_) => f.write_str("Remote"),
        }
    }
}

/// Whether the agent may have the prompt, and since when. Until it does, what runs in its session is somebody else's work, and the
/// engine leaves it alone.
#[derive(Clone, Debug, Default)]
pub struct Prompting(Arc<Mutex<Option<Instant>>>);

impl Prompting {
    /// Call it just before the prompt is sent.
    pub fn mark(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// Call it when it is certain that the prompt did not leave: there was no connection.
    pub fn unmark(&self) {
        *self.lock() = None;
    }

    pub fn has_begun(&self) -> bool {
        self.since().is_some()
    }

    /// When the prompt was about to be sent.
    pub fn since(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the log already holds of a turn that is taken up again.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    pub artifacts: Vec<Artifact>,
    /// Further prompts that joined the turn, oldest first. One that the agent does not have was never sent.
    pub joined: Vec<PromptId>,
    /// The sub-agents that the log knows.
    pub children: Vec<ResumedChild>,
    /// The asks that the log says are open. The driver reports those that are closed by now, and does not report the
    /// others again.
    pub open_asks: Vec<RequestId>,
}

/// A sub-agent of a turn that is taken up again.
#[derive(Clone, Debug)]
pub struct ResumedChild {
    pub session: SessionId,
    pub call: Option<String>,
    pub state: ResumedChildState,
}

#[derive(Clone, Debug)]
pub enum ResumedChildState {
    /// `prompt`: what it works on, if it had begun.
    Running { prompt: Option<PromptId>, artifacts: Vec<Artifact> },
    /// Nothing more is to be told of it.
    Over,
}

/// One more message for a turn that runs.
///
/// The driver first sees to it that the turn does not end without the prompt, and says so. The engine then makes the
/// message durable and gives the word, and only then is it sent.
#[derive(Debug)]
pub struct Steering {
    pub prompt: PromptId,
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// Where the send of this message stands in its caller's trace.
    pub trace: Option<TraceContext>,
    /// Dropped by the driver when the turn is over.
    pub expected: oneshot::Sender<()>,
    /// Dropped by the engine when the prompt is not to be sent.
    pub go: oneshot::Receiver<()>,
    /// An error means that the agent surely does not have the prompt; the turn then does not wait for it.
    pub sent: oneshot::Sender<Result<()>>,
}

/// How many of them may wait for the driver of a turn. One more waits with the engine.
pub const MAX_STEERING: usize = 4;

/// A running turn. Dropping it tells the driver that nobody listens; it does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    /// Closed when the turn is over.
    pub steering: queue::Sender<Box<Steering>>,
    /// Bounded: when the engine is behind, the driver of this turn waits, and no other turn does.
    pub events: queue::Receiver<AgentEvent>,
    /// Why the agent refused the order, when it took the turn and did so at once. The events tell of the end all the same; this is
    /// for the one who ordered.
    pub refusal: Option<Error>,
}
