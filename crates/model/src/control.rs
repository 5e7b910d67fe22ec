//! Control requests, which concern the agent itself: queries about its sessions, providers, projects and workspaces, commands that
//! change them, prompts in the agent's own form, and the results of all of these.
//!
//! Results have only named fields, so data for which there is no field cannot leak. The keys and options of providers, and the
//! templates of commands, are never read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{AgentMessageId, AgentPartId, ContextId, MessageId, SessionId, TaskId, WorkspaceId};
use crate::json::Json;
use crate::message::Role;
use crate::options::{ModelName, PromptOptions};
use crate::part::Part;
use crate::time::Timestamp;

/// A control request and the location that it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlRequest {
    pub control: Control,
    pub location: RequestedLocation,
}

/// The location that a caller requested. A workspace takes precedence over a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestedLocation {
    pub directory: Option<RequestedDirectory>,
    pub workspace: Option<WorkspaceId>,
}

/// A directory, as the caller wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestedDirectory {
    pub path: String,
    /// The name of the request parameter with the directory, for error messages.
    pub field: &'static str,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    Query(ControlQuery),
    Command(ControlCommand),
    /// Starts a turn, and therefore creates a task.
    NativePrompt(Box<NativePromptRequest>),
    /// Adds a message to a session without requesting a reply. Creates no turn and no task.
    Note(Box<NativePromptRequest>),
}

/// A request that changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlQuery {
    Statuses,
    Sessions(SessionQuery),
    Session(SessionId),
    /// The child sessions of this session: those of the sub-agents that it called.
    Children(SessionId),
    Todos(SessionId),
    /// The file changes of the turn that `message` started. Without a message, the file changes of all turns.
    Diffs {
        session: SessionId,
        message: Option<AgentMessageId>,
    },
    Messages {
        session: SessionId,
        page: Page,
    },
    Message {
        session: SessionId,
        message: AgentMessageId,
    },
    Providers,
    /// The models of one provider or of all providers.
    Models {
        provider: Option<String>,
    },
    Projects,
    /// The project in which the gateway works.
    Project,
    Workspaces,
    Worktrees,
}

/// A request that changes something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlCommand {
    Fork {
        session: SessionId,
        /// The copy ends before this message. `None`: the copy is complete.
        before: Option<AgentMessageId>,
    },
    Share(SessionId),
    Unshare(SessionId),
    Summarize {
        session: SessionId,
        /// The model that writes the summary. `None`: the session's own model.
        model: Option<ModelName>,
        /// Whether the agent continues its work after the summary.
        auto: bool,
    },
    Revert {
        session: SessionId,
        message: AgentMessageId,
        part: Option<AgentPartId>,
    },
    Unrevert(SessionId),
    Shell {
        session: SessionId,
        order: ShellCommand,
    },
    /// Deletes the session, its messages, and the sessions of its sub-agents.
    Delete(SessionId),
    CreateWorkspace(NewWorkspace),
    RemoveWorkspace(WorkspaceId),
    CreateWorktree(NewWorktree),
    RemoveWorktree(WorktreeRef),
    ResetWorktree(WorktreeRef),
}

impl Control {
    /// The session that the request concerns. `None`: it concerns no single session.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Query(query) => query.session(),
            Self::Command(command) => command.session(),
            Self::NativePrompt(request) | Self::Note(request) => Some(&request.session),
        }
    }
}

impl ControlQuery {
    /// The session that the query concerns.
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
    /// The session that the command concerns.
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Fork { session, .. }
            | Self::Share(session)
            | Self::Unshare(session)
            | Self::Summarize { session, .. }
            | Self::Revert { session, .. }
            | Self::Unrevert(session)
            | Self::Delete(session)
            | Self::Shell { session, .. } => Some(session),
            Self::CreateWorkspace(_)
            | Self::RemoveWorkspace(_)
            | Self::CreateWorktree(_)
            | Self::RemoveWorktree(_)
            | Self::ResetWorktree(_) => None,
        }
    }
}

impl ControlCommand {
    /// Whether the command may take as long as a call of a model or a user's program takes.
    pub fn takes_long(&self) -> bool {
        match self {
            // Creating a worktree runs its start command, which may take long.
            Self::Summarize { .. } | Self::Shell { .. } | Self::CreateWorktree(_) => true,
            Self::Fork { .. }
            | Self::Share(_)
            | Self::Unshare(_)
            | Self::Revert { .. }
            | Self::Unrevert(_)
            | Self::Delete(_)
            | Self::CreateWorkspace(_)
            | Self::RemoveWorkspace(_)
            | Self::RemoveWorktree(_)
            | Self::ResetWorktree(_) => false,
        }
    }

    /// Whether the command cannot run during a turn in its session.
    pub fn needs_idle_session(&self) -> bool {
        match self {
            Self::Summarize { .. }
            | Self::Revert { .. }
            | Self::Unrevert(_)
            | Self::Delete(_)
            | Self::Shell { .. } => true,
            Self::Fork { .. }
            | Self::Share(_)
            | Self::Unshare(_)
            | Self::CreateWorkspace(_)
            | Self::RemoveWorkspace(_)
            | Self::CreateWorktree(_)
            | Self::RemoveWorktree(_)
            | Self::ResetWorktree(_) => false,
        }
    }
}

/// Filters sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionQuery {
    pub limit: u32,
    /// `true`: only sessions without a parent; `false`: only those with one.
    pub roots: Option<bool>,
    /// Only sessions that changed at this time or later.
    pub start: Option<Timestamp>,
    /// Only sessions whose title contains this text.
    pub search: Option<String>,
}

/// A page of a long list, beginning with the newest items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub limit: u32,
    /// The cursor from `next` of the previous page. `None`: the first page.
    pub before: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShellCommand {
    pub agent: String,
    pub command: String,
    pub model: Option<ModelName>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewWorkspace {
    pub kind: String,
    pub id: Option<WorkspaceId>,
    pub branch: Option<String>,
    /// A JSON object with parameters for the agent's adapter for this kind of workspace.
    pub extra: Option<Json>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewWorktree {
    pub name: Option<String>,
    /// A shell command that the agent runs after it has created the worktree.
    pub start_command: Option<String>,
}

/// A worktree in the form in which a caller names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorktreeRef {
    Directory(String),
    /// The last segment of its directory.
    Name(String),
}

/// A native prompt and its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NativePromptRequest {
    pub session: SessionId,
    pub order: NativePrompt,
    /// Text and files. Each [`NativePromptPart::Content`] stands for the next of these parts. For a command, these parts are its
    /// files.
    pub content: Vec<Part>,
    pub options: PromptOptions,
    /// The caller's own id of the message. The agent never gets it, because the agent would write into an existing message with
    /// that id, in whichever session that message is.
    pub message: Option<MessageId>,
}

/// A prompt in the agent's own form. Does not contain the content, which is stored as the message of the task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativePrompt {
    Prompt {
        parts: Vec<NativePromptPart>,
        /// Tools that the agent may not use for this prompt. A prompt cannot allow a tool, because the agent would keep that
        /// permission for the session even if the agent's operator forbids the tool.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        withheld: BTreeSet<String>,
    },
    /// One of the agent's own commands, by its name without a slash. All content parts are its files.
    Command {
        name: String,
        arguments: String,
        /// Whether the caller may run a shell, so that the agent may run the arguments in one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_run: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativePromptPart {
    /// Stands for the next content part.
    Content,
    /// Refers to the offered agent with this name.
    Agent(String),
    /// A subtask for a sub-agent.
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

/// The result of a control request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlResult {
    Statuses(Vec<SessionStatus>),
    Sessions(Vec<SessionInfo>),
    /// The current session. For a command, the session after the change.
    Session(SessionInfo),
    Todos(Vec<Todo>),
    Diffs(Vec<FileDiff>),
    Messages {
        /// The messages, oldest first.
        items: Vec<StoredMessage>,
        /// The cursor of the next older page. `None`: there is no older page.
        next: Option<String>,
    },
    Message(StoredMessage),
    Providers(Catalog<ProviderInfo>),
    Models(Catalog<ModelInfo>),
    Projects(Vec<Project>),
    Project(Project),
    Workspaces(Vec<Workspace>),
    /// The workspace. `None`: no workspace has that id.
    Workspace(Option<Workspace>),
    Worktrees(Vec<Worktree>),
    Worktree(Worktree),
    /// Whether the agent carried out a command that concerns no session.
    Ok(bool),
    /// Whether the agent carried out a command in this session, with the task that the command started.
    Done {
        session: SessionId,
        ok: bool,
        begun: Option<StartedTask>,
    },
    /// The agent's final reply in a turn whose end the caller waited for.
    Answered {
        message: StoredMessage,
        begun: StartedTask,
    },
}

/// The task that a request started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartedTask {
    pub task: TaskId,
    pub context: ContextId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    pub session: SessionId,
    /// The agent's own word for the status of the session.
    pub kind: String,
    /// The number of the attempt. Set while the agent retries a request.
    pub attempt: Option<u64>,
    pub message: Option<String>,
    /// The time of the next attempt.
    pub next: Option<Timestamp>,
}

/// A session of the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    pub id: SessionId,
    pub title: String,
    pub project: Option<String>,
    pub directory: Option<String>,
    /// The session that called this one, if this is the session of a sub-agent.
    pub parent: Option<SessionId>,
    pub workspace: Option<WorkspaceId>,
    pub version: Option<String>,
    pub share_url: Option<String>,
    pub revert: Option<Revert>,
    pub created: Option<Timestamp>,
    pub updated: Option<Timestamp>,
}

/// The point to which a session was reverted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revert {
    pub message: AgentMessageId,
    pub part: Option<AgentPartId>,
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
    /// The user's message that caused the change. Set in results that cover several turns.
    pub message: Option<AgentMessageId>,
}

/// A message of a session as the agent stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMessage {
    pub id: AgentMessageId,
    pub session: SessionId,
    pub role: Role,
    /// The text, without the parts that the agent added for its own use.
    pub text: String,
    pub created: Option<Timestamp>,
    /// The error with which the message ended, in words that are safe to show to callers.
    pub error: Option<String>,
}

/// Providers or models, their defaults, and the providers that have credentials.
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
    /// The project's directory. `None`: callers may not work in the project.
    pub worktree: Option<String>,
    /// The project's other directories. Empty if callers may not work in the project.
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

/// The agents and commands that callers can name.
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
    /// The offered agent that runs the command.
    pub agent: Option<String>,
    /// Whether a sub-agent runs the command.
    pub is_subtask: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_prompts_keep_their_stored_form() {
        let subtask = Subtask {
            prompt: "look".to_owned(),
            description: "A look".to_owned(),
            agent: "explore".to_owned(),
            model: ModelName::parse("p/m"),
            command: None,
        };
        let parts = vec![
            NativePromptPart::Content,
            NativePromptPart::Agent("plan".to_owned()),
            NativePromptPart::Subtask(subtask),
        ];
        let withheld = BTreeSet::from(["bash".to_owned()]);
        let command =
            |may_run| NativePrompt::Command { name: "review".to_owned(), arguments: String::new(), may_run };
        for (prompt, expected) in [
            (
                NativePrompt::Prompt { parts, withheld },
                r#"{"prompt":{"parts":["content",{"agent":"plan"},{"subtask":{"prompt":"look","description":"A look","agent":"explore","model":{"provider":"p","model":"m"}}}],"withheld":["bash"]}}"#,
            ),
            (command(false), r#"{"command":{"name":"review","arguments":""}}"#),
            (command(true), r#"{"command":{"name":"review","arguments":"","may_run":true}}"#),
        ] {
            let text = serde_json::to_string(&prompt).unwrap();
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<NativePrompt>(&text).unwrap(), prompt);
        }
    }
}
