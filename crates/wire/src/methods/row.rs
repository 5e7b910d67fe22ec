//! A row of the table.

use longshore_model::{Capability, ErrorKind};

use super::args::Args;
use super::call::Call;
use super::param::{Kind, Param};
use crate::contract::Deployment;
use crate::extension::Extension;
use crate::surface::Verb;

/// A method of an extension.
#[derive(Debug)]
pub struct Method {
    pub name: &'static str,
    /// What the card calls it.
    pub key: &'static str,
    pub extension: Extension,
    /// What it does, in one sentence.
    pub summary: &'static str,
    pub params: &'static [Param],
    /// How many of the parameters are looked at before any name is found to be unknown. Whoever answers an ask is told first
    /// what is wrong with the ask.
    pub first: usize,
    /// It has `limit`, and callers who try another way to page are told so. On 0.3 the parameters may stand in `query`.
    pub paged: bool,
    pub result: Answer,
    pub effect: Effect,
    /// It is there only where the operator switched it on, and for those who have its capability.
    pub switch: Option<Switch>,
    /// What OpenCode is asked for it.
    pub upstream: &'static [Upstream],
    /// How it can fail beside what every method can: bad parameters, an extension that is not activated, a rate that is too high.
    pub errors: &'static [ErrorKind],
    pub stability: Stability,
    /// The call of checked parameters.
    pub(super) build: fn(&Args) -> Call,
}

impl Method {
    /// What the caller's credential must have.
    pub fn needs(&self) -> Option<Capability> {
        self.switch.map(Switch::capability)
    }

    /// What some of its parameters need beside that, each by its path.
    pub fn needs_of_params(&self) -> Vec<(String, Switch)> {
        let mut needs = Vec::new();
        collect_needs(self.params, "", &mut needs);
        needs
    }

    /// Whether a deployment has it, be it switched on or not. Of an agent that cannot be controlled only asks are known.
    pub fn is_there(&self, deployment: &Deployment) -> bool {
        let is_of_asks =
            matches!(self.extension, Extension::InteractiveInterrupt | Extension::InterruptRecovery);
        is_of_asks || deployment.control
    }

    /// Whether it is served.
    pub fn is_on(&self, deployment: &Deployment) -> bool {
        self.is_there(deployment) && self.switch.is_none_or(|switch| switch.is_on(deployment))
    }
}

fn collect_needs(fields: &[Param], place: &str, needs: &mut Vec<(String, Switch)>) {
    for field in fields {
        let path = format!("{place}{}", field.name);
        if let Kind::Object(inner) | Kind::OneOf(inner) = field.kind {
            collect_needs(inner, &format!("{path}."), needs);
        }
        needs.extend(field.needs().map(|switch| (path, switch)));
    }
}

/// What a method does to the agent. What is not a read is audited, and is done also for a notification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Read,
    /// Changes a session or a place.
    Mutate,
    /// Has the agent work.
    Control,
}

/// What the operator switches on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Switch {
    SessionShell,
    WorkspaceMutations,
}

impl Switch {
    pub const ALL: [Self; 2] = [Self::SessionShell, Self::WorkspaceMutations];

    /// The setting, as the documents name it.
    pub fn toggle(self) -> &'static str {
        match self {
            Self::SessionShell => "A2A_ENABLE_SESSION_SHELL",
            Self::WorkspaceMutations => "A2A_ENABLE_WORKSPACE_MUTATIONS",
        }
    }

    pub fn capability(self) -> Capability {
        match self {
            Self::SessionShell => Capability::SessionShell,
            Self::WorkspaceMutations => Capability::WorkspaceMutation,
        }
    }

    pub fn is_on(self, deployment: &Deployment) -> bool {
        match self {
            Self::SessionShell => deployment.has_session_shell(),
            Self::WorkspaceMutations => deployment.has_workspace_mutations(),
        }
    }
}

/// Whether OpenCode promises to keep what a method rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stability {
    Stable,
    Experimental,
}

/// A request to OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub verb: Verb,
    /// What differs from call to call stands in braces.
    pub path: &'static str,
    /// What may stand in the query.
    pub query: &'static [&'static str],
}

impl Upstream {
    pub(super) const fn get(path: &'static str, query: &'static [&'static str]) -> Self {
        Self { verb: Verb::Get, path, query }
    }

    pub(super) const fn post(path: &'static str) -> Self {
        Self { verb: Verb::Post, path, query: PLACE }
    }

    pub(super) const fn delete(path: &'static str) -> Self {
        Self { verb: Verb::Delete, path, query: PLACE }
    }
}

/// What stands in every query.
pub(super) const PLACE: &[&str] = &["directory"];

/// The shape of a result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// `{items}`
    Items(Item),
    /// `{items, next_cursor}`
    Page(Item),
    /// `{items, default_by_provider, connected}`
    Catalog(Item),
    /// `{item}`
    Item(Item),
    /// `{item}`, which may be null
    ItemOrNull(Item),
    /// `{item, task_id, context_id}`: the last answer of a turn, and the task that it was
    ItemOfTask(Item),
    /// `{ok}`
    Flag,
    /// `{ok, session_id}`
    Done,
    /// `{ok, session_id, task_id?, context_id?}`: the task that began
    Begun,
    /// `{ok, request_id}`
    Answered,
}

/// What an answer is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    SessionStatus,
    Task,
    Message,
    Todo,
    FileDiff,
    SessionSummary,
    Provider,
    Model,
    Project,
    Workspace,
    Worktree,
    Interrupt,
}

/// How whatever asks OpenCode can fail.
pub(super) const UPSTREAM: &[ErrorKind] = &[
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// And what is about one session.
pub(super) const SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// And what begins a turn there: with files of all sorts, as one of so many tasks, and perhaps with something that is run.
pub(super) const TURN: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::ContentTypeNotSupported,
    ErrorKind::TooManyRequests,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// And what may say something there that nobody is to answer.
pub(super) const TURN_OR_NOTE: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::ContentTypeNotSupported,
    ErrorKind::TooManyRequests,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// And what needs that session for itself.
pub(super) const IDLE_SESSION: &[ErrorKind] = &[
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];
