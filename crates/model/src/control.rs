//! What callers who know the agent ask of it beside turns: to look at its sessions, providers and places, to change them,
//! and to give it orders in its own words. And what they are told.
//!
//! Everything that is told has named fields only. What has no field here cannot leak: the keys and options of providers, and
//! the templates of commands, are never read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{ContextId, MessageId, MessageRef, PartRef, SessionId, TaskId, WorkspaceId};
use crate::json::Json;
use crate::message::Role;
use crate::part::Part;
use crate::terms::{ModelName, PromptOptions};
use crate::time::Timestamp;

/// One thing that is asked, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlRequest {
    pub control: Control,
    pub place: RequestedLocation,
}

/// Where a caller wants something to be looked at or done. A workspace goes before a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestedLocation {
    pub directory: Option<RequestedDirectory>,
    pub workspace: Option<WorkspaceId>,
}

/// A directory as the caller wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestedDirectory {
    pub path: String,
    /// The parameter that had it, for whoever refuses it.
    pub field: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    Query(ControlQuery),
    Command(ControlCommand),
    /// A turn: a task comes of it.
    Order(Box<OrderRequest>),
    /// Something is said in a session that nobody is to answer: no turn, no task.
    Note(Box<OrderRequest>),
}

/// Reads, and changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlQuery {
    Statuses,
    Sessions(SessionQuery),
    Session(SessionId),
    /// The sessions of sub-agents below this one.
    Children(SessionId),
    Todos(SessionId),
    /// What a turn changed, by the message that began it; without one what all turns changed.
    Diffs {
        session: SessionId,
        message: Option<MessageRef>,
    },
    Messages {
        session: SessionId,
        page: Page,
    },
    Message {
        session: SessionId,
        message: MessageRef,
    },
    Providers,
    /// Of all providers, or of one.
    Models {
        provider: Option<String>,
    },
    Projects,
    /// The one that the gateway works in.
    Project,
    Workspaces,
    Worktrees,
}

/// Changes something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlCommand {
    Fork {
        session: SessionId,
        /// The copy ends before this message. `None`: it has all.
        before: Option<MessageRef>,
    },
    Share(SessionId),
    Unshare(SessionId),
    Summarize {
        session: SessionId,
        /// `None`: the session's own.
        model: Option<ModelName>,
        /// The agent goes on with its work when it has summarized.
        auto: bool,
    },
    Revert {
        session: SessionId,
        message: MessageRef,
        part: Option<PartRef>,
    },
    Unrevert(SessionId),
    Shell {
        session: SessionId,
        order: ShellOrder,
    },
    CreateWorkspace(NewWorkspace),
    RemoveWorkspace(WorkspaceId),
    CreateWorktree(NewWorktree),
    RemoveWorktree(WorktreeRef),
    ResetWorktree(WorktreeRef),
}

impl Control {
    /// The session that it is about.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Query(query) => query.session(),
            Self::Command(command) => command.session(),
            Self::Order(request) | Self::Note(request) => Some(&request.session),
        }
    }
}

impl ControlQuery {
    /// The session that it is about.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session)
            | Self::Children(session)
            | Self::Todos(session)
            | Self::Diffs { session, .. }
            | Self::Messages { session, .. }
            | Self::Message { session, .. } => Some(session),
            Self::Statuses
            | Self::Sessions(_)
            | Self::Providers
            | Self::Models { .. }
            | Self::Projects
            | Self::Project
            | Self::Workspaces
            | Self::Worktrees => None,
        }
    }
}

impl ControlCommand {
    /// The session that it is about.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Fork { session, .. }
            | Self::Share(session)
            | Self::Unshare(session)
            | Self::Summarize { session, .. }
            | Self::Revert { session, .. }
            | Self::Unrevert(session)
            | Self::Shell { session, .. } => Some(session),
            Self::CreateWorkspace(_)
            | Self::RemoveWorkspace(_)
            | Self::CreateWorktree(_)
            | Self::RemoveWorktree(_)
            | Self::ResetWorktree(_) => None,
        }
    }
}

/// Which sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionQuery {
    pub limit: u32,
    /// Only those that are, or are not, below no other.
    pub roots: Option<bool>,
    /// Only those that changed at this time or later.
    pub start: Option<Timestamp>,
    /// Only those whose title has this.
    pub search: Option<String>,
}

/// A piece of a long list, from its new end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub limit: u32,
    /// What the page before was told as `next`.
    pub before: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShellOrder {
    pub agent: String,
    pub command: String,
    pub model: Option<ModelName>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewWorkspace {
    pub kind: String,
    pub id: Option<WorkspaceId>,
    pub branch: Option<String>,
    /// For the agent's adapter of that kind: a JSON object.
    pub extra: Option<Json>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewWorktree {
    pub name: Option<String>,
    /// A line for the shell, run when the worktree is there.
    pub start_command: Option<String>,
}

/// A worktree, as a caller names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorktreeRef {
    Directory(String),
    /// The last segment of its directory.
    Name(String),
}

/// An order for a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRequest {
    pub session: SessionId,
    pub order: Order,
    /// What is said: text and files. [`OrderPart::Content`] stands for one of these, in this order; a command has its
    /// files here.
    pub content: Vec<Part>,
    pub options: PromptOptions,
    /// How the caller names what it sends. The agent is never told: it would write into the message of that name, whosever
    /// session has it.
    pub message: Option<MessageId>,
}

/// What the agent is told to do, without the content: that is kept as the message of the task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Prompt {
        parts: Vec<OrderPart>,
        /// Tools that the agent may not use for this. There is no way to allow one: the agent would keep that for the
        /// session, against what its operator forbids.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        withheld: BTreeSet<String>,
    },
    /// A command of the agent's own, by its name without a slash. All content is its files.
    Command { name: String, arguments: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderPart {
    /// The next piece of content.
    Content,
    /// The agent of this name is called in.
    Agent(String),
    /// A sub-agent works on this.
    Subtask(Subtask),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subtask {
    pub prompt: String,
    pub description: String,
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What is told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlResult {
    Statuses(Vec<SessionStatus>),
    Sessions(Vec<SessionInfo>),
    /// As it is, or as it is after what was done.
    Session(SessionInfo),
    Todos(Vec<Todo>),
    Diffs(Vec<FileDiff>),
    Messages {
        /// Oldest first.
        items: Vec<StoredMessage>,
        /// Where older ones begin. `None`: there are none.
        next: Option<String>,
    },
    Message(StoredMessage),
    Providers(Catalog<ProviderInfo>),
    Models(Catalog<ModelInfo>),
    Projects(Vec<Project>),
    Project(Project),
    Workspaces(Vec<Workspace>),
    /// `None`: there was none of that name.
    Workspace(Option<Workspace>),
    Worktrees(Vec<Worktree>),
    Worktree(Worktree),
    /// Whether the agent did it, of something that has no session.
    Ok(bool),
    /// Whether the agent did it in this session, and the task that came of it.
    Done {
        session: SessionId,
        ok: bool,
        begun: Option<Begun>,
    },
    /// The last answer of a turn that was waited for.
    Answered {
        message: StoredMessage,
        begun: Begun,
    },
}

/// A turn that became a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    pub task: TaskId,
    pub context: ContextId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    pub session: SessionId,
    /// The agent's word for what it does there.
    pub kind: String,
    /// How often it has tried, when it tries again.
    pub attempt: Option<u64>,
    pub message: Option<String>,
    /// When it tries again.
    pub next: Option<Timestamp>,
}

/// A session of the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    pub id: SessionId,
    pub title: String,
    pub project: Option<String>,
    pub directory: Option<String>,
    /// The session that this one works for.
    pub parent: Option<SessionId>,
    pub workspace: Option<WorkspaceId>,
    pub version: Option<String>,
    pub share_url: Option<String>,
    pub revert: Option<Revert>,
    pub created: Option<Timestamp>,
    pub updated: Option<Timestamp>,
}

/// To where a session was taken back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revert {
    pub message: MessageRef,
    pub part: Option<PartRef>,
    pub snapshot: Option<String>,
    pub diff: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Todo {
    pub content: String,
    pub status: String,
    pub priority: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileDiff {
    pub file: String,
    pub patch: Option<String>,
    pub status: Option<String>,
    pub additions: u64,
    pub deletions: u64,
    /// The message of the user that it came of, where several are told.
    pub message: Option<MessageRef>,
}

/// A message of a session, as the agent keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMessage {
    pub id: MessageRef,
    pub session: SessionId,
    pub role: Role,
    /// What was said, without what the agent added for itself.
    pub text: String,
    pub created: Option<Timestamp>,
    /// Why it is no answer, fit for callers.
    pub error: Option<String>,
}

/// Providers or models, and which are in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalog<T> {
    pub items: Vec<T>,
    pub default_by_provider: BTreeMap<String, String>,
    pub connected: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderInfo {
    pub id: String,
    pub name: String,
    pub connected: bool,
    pub model_count: u64,
    pub source: Option<String>,
    pub default_model: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelInfo {
    pub provider: String,
    pub id: String,
    pub name: String,
    pub is_default: bool,
    pub connected: bool,
    pub status: Option<String>,
    pub context_window: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub supports_reasoning: Option<bool>,
    pub supports_tool_call: Option<bool>,
    pub supports_attachments: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Project {
    pub id: String,
    pub name: Option<String>,
    pub vcs: Option<String>,
    /// Where it is. `None` for projects that callers may not work in.
    pub worktree: Option<String>,
    /// Its other directories, of the same projects only.
    pub sandboxes: Vec<String>,
    pub created: Option<Timestamp>,
    pub updated: Option<Timestamp>,
    pub initialized: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub kind: Option<String>,
    pub name: Option<String>,
    pub branch: Option<String>,
    pub directory: Option<String>,
    pub project: Option<String>,
    pub used: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Worktree {
    pub name: String,
    pub branch: Option<String>,
    pub directory: String,
}

/// What the agent has to offer by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Offers {
    pub agents: Vec<OfferedAgent>,
    pub commands: Vec<OfferedCommand>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferedAgent {
    pub name: String,
    pub mode: Option<String>,
    pub description: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferedCommand {
    pub name: String,
    pub description: Option<String>,
    /// The agent that carries it out.
    pub agent: Option<String>,
    /// A sub-agent carries it out.
    pub is_subtask: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_back_from_the_log() {
        let subtask = Subtask {
            prompt: "look".to_owned(),
            description: "A look".to_owned(),
            agent: "explore".to_owned(),
            model: ModelName::parse("p/m"),
            command: None,
        };
        let parts =
            vec![OrderPart::Content, OrderPart::Agent("plan".to_owned()), OrderPart::Subtask(subtask)];
        let withheld = BTreeSet::from(["bash".to_owned()]);
        for (order, expected) in [
            (
                Order::Prompt { parts, withheld },
                r#"{"prompt":{"parts":["content",{"agent":"plan"},{"subtask":{"prompt":"look","description":"A look","agent":"explore","model":{"provider":"p","model":"m"}}}],"withheld":["bash"]}}"#,
            ),
            (
                Order::Command { name: "review".to_owned(), arguments: String::new() },
                r#"{"command":{"name":"review","arguments":""}}"#,
            ),
        ] {
            let text = serde_json::to_string(&order).unwrap();
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
        }
    }
}
