//! The traits of a coding agent, as the engine uses them.

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

/// Drives one coding agent. The required methods are what every agent can do. The rest is optional:
/// [`Description::resumes_turns`], [`Turn::steering`], [`SessionFinder`], [`UnfollowedTurns`] and [`SessionChoices`]. If an
/// agent lacks an optional ability, the engine tells callers that it is missing.
///
/// The engine guarantees one turn at a time per session. The agent guarantees that the events of a turn come in order, that
/// no event is lost between the prompt and [`AgentEvent::Ended`], and that it never prompts twice. For a resumed turn the
/// agent reports [`AgentEvent::CaughtUp`] when it has reported everything that happened before the restart. Until then, but
/// for some minutes at most, the engine lets no deadline of the turn expire.
pub trait Agent: Send + Sync + Debug {
    /// The name, version and abilities of the agent, as far as the gateway knows them now.
    fn describe(&self) -> Description;

    /// Checks what a caller requests, before anything is stored or done. Refuses what is not possible, for example a directory
    /// that is not allowed or a model that does not exist. An agent that cannot be reached is no reason to refuse: the task is
    /// accepted, and its turn waits for the agent or fails.
    fn admit<'a>(&'a self, request: Admission<'a>) -> BoxFuture<'a, Result<Admitted>>;

    /// Checks the content of a message after [`Agent::admit`], before anything is stored. `directory`: the directory of the
    /// message's context. Does no IO and never waits: [`Agent::start_turn`] checks the content again, with what the agent knows
    /// by then.
    fn check_input(&self, directory: &str, input: &[Input], options: &PromptOptions) -> Result<()> {
        let _ = (directory, input, options);
        Ok(())
    }

    /// Opens a session. Called once per context, before its first turn, and again if the agent no longer has the session. If this
    /// method or [`Agent::start_turn`] returns an error that is marked with [`Error::mark_needs_credentials`], the task waits until
    /// its caller sends another message.
    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>>;

    /// Starts a turn, or resumes it if [`TurnRequest::resume`] is set.
    ///
    /// Returns once the agent has accepted the prompt. First waits until the session is idle, so that a turn that was just
    /// aborted is over. Fails with `SessionGone` if the agent no longer has the session, and with `AgentUnavailable` if the
    /// agent cannot be reached. After either error the agent was certainly not prompted.
    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>>;

    /// Answers an ask of the session or of one of its sub-agents. Fails with `InterruptNotFound` when the ask is no longer
    /// open.
    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>>;

    /// Stops everything that runs in the session. Stopping an idle session is no error.
    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>>;

    /// Fails if the agent could not work now. Sends the agent a request that costs it nothing.
    fn check(&self) -> BoxFuture<'_, Result<()>>;

    /// Whether the gateway itself restarts the agent when it is down. If so, a blocking send continues to wait. If not, the send
    /// returns, because nobody knows when the agent will be back.
    fn is_restarted_by_gateway(&self) -> bool {
        false
    }

    /// Waits until the agent can be reached again. An implementation that cannot notice this never returns, so callers add a
    /// timeout.
    fn until_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// The agent's search for sessions. `None`: the agent cannot find sessions that the gateway did not open, so no caller can
    /// claim one.
    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        None
    }

    /// Access to turns that the gateway does not follow. `None`: a turn runs only while the gateway follows it.
    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        None
    }

    /// The choices that a message can make. `None`: the agent has no modes, models and commands that a message can choose, or
    /// callers learn of them in another way.
    fn session_choices(&self) -> Option<&dyn SessionChoices> {
        None
    }
}

/// The name and version of an agent, and those optional abilities that have no methods of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The name of the agent for people.
    pub name: String,
    /// The agent's version. `None`: it is not known yet.
    pub version: Option<String>,
    /// Whether the agent can say, after a restart of the gateway, that a turn continues or how it ended. If not,
    /// [`TurnRequest::resume`] is never set, and the engine ends the turn.
    pub resumes_turns: bool,
}

/// Finds sessions that the gateway did not open.
pub trait SessionFinder: Send + Sync {
    /// The session with this id. `None`: no directory that callers may use has such a session.
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>>;
}

/// Access to turns that run although the gateway does not follow them: other clients started them, or their task has ended.
pub trait UnfollowedTurns: Send + Sync {
    /// Whether a turn runs in the session, no matter which client started it.
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>>;

    /// Stops turns whose tasks have ended in the gateway but that still run in the agent, the newest turn of a session first.
    /// Returns the sessions in which such a turn may still run; the caller checks them again later. Does not touch a session
    /// that works on something else by now.
    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>>;
}

/// The modes, models and commands that a message can choose.
pub trait SessionChoices: Send + Sync {
    /// The choices that the agent has reported so far. `None`: none yet, because the agent reports them when it opens a session.
    /// Sends the agent no request, because callers ask often.
    fn known(&self) -> Option<Choices>;
}

/// The request of a caller that the agent checks.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The directory as the caller wrote it. `None`: the caller requests none.
    pub directory: Option<&'a str>,
    pub workspace: Option<&'a str>,
    /// The directory of the context, if it has one. It is used when the caller requests no directory.
    pub current: Option<&'a str>,
    pub options: &'a PromptOptions,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// The directory to work in: the requested directory, resolved; or else that of the context; or else the agent's default.
    pub directory: String,
}

#[derive(Clone, Debug)]
pub struct NewSession {
    /// The directory to work in. [`Agent::admit`] has returned it before.
    pub directory: String,
    /// The title of the new session. `None`: the agent chooses one.
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
    /// The engine's id of the prompt. When the agent resumes the turn, it finds the prompt by this id. For an external turn, this
    /// is the agent's own id.
    pub prompt: PromptId,
    /// The content of the prompt. Empty if the turn is resumed.
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// The native prompt that the input belongs to. `None`: the input is sent as a plain prompt.
    pub order: Option<NativePrompt>,
    /// Whether another client of the agent started the turn. The driver must not stop such a turn for taking long.
    pub is_adopted: bool,
    /// Set after a restart of the gateway. The prompt may already have been sent, and must not be sent again.
    pub resume: Option<Resume>,
    /// The mark that the agent sets when it sends the prompt.
    pub prompting: Prompting,
    /// The trace context of the send that started this turn. `None`: the caller sent none, or the turn is resumed.
    pub trace: Option<TraceContext>,
}

/// One piece of a prompt, checked and ready for the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Text(String),
    File(InputFile),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputFile {
    pub name: Option<String>,
    /// The media type without parameters, in lower case.
    pub media_type: String,
    /// Whether the content is UTF-8 text.
    pub is_text: bool,
    pub source: FileSource,
    /// The size and digest of the content. `None`: the content is at a remote URL, which the gateway does not read.
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
    /// A file in the workspace, as a resolved path.
    Workspace(PathBuf),
    /// A URL that messages may refer to. The gateway does not fetch it.
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

/// Whether the agent may have received the prompt, and since when. Before that moment, anything that runs in the session was
/// not started by this turn, and the engine does not stop it.
#[derive(Clone, Debug, Default)]
pub struct Prompting(Arc<Mutex<Option<Instant>>>);

impl Prompting {
    /// Records that the prompt is about to be sent. The agent calls this just before it sends the prompt.
    pub fn mark(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// Records that the prompt was certainly not sent, because there was no connection.
    pub fn unmark(&self) {
        *self.lock() = None;
    }

    pub fn has_begun(&self) -> bool {
        self.since().is_some()
    }

    /// The time just before the prompt was sent. `None`: the prompt was not sent.
    pub fn since(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a resumed turn that is already in the log.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    pub artifacts: Vec<Artifact>,
    /// Further prompts that joined the turn, oldest first. If the agent does not know one of them, it was never sent.
    pub joined: Vec<PromptId>,
    /// The sub-agents of the turn that are in the log.
    pub children: Vec<ResumedChild>,
    /// The asks that are open according to the log. The driver reports those that are closed by now, and does not report the
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
    /// `prompt`: the prompt that the sub-agent works on. `None`: the sub-agent had not begun.
    Running { prompt: Option<PromptId>, artifacts: Vec<Artifact> },
    /// Nothing more needs to be reported about the sub-agent.
    Over,
}

/// A further message for a running turn.
///
/// The driver first makes sure that the turn does not end without the prompt, and signals that on `expected`. The engine then
/// makes the message durable and signals `go`, and only then does the driver send the prompt.
#[derive(Debug)]
pub struct Steering {
    pub prompt: PromptId,
    pub input: Vec<Input>,
    pub options: PromptOptions,
    /// The trace context of the request that sent the message.
    pub trace: Option<TraceContext>,
    /// The driver drops this if the turn is over.
    pub expected: oneshot::Sender<()>,
    /// The engine drops the other end if the prompt must not be sent.
    pub go: oneshot::Receiver<()>,
    /// Gets the result of sending. After an error the agent certainly does not have the prompt, and the turn does not wait for it.
    pub sent: oneshot::Sender<Result<()>>,
}

/// How many [`Steering`] messages may wait for the driver of a turn. Further ones wait in the engine.
pub const MAX_STEERING: usize = 4;

/// A running turn. Dropping it tells the driver that nobody reads the events any more, but does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    /// Takes messages that join the turn. Closed when the turn is over. `None`: the agent accepts no message while it works.
    pub steering: Option<queue::Sender<Box<Steering>>>,
    /// The events of the turn. Bounded: if the engine is behind, only the driver of this turn waits.
    pub events: queue::Receiver<AgentEvent>,
    /// Set if the agent accepted the turn and then at once refused the native prompt. The events report the end of the turn
    /// too; this error is for the caller who sent the prompt.
    pub refusal: Option<Error>,
}
