//! Describes the items in results: their fields for the card, the `OpenAPI` document and the reference page. A test compares them
//! with real results.

use super::row::{Answer, Item};
use crate::surface::ProtocolVersion;

/// A field of an item.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub field_type: FieldType,
    /// If false, the field is left out when it has no value.
    pub always: bool,
    /// The only version that has the field. `None`: both have it.
    pub version: Option<ProtocolVersion>,
    pub help: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum FieldType {
    Id,
    Text,
    Flag,
    /// A whole number that is not negative.
    Count,
    /// A time in milliseconds since 1970.
    Millis,
    Texts,
    Words(&'static [&'static str]),
    /// A number of seconds since 1970, or null.
    Deadline,
    /// An object with any fields.
    Facts,
    Object(&'static [Field]),
    Objects(&'static [Field]),
}

const fn always(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: true, version: None, help }
}

const fn sometimes(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: false, version: None, help }
}

/// Marks a field as 0.3 only. In 0.3, projects and workspaces have OpenCode's own fields.
const fn older(field: Field) -> Field {
    Field { version: Some(ProtocolVersion::V03), ..field }
}

impl Item {
    pub const ALL: [Self; 13] = [
        Self::SessionStatus,
        Self::Task,
        Self::Message,
        Self::Todo,
        Self::FileDiff,
        Self::SessionSummary,
        Self::Provider,
        Self::Model,
        Self::Project,
        Self::Workspace,
        Self::Worktree,
        Self::Interrupt,
        Self::Approval,
    ];

    /// The name in the documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionStatus => "SessionStatusSummary",
            Self::Task => "Task",
            Self::Message => "Message",
            Self::Todo => "Todo",
            Self::FileDiff => "FileDiff",
            Self::SessionSummary => "SessionSummary",
            Self::Provider => "ProviderSummary",
            Self::Model => "ModelSummary",
            Self::Project => "Project",
            Self::Workspace => "Workspace",
            Self::Worktree => "Worktree",
            Self::Interrupt => "InterruptRequest",
            Self::Approval => "Approval",
        }
    }

    /// A description of one sentence.
    pub fn help(self) -> &'static str {
        match self {
            Self::SessionStatus => "The status of a session.",
            Self::Task => "A session, as a completed task of A2A.",
            Self::Message => "A message of a session, as a message of A2A.",
            Self::Todo => "A todo of the agent.",
            Self::FileDiff => "The change of a file.",
            Self::SessionSummary => "A session.",
            Self::Provider => "A provider of models.",
            Self::Model => "A model.",
            Self::Project => "A project of OpenCode.",
            Self::Workspace => "A workspace of OpenCode.",
            Self::Worktree => "A worktree of the project.",
            Self::Interrupt => "An open ask of a task.",
            Self::Approval => "The answer always to a permission, which the gateway keeps.",
        }
    }

    /// The fields of the item. Empty for items that A2A itself describes.
    pub fn fields(self) -> &'static [Field] {
        match self {
            Self::Task | Self::Message => &[],
            Self::SessionStatus => SESSION_STATUS,
            Self::Todo => PLANNED,
            Self::FileDiff => FILE_DIFF,
            Self::SessionSummary => SESSION_SUMMARY,
            Self::Provider => PROVIDER,
            Self::Model => MODEL,
            Self::Project => PROJECT,
            Self::Workspace => WORKSPACE,
            Self::Worktree => WORKTREE,
            Self::Interrupt => INTERRUPT,
            Self::Approval => APPROVAL,
        }
    }

    /// The fields that a version has.
    pub fn fields_of(self, version: ProtocolVersion) -> impl Iterator<Item = &'static Field> {
        self.fields().iter().filter(move |field| field.version.is_none_or(|only| only == version))
    }
}

impl Answer {
    /// The fields of the result. The task fields are present only if the call started a task.
    pub fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Items(_) => &["items"],
            Self::Page(_) => &["items", "next_cursor"],
            Self::Catalog(_) => &["items", "default_by_provider", "connected"],
            Self::Item(_) | Self::ItemOrNull(_) => &["item"],
            Self::ItemOfTask(_) => &["item", "task_id", "context_id"],
            Self::Flag => &["ok"],
            Self::Done => &["ok", "session_id"],
            Self::Begun => &["ok", "session_id", "task_id", "context_id"],
            Self::Answered => &["ok", "request_id"],
        }
    }

    /// The item in the result.
    pub fn item(self) -> Option<Item> {
        match self {
            Self::Items(item)
            | Self::Page(item)
            | Self::Catalog(item)
            | Self::Item(item)
            | Self::ItemOrNull(item)
            | Self::ItemOfTask(item) => Some(item),
            Self::Flag | Self::Done | Self::Begun | Self::Answered => None,
        }
    }

    /// The type of the result, as the contracts write it.
    pub fn items_type(self, version: ProtocolVersion) -> Option<String> {
        let name = self.item().map(Item::name);
        match (self, version) {
            (Self::Flag, _) => Some("boolean".to_owned()),
            (Self::Items(Item::Worktree), ProtocolVersion::V03) => Some("string[]".to_owned()),
            (Self::Items(_) | Self::Page(_) | Self::Catalog(_), _) => name.map(|name| format!("{name}[]")),
            _ => name.map(str::to_owned),
        }
    }
}

const SESSION_STATUS: &[Field] = &[
    always("session_id", FieldType::Id, "The session."),
    always("type", FieldType::Text, "The status in OpenCode's words, such as busy or retry."),
    sometimes("attempt", FieldType::Count, "The number of attempts so far."),
    sometimes("message", FieldType::Text, "The reason for the retry."),
    sometimes("next", FieldType::Millis, "The time of the next attempt."),
];

const PLANNED: &[Field] = &[
    always("id", FieldType::Text, "The position in the list."),
    always("content", FieldType::Text, "The description of the todo."),
    always("status", FieldType::Text, "The status of the todo."),
    always("priority", FieldType::Text, "The priority of the todo."),
];

const FILE_DIFF: &[Field] = &[
    always("file", FieldType::Text, "The file."),
    sometimes("patch", FieldType::Text, "The patch. A file of the gateway itself has none."),
    sometimes(
        "status",
        FieldType::Text,
        "added, deleted or modified, or withheld for a file of the gateway itself.",
    ),
    always("additions", FieldType::Count, "The number of added lines."),
    always("deletions", FieldType::Count, "The number of deleted lines."),
    sometimes(
        "message_id",
        FieldType::Id,
        "The message that caused the change, if the list covers several turns.",
    ),
];

const SESSION_SUMMARY: &[Field] = &[
    always("id", FieldType::Id, "The session."),
    always("title", FieldType::Text, "Its title, which may be empty."),
    sometimes("project_id", FieldType::Text, "The project that it belongs to."),
    sometimes("directory", FieldType::Text, "The directory of the session."),
    sometimes("parent_id", FieldType::Id, "The parent session."),
    sometimes("version", FieldType::Text, "The version of OpenCode that created the session."),
    sometimes("share_url", FieldType::Text, "The public URL of the session."),
    sometimes("revert", FieldType::Object(REVERT), "The point to which the session was reverted."),
];

const REVERT: &[Field] = &[
    always("message_id", FieldType::Id, "The first reverted message."),
    sometimes("part_id", FieldType::Id, "The first reverted part of that message."),
    sometimes("snapshot", FieldType::Text, "The state of the files before the revert."),
    sometimes("diff", FieldType::Text, "The changes that were undone."),
];

const PROVIDER: &[Field] = &[
    always("provider_id", FieldType::Text, "The provider."),
    always("name", FieldType::Text, "Its name for people."),
    always("connected", FieldType::Flag, "Whether OpenCode can use the provider."),
    always("model_count", FieldType::Count, "The number of models."),
    sometimes("source", FieldType::Text, "The source from which OpenCode knows the provider."),
    sometimes("default_model_id", FieldType::Text, "The default model."),
];

const MODEL: &[Field] = &[
    always("provider_id", FieldType::Text, "Its provider."),
    always("model_id", FieldType::Text, "The model, as its provider calls it."),
    always("name", FieldType::Text, "Its name for people."),
    always("default", FieldType::Flag, "Whether the model is the default of its provider."),
    always("connected", FieldType::Flag, "Whether OpenCode can use the provider."),
    sometimes("status", FieldType::Text, "The maturity of the model."),
    sometimes("context_window", FieldType::Count, "The size of the context window in tokens."),
    sometimes("max_output_tokens", FieldType::Count, "The maximum number of output tokens."),
    sometimes("supports_reasoning", FieldType::Flag, "Whether the model can reason."),
    sometimes("supports_tool_call", FieldType::Flag, "Whether the model can call tools."),
    sometimes("supports_attachments", FieldType::Flag, "Whether the model can read files."),
];

const PROJECT: &[Field] = &[
    always("id", FieldType::Text, "The project."),
    sometimes("name", FieldType::Text, "Its name for people."),
    sometimes("vcs", FieldType::Text, "The version control system."),
    older(sometimes("worktree", FieldType::Text, "The root directory, for the gateway's own project.")),
    older(always(
        "sandboxes",
        FieldType::Texts,
        "The other directories that OpenCode knows, for the gateway's own project.",
    )),
    older(always(
        "time",
        FieldType::Object(PROJECT_TIME),
        "The times of creation, last change and initialization.",
    )),
];

const PROJECT_TIME: &[Field] = &[
    sometimes("created", FieldType::Millis, "The time of creation."),
    sometimes("updated", FieldType::Millis, "The time of the last change."),
    sometimes("initialized", FieldType::Millis, "The time of initialization."),
];

const WORKSPACE: &[Field] = &[
    always("id", FieldType::Id, "The workspace."),
    sometimes("type", FieldType::Text, "The adapter of OpenCode that created the workspace."),
    sometimes("name", FieldType::Text, "Its name."),
    sometimes("branch", FieldType::Text, "The branch of the workspace."),
    older(sometimes("directory", FieldType::Text, "The directory of the workspace.")),
    older(sometimes("projectID", FieldType::Text, "The project that it belongs to.")),
    older(sometimes("timeUsed", FieldType::Millis, "The time of the last use.")),
];

const WORKTREE: &[Field] = &[
    always("name", FieldType::Text, "The last segment of its directory."),
    sometimes("branch", FieldType::Text, "The branch that is checked out there."),
    older(always(
        "directory",
        FieldType::Text,
        "The directory of the worktree. A list contains the directories only.",
    )),
];

const INTERRUPT: &[Field] = &[
    always("request_id", FieldType::Id, "The id that an answer must contain."),
    always("session_id", FieldType::Id, "The session of the ask."),
    always("interrupt_type", FieldType::Words(&["permission", "question"]), "The kind of ask."),
    always("task_id", FieldType::Id, "The waiting task."),
    always("context_id", FieldType::Id, "Its context."),
    always("details", FieldType::Facts, "The details from the agent."),
    always("expires_at", FieldType::Deadline, "The deadline in seconds since 1970. Null: there is none."),
    sometimes(
        "options",
        FieldType::Objects(ASK_OPTION),
        "The answers that the agent offers. Left out if these are just once, always and reject.",
    ),
];

const ASK_OPTION: &[Field] = &[
    always("id", FieldType::Text, "The id, which an answer may name."),
    always("name", FieldType::Text, "The name, which an answer may give instead if no other option has it."),
    always(
        "kind",
        FieldType::Words(&["allow_once", "allow_always", "reject_once", "reject_always", "other"]),
        "The meaning of the option.",
    ),
];

const APPROVAL: &[Field] = &[
    always(
        "request_id",
        FieldType::Id,
        "The ask that was answered with always. To revoke the approval, send this id.",
    ),
    always("session_id", FieldType::Id, "The approval applies in this session and its sub-agents."),
    always("context_id", FieldType::Id, "The context of the task that asked."),
    always("permission", FieldType::Text, "The kind of permission, such as bash."),
    always(
        "patterns",
        FieldType::Texts,
        "What is approved. In a pattern, * is any text and ? is any character.",
    ),
    always("approved_at", FieldType::Millis, "When it was approved, in milliseconds since 1970."),
];
