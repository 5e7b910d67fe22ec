//! What an agent lets callers read and change outside of turns.

use std::fmt::Debug;

use longshore_model::{
    AgentMessageId, ControlCommand, ControlQuery, ControlResult, NativePrompt, Offers, Part, PromptId,
    PromptOptions, RequestedLocation, Result, SessionId, Timestamp,
};
use tokio::sync::mpsc;

use super::BoxFuture;
use super::agent::{Input, Session};

/// The control surface of one coding agent: its sessions outside of turns. What only some agents have besides is optional:
/// [`NativePrompts`] and [`SessionWatch`]. The engine looks at the session of a query or a command, at copies and deletions of
/// sessions, and at nothing else in it. Implementations know no callers: `engine::control` decides beforehand who owns
/// a session and who may do what.
///
/// Calls are made for a caller who waits. They fail with the kinds of `Upstream…`, with `SessionNotFound`, and with
/// `InvalidParams` for mistakes that only the agent can detect: a message, a model or a directory that does not exist.
pub trait Control: Send + Sync + Debug {
    /// The directory that the requested location stands for; the agent's own default when none is requested. Fails with
    /// `InvalidParams` for a directory that is out of bounds.
    fn resolve_location<'a>(&'a self, location: &'a RequestedLocation) -> BoxFuture<'a, Result<String>>;

    /// The session with this id, also if another client created it. `None`: the agent has no such session.
    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>>;

    /// Runs a query in the directory `at`. `session` is the session of the query, if it has one.
    fn query<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        query: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Runs a command in the directory `at`. `session` is the session of the command, if it has one. A command is never
    /// sent twice: when the agent's response is lost, the error says that the command may have been run
    /// ([`longshore_model::Error::is_maybe_applied`]).
    fn run_command<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        command: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Finds forks of the whole session, or of its messages before `before`, that any client made since `since`. Used after
    /// the response to a fork was lost. Returns only complete forks that are certainly of this session, because the caller
    /// becomes their owner.
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

    /// `None`: the agent takes messages only, no prompts in a form of its own.
    fn native_prompts(&self) -> Option<&dyn NativePrompts> {
        None
    }

    /// The place that a command removes or resets. No turn begins there meanwhile. Fails with `InvalidParams` for a place that may
    /// not be removed.
    fn removes<'a>(&'a self, _command: &'a ControlCommand) -> BoxFuture<'a, Result<Removes>> {
        Box::pin(async { Ok(Removes::Nothing) })
    }

    /// `None`: only the gateway starts turns.
    fn session_watch(&self) -> Option<&dyn SessionWatch> {
        None
    }
}

/// Prompts in the agent's own form.
pub trait NativePrompts: Send + Sync {
    /// Refuses a native prompt that names a model, a variant, an agent or a command that does not exist. The agent itself
    /// would accept it and fail later. Also refuses a prompt that would read more than callers may see and, unless its
    /// caller may run a shell, a prompt that would run something in one. `input` is its content, checked and ready.
    fn check_native_prompt<'a>(
        &'a self,
        session: &'a Session,
        order: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>>;

    /// Adds a message to a session without starting a turn. `input` is its content, checked and ready.
    fn note<'a>(
        &'a self,
        session: &'a Session,
        order: &'a NativePrompt,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>>;

    /// Whether this message is the prompt.
    fn is_prompt(&self, message: &AgentMessageId, prompt: &PromptId) -> bool;
}

/// Turns that other clients of the agent start.
pub trait SessionWatch: Send + Sync {
    /// Watches these sessions too: a prompt of another client of the agent in them is reported as an [`ExternalTurn`].
    fn watch(&self, sessions: Vec<Session>);

    /// The external turns in the watched sessions, from now on. There is one such queue: only the first call returns it, and
    /// later calls return a closed one.
    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn>;

    /// The external turn that runs in this session now, found by a query. `None`: the session is idle, or what runs
    /// there makes no task.
    fn external_turn<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>>;
}

/// How many agents, and how many commands, are offered. Further ones are left out.
pub const MAX_OFFERS: usize = 100;

/// A session that the agent has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownSession {
    pub session: Session,
    /// The session whose sub-agent this one is.
    pub parent: Option<SessionId>,
    /// The gateway gets the events of the session, so turns can run there.
    pub is_followed: bool,
    /// The session is in a directory that callers may use.
    pub is_open: bool,
}

/// What a command removes or resets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removes {
    Nothing,
    /// The place does not exist: the result of the command, which is not run.
    Absent(Box<ControlResult>),
    Place(RemovedPlace),
}

/// A place that a command removes or resets, and what is deleted with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemovedPlace {
    /// The directory of the place, if it is on this machine.
    pub directory: Option<String>,
    /// The sessions that are deleted with the place, wherever they are.
    pub sessions: Vec<RemovedSession>,
}

/// A session that is deleted with a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemovedSession {
    pub session: Session,
    /// The session whose sub-agent this one is.
    pub parent: Option<SessionId>,
}

/// A turn that another client of the agent started, and that is to become a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalTurn {
    /// The root of the session tree: turns of sub-agents are not reported.
    pub session: Session,
    /// The message that started the turn, by the agent's own id.
    pub prompt: PromptId,
    /// The id that the engine of some gateway gave to the message. `None`: no gateway sent it.
    pub engine_prompt: Option<PromptId>,
    /// The content of that message, as far as it can be shown.
    pub content: Vec<Part>,
    pub at: Timestamp,
}
