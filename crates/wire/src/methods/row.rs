//! The types of a row in the table of extension methods.

use longshore_model::{Capability, ErrorKind};

use super::args::Args;
use super::call::Call;
use super::item::Item;
use super::param::{Kind, Param};
use crate::contract::Deployment;
use crate::extension::Extension;
use crate::surface::Verb;

/// A method of an extension.
#[derive(Debug)]
pub struct Method {
    pub name: &'static str,
    /// The key of the method in the card.
    pub key: &'static str,
    pub extension: Extension,
    /// A description of one sentence.
    pub summary: &'static str,
    pub params: &'static [Param],
    /// How many parameters are checked before unknown names are refused. With this, a wrong ask id in an answer is reported before
    /// other mistakes.
    pub first: usize,
    /// Whether the method has the parameter `limit` and refuses other styles of paging. In 0.3 the parameters may also be in the
    /// object `query`.
    pub paged: bool,
    pub result: Answer,
    pub effect: Effect,
    /// The operator's switch that the method needs, together with its capability.
    pub switch: Option<Switch>,
    /// The requests that the gateway sends to the agent.
    pub upstream: &'static [Upstream],
    /// The errors in addition to those of every method: bad parameters, an extension that is not activated, too many requests.
    pub errors: &'static [ErrorKind],
    pub stability: Stability,
    /// Builds the call from checked parameters.
    pub(crate) build: fn(&Args) -> Call,
}

impl Method {
    /// The capability that the caller's credential needs. `None`: it needs none.
    pub fn needs(&self) -> Option<Capability> {
        self.switch.map(Switch::capability)
    }

    /// The additional switches that parameters need, each with the path of the parameter.
    pub fn param_switches(&self) -> Vec<(String, Switch)> {
        let mut needs = Vec::new();
        collect_needs(self.params, "", &mut needs);
        needs
    }

    /// Whether a deployment has the method, enabled or not. A deployment whose agent has no control surface has only the methods
    /// about asks.
    pub fn is_there(&self, deployment: &Deployment) -> bool {
        let is_of_asks =
            matches!(self.extension, Extension::InteractiveInterrupt | Extension::InterruptRecovery);
        is_of_asks || deployment.control
    }

    /// Whether the method is served.
    pub fn is_on(&self, deployment: &Deployment) -> bool {
        self.is_there(deployment) && self.switch.is_none_or(|switch| switch.is_on(deployment))
    }
}

fn collect_needs(fields: &[Param], prefix: &str, needs: &mut Vec<(String, Switch)>) {
    for field in fields {
        let path = format!("{prefix}{}", field.name);
        if let Kind::Object(inner) | Kind::OneOf(inner) = field.kind {
            collect_needs(inner, &format!("{path}."), needs);
        }
        needs.extend(field.needs().map(|switch| (path, switch)));
    }
}

/// The effect of a method on the agent. Methods with any effect except `Read` are audited, and are also executed for notifications.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Read,
    /// Changes a session, a workspace or a worktree.
    Mutate,
    /// Makes the agent start work.
    Control,
}

/// A switch of the operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Switch {
    SessionShell,
    WorkspaceMutations,
    SessionShare,
    SessionDelete,
}

impl Switch {
    pub const ALL: [Self; 4] =
        [Self::SessionShell, Self::WorkspaceMutations, Self::SessionShare, Self::SessionDelete];

    /// The name of the setting in the documents.
    pub fn toggle(self) -> &'static str {
        match self {
            Self::SessionShell => "A2A_ENABLE_SESSION_SHELL",
            Self::WorkspaceMutations => "A2A_ENABLE_WORKSPACE_MUTATIONS",
            Self::SessionShare => "LONGSHORE_SESSION_SHARE",
            Self::SessionDelete => "LONGSHORE_SESSION_DELETE",
        }
    }

    pub fn capability(self) -> Capability {
        match self {
            Self::SessionShell => Capability::SessionShell,
            Self::WorkspaceMutations => Capability::WorkspaceMutation,
            Self::SessionShare => Capability::SessionShare,
            Self::SessionDelete => Capability::SessionDelete,
        }
    }

    pub fn is_on(self, deployment: &Deployment) -> bool {
        match self {
            Self::SessionShell => deployment.has_session_shell(),
            Self::WorkspaceMutations => deployment.has_workspace_mutations(),
            Self::SessionShare => deployment.has_session_share(),
            Self::SessionDelete => deployment.has_session_delete(),
        }
    }
}

/// Whether the agent guarantees that the endpoints behind a method stay the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stability {
    Stable,
    Experimental,
}

/// A request to the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub verb: Verb,
    /// The path. Variable segments are in braces.
    pub path: &'static str,
    /// The possible query parameters.
    pub query: &'static [&'static str],
}

impl Upstream {
    pub(crate) const fn get(path: &'static str, query: &'static [&'static str]) -> Self {
        Self { verb: Verb::Get, path, query }
    }

    pub(crate) const fn post(path: &'static str) -> Self {
        Self { verb: Verb::Post, path, query: DIRECTORY_QUERY }
    }

    pub(crate) const fn delete(path: &'static str) -> Self {
        Self { verb: Verb::Delete, path, query: DIRECTORY_QUERY }
    }
}

/// The query parameter that every request has.
pub(crate) const DIRECTORY_QUERY: &[&str] = &["directory"];

/// The fields of a result.
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
    /// `{item, task_id, context_id}`: the last answer of a turn, and the task of that turn
    ItemOfTask(Item),
    /// `{ok}`
    Flag,
    /// `{ok, session_id}`
    Done,
    /// `{ok, session_id, task_id?, context_id?}`: the task that was started
    Begun,
    /// `{ok, request_id}`
    Answered,
}
