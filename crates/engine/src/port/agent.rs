//! A coding agent, seen from the engine.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_model::{
    AgentEvent, Answer, Artifact, Ask, Part, PromptId, RequestId, Result, SessionId, TaskId,
};
use tokio::sync::mpsc;

use super::BoxFuture;

/// Drives one coding agent.
///
/// The engine guarantees one turn at a time per session. The agent guarantees that a turn's events come in
/// order, that none is lost between the prompt and [`AgentEvent::Ended`], and that it never prompts twice.
pub trait Agent: Send + Sync + Debug {
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
}

#[derive(Clone, Debug, Default)]
pub struct NewSession {
    /// Where the agent works. `None`: its own default.
    pub directory: Option<String>,
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
    pub parts: Vec<Part>,
    /// Set after a restart of the gateway: the prompt may have been sent already, and must not be sent again.
    pub resume: Option<Resume>,
    /// To be marked when the prompt goes out.
    pub prompting: Prompting,
}

/// Whether the agent may have the prompt. Until it does, what runs in its session is somebody else's work, and the
/// engine leaves it alone.
#[derive(Clone, Debug, Default)]
pub struct Prompting(Arc<AtomicBool>);

impl Prompting {
    /// Call it just before the prompt is sent.
    pub fn mark(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the log already holds of a turn that is taken up again.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    pub artifacts: Vec<Artifact>,
    /// The asks that the log says are open. The driver reports those that are closed by now, and does not report the
    /// others again.
    pub open_asks: Vec<RequestId>,
}

/// A running turn. Dropping it tells the driver that nobody listens; it does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    /// Bounded: when the engine is behind, the driver of this turn waits, and no other turn does.
    pub events: mpsc::Receiver<AgentEvent>,
}
