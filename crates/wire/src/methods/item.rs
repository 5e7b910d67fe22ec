//! The items in results: their fields for the card, the `OpenAPI` document and the reference page. A test compares them with
//! real results.

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
    /// Any object.
    Facts,
    Object(&'static [Field]),
}

const fn always(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: true, version: None, help }
}

const fn sometimes(name: &'static str, field_type: FieldType, help: &'static str) -> Field {
    Field { name, field_type, always: false, version: None, help }
}

/// A field of 0.3 only, whose projects and workspaces have OpenCode's own fields.
const fn older(field: Field) -> Field {
    Field { version: Some(ProtocolVersion::V03), ..field }
}

impl Item {
    pub const ALL: [Self; 12] = [
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
        }
    }

    /// A description of one sentence.
    pub fn help(self) -> &'static str {
        match self {
            Self::SessionStatus => "What happens in a session.",
            Self::Task => "A session, as a task of A2A that is completed.",
            Self::Message => "A message of a session, as one of A2A.",
            Self::Todo => "Something that the agent has set out to do.",
            Self::FileDiff => "What became of a file.",
            Self::SessionSummary => "A session.",
            Self::Provider => "A provider of models.",
            Self::Model => "A model.",
            Self::Project => "A project of OpenCode.",
            Self::Workspace => "A workspace of OpenCode.",
            Self::Worktree => "A worktree of the project.",
            Self::Interrupt => "What a task waits for.",
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
        }
    }

    /// The fields that a version has.
    pub fn fields_of(self, version: ProtocolVersion) -> impl Iterator<Item = &'static Field> {
        self.fields().iter().filter(move |field| field.version.is_none_or(|only| only == version))
    }
}

impl Answer {
    /// The fields of the result. Those of a task are present only if a task began.
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
    always("type", FieldType::Text, "OpenCode's word for it, such as busy or retry."),
    sometimes("attempt", FieldType::Count, "How often it has tried."),
    sometimes("message", FieldType::Text, "Why it tries again."),
    sometimes("next", FieldType::Millis, "When it tries again."),
];

const PLANNED: &[Field] = &[
    always("id", FieldType::Text, "Its place in the list."),
    always("content", FieldType::Text, "What is to be done."),
    always("status", FieldType::Text, "How far that is."),
    always("priority", FieldType::Text, "How important it is."),
];

const FILE_DIFF: &[Field] = &[
    always("file", FieldType::Text, "The file."),
    sometimes("patch", FieldType::Text, "What changed in it."),
    sometimes("status", FieldType::Text, "added, deleted or modified."),
    always("additions", FieldType::Count, "How many lines came."),
    always("deletions", FieldType::Count, "How many lines went."),
    sometimes("message_id", FieldType::Id, "The message that it came of, where several turns are told."),
];

const SESSION_SUMMARY: &[Field] = &[
    always("id", FieldType::Id, "The session."),
    always("title", FieldType::Text, "Its title, which may be empty."),
    sometimes("project_id", FieldType::Text, "The project that it belongs to."),
    sometimes("directory", FieldType::Text, "Where it works."),
    sometimes("parent_id", FieldType::Id, "The session that it works for."),
    sometimes("version", FieldType::Text, "The version of OpenCode that made it."),
    sometimes("share_url", FieldType::Text, "Where everybody can read it."),
    sometimes("revert", FieldType::Object(REVERT), "To where it was taken back."),
];

const REVERT: &[Field] = &[
    always("message_id", FieldType::Id, "To before this message."),
    sometimes("part_id", FieldType::Id, "To before this part of it."),
    sometimes("snapshot", FieldType::Text, "The state of the files before that."),
    sometimes("diff", FieldType::Text, "What was undone in them."),
];

const PROVIDER: &[Field] = &[
    always("provider_id", FieldType::Text, "The provider."),
    always("name", FieldType::Text, "Its name for people."),
    always("connected", FieldType::Flag, "OpenCode can use it."),
    always("model_count", FieldType::Count, "How many models it has."),
    sometimes("source", FieldType::Text, "Where OpenCode knows it from."),
    sometimes("default_model_id", FieldType::Text, "Its model if none is named."),
];

const MODEL: &[Field] = &[
    always("provider_id", FieldType::Text, "Its provider."),
    always("model_id", FieldType::Text, "The model, as its provider calls it."),
    always("name", FieldType::Text, "Its name for people."),
    always("default", FieldType::Flag, "It is its provider's model if none is named."),
    always("connected", FieldType::Flag, "OpenCode can use its provider."),
    sometimes("status", FieldType::Text, "How mature it is."),
    sometimes("context_window", FieldType::Count, "How many tokens it reads at most."),
    sometimes("max_output_tokens", FieldType::Count, "How many tokens it writes at most."),
    sometimes("supports_reasoning", FieldType::Flag, "It can reason."),
    sometimes("supports_tool_call", FieldType::Flag, "It can call tools."),
    sometimes("supports_attachments", FieldType::Flag, "It can read files."),
];

const PROJECT: &[Field] = &[
    always("id", FieldType::Text, "The project."),
    sometimes("name", FieldType::Text, "Its name for people."),
    sometimes("vcs", FieldType::Text, "What keeps its history."),
    older(sometimes("worktree", FieldType::Text, "Where it is, if it is the gateway's own.")),
    older(always(
        "sandboxes",
        FieldType::Texts,
        "Its other directories that OpenCode knows, if it is the gateway's own.",
    )),
    older(always("time", FieldType::Object(PROJECT_TIME), "When it was made, changed and set up.")),
];

const PROJECT_TIME: &[Field] = &[
    sometimes("created", FieldType::Millis, "When it was made."),
    sometimes("updated", FieldType::Millis, "When it changed."),
    sometimes("initialized", FieldType::Millis, "When it was set up."),
];

const WORKSPACE: &[Field] = &[
    always("id", FieldType::Id, "The workspace."),
    sometimes("type", FieldType::Text, "The adapter of OpenCode that made it."),
    sometimes("name", FieldType::Text, "Its name."),
    sometimes("branch", FieldType::Text, "The branch that it works on."),
    older(sometimes("directory", FieldType::Text, "Where it is.")),
    older(sometimes("projectID", FieldType::Text, "The project that it belongs to.")),
    older(sometimes("timeUsed", FieldType::Millis, "When it was used last.")),
];

const WORKTREE: &[Field] = &[
    always("name", FieldType::Text, "The last segment of its directory."),
    sometimes("branch", FieldType::Text, "The branch that is checked out there."),
    older(always("directory", FieldType::Text, "Where it is. A list has nothing but this.")),
];

const INTERRUPT: &[Field] = &[
    always("request_id", FieldType::Id, "What an answer has to name."),
    always("session_id", FieldType::Id, "The session that asks."),
    always("interrupt_type", FieldType::Words(&["permission", "question"]), "What is asked for."),
    always("task_id", FieldType::Id, "The task that waits."),
    always("context_id", FieldType::Id, "Its context."),
    always("details", FieldType::Facts, "What the agent says about it."),
    always(
        "expires_at",
        FieldType::Deadline,
        "Until when, in seconds since 1970. Null: there is no deadline.",
    ),
];
