//! A coding agent, seen from the engine.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::path::PathBuf;

use longshore_model::{
    AgentEvent, Answer, Artifact, Ask, Choices, Error, NativePrompt, PromptId, PromptOptions, RequestId,
    Result, SessionId, TaskId, TraceContext,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::BoxFuture;
use super::store::TurnRecord;
use crate::queue;

/// Drives one coding agent: what every agent can do. What only some agents can do is optional: [`Description::resumes_turns`],
/// [`Turn::steering`], [`SessionFinder`], [`UnfollowedTurns`] and [`SessionChoices`]. Without it the engine says what is missing, and never
/// pretends.
///
/// The engine guarantees one turn at a time per session. The agent guarantees that a turn's events come in order, that none
/// is lost between the prompt and [`AgentEvent::Ended`], and that it never prompts twice. For a resumed turn the agent
/// reports [`AgentEvent::CaughtUp`] when it has reported everything that happened before the restart. Until then, for some
/// minutes at most, the engine holds back the deadlines of the turn.
pub trait Agent: Send + Sync + Debug {
    /// What the agent is, as far as the gateway knows it now.
    fn describe(&self) -> Description;

    /// Checks what a caller requests before anything is stored or done, and refuses what is not possible: a directory that
    /// is out of bounds, a model that does not exist. If the agent cannot be reached, nothing is refused for that reason:
    /// the task is accepted, and its turn waits for the agent or fails.
    fn admit<'a>(&'a self, request: Admission<'a>) -> BoxFuture<'a, Result<Admitted>>;

    /// Checks the content of a message before anything is stored, after [`Agent::admit`]. `directory`: that of its context. Reads
    /// nothing and waits for nothing: [`Agent::start_turn`] checks the content again, with all that the agent knows then.
    fn check_input(&self, directory: &str, input: &[Input], options: &PromptOptions) -> Result<()> {
        let _ = (directory, input, options);
        Ok(())
    }

    /// Opens a session. Called once per context, before its first turn, or again when the agent no longer has the session. After
    /// an error that is marked with [`Error::mark_needs_credentials`], here and in [`Agent::start_turn`], the task waits until its
    /// caller sends another message.
    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>>;

    /// Starts a turn. Resumes it if [`TurnRequest::resume`] is set.
    ///
    /// Returns once the agent has accepted the prompt. Before that it waits until the session is idle, so that a turn that
    /// was just aborted is really over. Fails with `SessionGone` when the agent no longer has the session, and with
    /// `AgentUnavailable` when the agent cannot be reached. After either error nothing was prompted.
    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>>;

    /// Answers an ask of the session or of one of its sub-agents. Fails with `InterruptNotFound` when the ask is no longer
    /// open.
    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>>;

    /// Stops whatever runs in the session. Stopping an idle session is no error.
    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>>;

    /// Whether the agent could work now. Sends the agent a request that costs it nothing.
    fn check(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether the gateway itself starts an agent again that is down. Then a blocking send goes on waiting; otherwise it returns,
    /// because nobody knows when the agent comes back.
    fn is_restarted_by_gateway(&self) -> bool {
        false
    }

    /// Waits until an agent that is down comes back. Waits for ever if the implementation cannot notice that, so callers
    /// add a timeout.
    fn until_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// `None`: the agent cannot find sessions that the gateway did not open, so no caller can claim one.
    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        None
    }

    /// `None`: a turn runs only while the gateway follows it.
    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        None
    }

    /// `None`: the agent has no modes, models and commands that a message can choose, or callers learn of them in another way.
    fn session_choices(&self) -> Option<&dyn SessionChoices> {
        None
    }
}

/// What an agent is, and which of the optional abilities without methods of their own it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// As people call the agent.
    pub name: String,
    /// `None`: not known yet.
    pub version: Option<String>,
    /// After a restart of the gateway the agent can say what became of a turn: it goes on, or how it ended. Otherwise
    /// [`TurnRequest::resume`] is never set, and the engine ends the turn.
    pub resumes_turns: bool,
}

/// Finds sessions that the gateway did not open.
pub trait SessionFinder: Send + Sync {
    /// `None`: no directory that callers may use has a session with this id.
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>>;
}

/// Turns that run although the gateway does not follow them: other clients started them, or their task has ended.
pub trait UnfollowedTurns: Send + Sync {
    /// Whether a turn runs in the session, also if another client started it.
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>>;

    /// Stops turns that have ended in the gateway but still run in the agent, the newest turn of a session first. Returns
    /// the sessions in which such a turn may still run; the caller checks them again later. A session that works on
    /// something else by now is left alone.
    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>>;
}

/// Modes, models and commands that a message can choose.
pub trait SessionChoices: Send + Sync {
    /// What the agent has said so far. `None`: nothing yet, as with an agent that tells it when a session is opened. Costs the
    /// agent nothing, and is asked often.
    fn known(&self) -> Option<Choices>;
}

/// What a caller requests of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// As the caller wrote it.
    pub directory: Option<&'a str>,
    pub workspace: Option<&'a str>,
    /// The directory of the context, if it has one: used when the caller requests no other.
    pub current: Option<&'a str>,
    pub options: &'a PromptOptions,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// The directory to work in: the requested one, resolved; else that of the context; else the agent's own default.
    pub directory: String,
}

#[derive(Clone, Debug)]
pub struct NewSession {
    /// The directory that the agent works in. The agent has admitted it before.
    pub directory: String,
    /// `None`: the agent chooses one.
    pub title: Option<String>,
}

/// A conversation of the agent, and the directory it works in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    pub directory: String,
}

#[derive(Clone, Debug)]
pub struct TurnRequest {
    pub task: TaskId,
    pub session: Session,
    /// The engine's id, by which the agent finds the prompt again when it resumes the turn. Of an external turn: the agent's
    /// own id.
    pub prompt: PromptId,
    /// Empty when a turn is resumed.
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// How the input is given to the agent. `None`: as a plain prompt.
    pub order: Option<NativePrompt>,
    /// Another client of the agent started the turn, so the gateway must not stop it because it takes long.
    pub is_adopted: bool,
    /// Set after a restart of the gateway: the prompt may have been sent already, and must not be sent again.
    pub resume: Option<Resume>,
    /// To be marked when the prompt is sent.
    pub prompting: Prompting,
    /// The position of the send that started this turn in its caller's trace. `None`: the caller sent none, or the turn
    /// is resumed.
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
    /// `None`: only the remote server knows.
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
    /// A URL that callers may refer to. The gateway does not fetch it.
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

/// Whether the agent may have the prompt, and since when. Until then, whatever runs in the session was not started by
/// this turn, and the engine leaves it alone.
#[derive(Clone, Debug, Default)]
pub struct Prompting(Arc<Mutex<Option<Instant>>>);

impl Prompting {
    /// Call it just before the prompt is sent.
    pub fn mark(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// Call it when the prompt was certainly not sent: there was no connection.
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

/// What the log already holds of a resumed turn.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    pub artifacts: Vec<Artifact>,
    /// Further prompts that joined the turn, oldest first. A prompt that the agent does not have was never sent.
    pub joined: Vec<PromptId>,
    /// The sub-agents that the log knows.
    pub children: Vec<ResumedChild>,
    /// The asks that the log says are open. The driver reports those that are closed by now, and does not report the
    /// others again.
    pub open_asks: Vec<RequestId>,
}

/// A sub-agent of a resumed turn.
#[derive(Clone, Debug)]
pub struct ResumedChild {
    pub session: SessionId,
    pub call: Option<String>,
    pub state: ResumedChildState,
}

#[derive(Clone, Debug)]
pub enum ResumedChildState {
    /// `prompt`: the prompt that the sub-agent works on, if it had begun.
    Running { prompt: Option<PromptId>, artifacts: Vec<Artifact> },
    /// Nothing more is to be reported of the sub-agent.
    Over,
}

/// One more message for a turn that runs.
///
/// The driver first makes sure that the turn does not end without the prompt, and reports that. The engine then makes the
/// message durable and gives the go-ahead, and only then is the prompt sent.
#[derive(Debug)]
pub struct Steering {
    pub prompt: PromptId,
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// The position of the send of this message in its caller's trace.
    pub trace: Option<TraceContext>,
    /// Dropped by the driver when the turn is over.
    pub expected: oneshot::Sender<()>,
    /// Dropped by the engine when the prompt is not to be sent.
    pub go: oneshot::Receiver<()>,
    /// An error means that the agent certainly does not have the prompt; the turn then does not wait for it.
    pub sent: oneshot::Sender<Result<()>>,
}

/// How many [`Steering`] messages may wait for the driver of a turn. Further ones wait in the engine.
pub const MAX_STEERING: usize = 4;

/// A running turn. Dropping it tells the driver that its events are no longer read; it does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    /// Closed when the turn is over. `None`: the agent takes no message while it works.
    pub steering: Option<queue::Sender<Box<Steering>>>,
    /// Bounded: when the engine is behind, the driver of this turn waits, and no other turn does.
    pub events: queue::Receiver<AgentEvent>,
    /// Why the agent refused the native prompt, when it accepted the turn and refused it at once. The events report the
    /// end of the turn too; this error is for the caller who sent the prompt.
    pub refusal: Option<Error>,
}
