//! The parts of an agent that callers can read and change outside of turns.

use std::fmt::Debug;

use longshore_model::{
    AgentMessageId, ControlCommand, ControlQuery, ControlResult, NativePrompt, Offers, Part, PromptId,
    PromptOptions, RequestedLocation, Result, SessionId, Timestamp,
};
use tokio::sync::mpsc;

use super::BoxFuture;
use super::agent::{Input, Session};

/// The control surface of one coding agent: its sessions outside of turns. Further abilities that only some agents have are
/// optional: [`NativePrompts`] and [`SessionWatch`]. Of a query or a command, the engine reads only its session, and whether it
/// copies or deletes sessions. Implementations know no callers: `engine::control` decides before each call who owns a session
/// and who may do what.
///
/// A caller waits for the result of each call. Calls fail with an `Upstream…` kind, with `SessionNotFound`, or with
/// `InvalidParams` for mistakes that only the agent can detect, such as a message, a model or a directory that does not
/// exist.
pub trait Control: Send + Sync + Debug {
    /// The directory of the requested location, or the agent's default directory if the caller requests none. Fails with
    /// `InvalidParams` for a directory that is not allowed.
    fn resolve_location<'a>(&'a self, location: &'a RequestedLocation) -> BoxFuture<'a, Result<String>>;

    /// The session with this id, even if another client created it. `None`: the agent has no such session.
    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>>;

    /// Runs a query in the directory `at`. `session` is the session of the query, if it has one.
    fn query<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        query: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Runs a command in the directory `at`. `session` is the session of the command, if it has one. Never sends a command
    /// twice: if the agent's response is lost, the error says that the command may have been run
    /// ([`longshore_model::Error::is_maybe_applied`]).
    fn run_command<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        command: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Finds forks that any client has made since `since`: of the whole session, or of its messages before `before`. Used when
    /// the response to a fork request was lost. Returns only complete forks that are certainly of this session, because the
    /// caller becomes their owner.
    fn forks<'a>(
        &'a self,
        _session: &'a Session,
        _before: Option<&'a AgentMessageId>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The agents and commands that callers may name, at most [`MAX_OFFERS`] of each.
    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        Box::pin(async { Ok(Offers::default()) })
    }

    /// The agent's support for native prompts. `None`: the agent accepts only messages.
    fn native_prompts(&self) -> Option<&dyn NativePrompts> {
        None
    }

    /// The place that a command removes or resets. The engine lets no turn begin there during the command. Fails with
    /// `InvalidParams` for a place that may not be removed.
    fn removes<'a>(&'a self, _command: &'a ControlCommand) -> BoxFuture<'a, Result<Removes>> {
        Box::pin(async { Ok(Removes::Nothing) })
    }

    /// The watch for external turns. `None`: only the gateway starts turns in this agent.
    fn session_watch(&self) -> Option<&dyn SessionWatch> {
        None
    }
}

/// Prompts in the agent's own form.
pub trait NativePrompts: Send + Sync {
    /// Refuses a native prompt that names a model, a variant, an agent or a command that does not exist, because the agent would
    /// accept the prompt and fail later. Also refuses a prompt that would read files that callers may not see, or that would run
    /// something in a shell although its caller may not. `input` is the checked content of the prompt.
    fn check_native_prompt<'a>(
        &'a self,
        session: &'a Session,
        order: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>>;

    /// Adds a message to a session without starting a turn. `input` is the checked content of the message.
    fn note<'a>(
        &'a self,
        session: &'a Session,
        order: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>>;

    /// Whether the agent's message with this id is the message of this prompt.
    fn is_prompt(&self, message: &AgentMessageId, prompt: &PromptId) -> bool;
}

/// Watches for turns that other clients of the agent start.
pub trait SessionWatch: Send + Sync {
    /// Adds these sessions to the watch: a prompt of another client in one of them is reported as an [`ExternalTurn`].
    fn watch(&self, sessions: Vec<Session>);

    /// The queue of external turns in the watched sessions, from now on. There is one queue: only the first call returns it, and
    /// later calls return a closed one.
    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn>;

    /// Queries the agent for the external turn that runs in this session now. `None`: the session is idle, or its current work
    /// does not become a task.
    fn external_turn<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>>;
}

/// How many agents are offered at most, and how many commands. Further ones are left out.
pub const MAX_OFFERS: usize = 100;

/// A session that the agent has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownSession {
    pub session: Session,
    /// The parent session, if the session belongs to a sub-agent.
    pub parent: Option<SessionId>,
    /// Whether the gateway receives the events of the session, so that turns can run there.
    pub is_followed: bool,
    /// Whether the session is in a directory that callers may use.
    pub is_open: bool,
}

/// The effect of a command on places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removes {
    Nothing,
    /// The place does not exist. The command is not run, and this is its result.
    Absent(Box<ControlResult>),
    Place(RemovedPlace),
}

/// A place that a command removes or resets, with the sessions that are deleted with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedPlace {
    /// The directory of the place. `None`: it is not on this machine.
    pub directory: Option<String>,
    /// The sessions that are deleted with the place, wherever they are.
    pub sessions: Vec<RemovedSession>,
}

/// A session that is deleted with a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedSession {
    pub session: Session,
    /// The parent session, if the session belongs to a sub-agent.
    pub parent: Option<SessionId>,
}

/// A turn that another client of the agent started and that becomes a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalTurn {
    /// The root session. Turns of sub-agents are not reported.
    pub session: Session,
    /// The agent's own id of the message that started the turn.
    pub prompt: PromptId,
    /// The engine's id of that message, if some gateway sent it. `None`: no gateway sent it.
    pub engine_prompt: Option<PromptId>,
    /// The content of that message, as far as the gateway can show it.
    pub content: Vec<Part>,
    pub at: Timestamp,
}
