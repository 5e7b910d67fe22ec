//! What an agent lets callers look at and change beside turns.

use std::fmt::Debug;

use longshore_model::{
    ControlCommand, ControlQuery, ControlResult, MessageRef, Offers, Order, Part, PromptId, PromptOptions,
    RequestedLocation, Result, SessionId, Timestamp, WorkspaceId, WorktreeRef,
};
use tokio::sync::mpsc;

use super::BoxFuture;
use super::agent::{Input, Session};

/// The control surface of one coding agent. Whose a session is, and who may do what, is decided before: nothing here
/// knows callers.
///
/// Calls are made for a caller who waits. They fail with the kinds of `Upstream…`, with `SessionNotFound`, and with
/// `InvalidParams` for what only the agent can know to be wrong: a message that is not there, a model, a directory.
pub trait Control: Send + Sync + Debug {
    /// The directory that a wish leads to: the agent's own default when nothing is wished. Fails with `InvalidParams` for
    /// one that is out of bounds.
    fn place<'a>(&'a self, wish: &'a RequestedLocation) -> BoxFuture<'a, Result<String>>;

    /// A session by its name, whoever made it. `None`: the agent has none.
    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Known>>>;

    /// Looks, in the directory `at`. `session` is that of the look, if it is about one.
    fn look<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        look: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Acts, in the directory `at`. `session` is that of the act, if it is about one. Never tried twice: when the agent's answer
    /// is lost, the error says that it may have been done ([`longshore_model::Error::may_be_done`]).
    fn act<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        act: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>>;

    /// Forks of a session, or of what came before a message of it, that were made since then, by anybody: for one whose answer was
    /// lost. Only those that are surely forks of this session, and whole: whoever asks for them is given them.
    fn forks<'a>(
        &'a self,
        session: &'a Session,
        before: Option<&'a MessageRef>,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>>;

    /// Refuses an order that names what is not there: a model, a variant, an agent, a command. The agent itself would take it, and
    /// fail later. And one that has more read than callers may see, or, unless it `may_run`, something run in a shell.
    fn check_order<'a>(
        &'a self,
        session: &'a Session,
        order: &'a Order,
        options: &'a PromptOptions,
        may_run: bool,
    ) -> BoxFuture<'a, Result<()>>;

    /// Says something in a session that is not to be answered. `input` is its content, checked and ready.
    fn note<'a>(
        &'a self,
        session: &'a Session,
        order: &'a Order,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>>;

    /// Where a worktree is that may be removed or reset. Fails with `InvalidParams` for any other.
    fn worktree<'a>(&'a self, wanted: &'a WorktreeRef) -> BoxFuture<'a, Result<String>>;

    /// What goes with a workspace that may be removed. Fails with `InvalidParams` for one that may not be. `None`: the agent has none
    /// of that name.
    fn workspace<'a>(&'a self, id: &'a WorkspaceId) -> BoxFuture<'a, Result<Option<Inhabited>>>;

    /// The agents and commands that callers may name, at most [`MAX_OFFERS`] of each.
    fn offers(&self) -> BoxFuture<'_, Result<Offers>>;

    /// These sessions are to be watched too: what somebody else prompts in them is told as a [`ExternalTurn`].
    fn watch(&self, sessions: Vec<Session>);

    /// What stirs in the sessions that are watched, from now on. There is one such queue: it is given once, and whoever asks again
    /// gets one that is closed.
    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn>;

    /// What stirs in this session now, found out by asking. `None`: it is idle, or what runs there makes no task.
    fn external_turn<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>>;
}

/// How many agents, and how many commands, are offered. What is beyond is left out.
pub const MAX_OFFERS: usize = 100;

/// A session that the agent has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    pub session: Session,
    /// The session that this one works for.
    pub parent: Option<SessionId>,
    /// Its events are heard only there.
    pub workspace: Option<WorkspaceId>,
    /// It is in a directory that callers may use.
    pub is_open: bool,
}

/// A workspace of the agent, and what is deleted with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inhabited {
    /// Where it is, if that is a directory here.
    pub directory: Option<String>,
    /// Its sessions, and all that work for them, wherever they are.
    pub sessions: Vec<Inhabitant>,
}

/// A session that is deleted with a workspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inhabitant {
    pub session: Session,
    /// The session that this one works for.
    pub parent: Option<SessionId>,
}

/// A turn that somebody else began, and that is to become a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalTurn {
    /// The root of its family: a sub-agent's is not told.
    pub session: Session,
    /// The message that began it, by the agent's own name.
    pub prompt: PromptId,
    /// What was said, as far as it can be told.
    pub content: Vec<Part>,
    pub at: Timestamp,
}
