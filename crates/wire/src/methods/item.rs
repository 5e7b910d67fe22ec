//! What results are made of, by name: for the card, the `OpenAPI` and the reference page. That results are so is held by a test.

use super::row::{Answer, Item};
use crate::surface::ProtocolVersion;

/// A field of an item.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub shape: Shape,
    /// Else it is left out where there is nothing to say.
    pub always: bool,
    /// The only line that has it.
    pub version: Option<ProtocolVersion>,
    pub help: &'static str,
}

/// What stands behind the name of a field.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Id,
    Text,
    Flag,
    /// A whole number that is not negative.
    Count,
    /// A moment, in milliseconds since 1970.
    Millis,
    Texts,
    Words(&'static [&'static str]),
    /// A number of seconds since 1970, or null.
    Deadline,
    /// Any object.
    Facts,
    Object(&'static [Field]),
}

const fn always(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, shape, always: true, version: None, help }
}

const fn sometimes(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, shape, always: false, version: None, help }
}

/// Only on 0.3, which tells of places what OpenCode tells.
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

    /// What the documents call it.
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

    /// What it is, in one sentence.
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

    /// None for what A2A itself describes.
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
    /// The names in the result. Those of a task are there when one began.
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

    /// What it is made of.
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

    /// The same with the number of them, as the contracts write it.
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
    always("session_id", Shape::Id, "The session."),
    always("type", Shape::Text, "OpenCode's word for it, such as busy or retry."),
    sometimes("attempt", Shape::Count, "How often it has tried."),
    sometimes("message", Shape::Text, "Why it tries again."),
    sometimes("next", Shape::Millis, "When it tries again."),
];

const PLANNED: &[Field] = &[
    always("id", Shape::Text, "Its place in the list."),
    always("content", Shape::Text, "What is to be done."),
    always("status", Shape::Text, "How far that is."),
    always("priority", Shape::Text, "How important it is."),
];

const FILE_DIFF: &[Field] = &[
    always("file", Shape::Text, "The file."),
    sometimes("patch", Shape::Text, "What changed in it."),
    sometimes("status", Shape::Text, "added, deleted or modified."),
    always("additions", Shape::Count, "How many lines came."),
    always("deletions", Shape::Count, "How many lines went."),
    sometimes("message_id", Shape::Id, "The message that it came of, where several turns are told."),
];

const SESSION_SUMMARY: &[Field] = &[
    always("id", Shape::Id, "The session."),
    always("title", Shape::Text, "Its title, which may be empty."),
    sometimes("project_id", Shape::Text, "The project that it belongs to."),
    sometimes("directory", Shape::Text, "Where it works."),
    sometimes("parent_id", Shape::Id, "The session that it works for."),
    sometimes("version", Shape::Text, "The version of OpenCode that made it."),
    sometimes("share_url", Shape::Text, "Where everybody can read it."),
    sometimes("revert", Shape::Object(REVERT), "To where it was taken back."),
];

const REVERT: &[Field] = &[
    always("message_id", Shape::Id, "To before this message."),
    sometimes("part_id", Shape::Id, "To before this part of it."),
    sometimes("snapshot", Shape::Text, "The state of the files before that."),
    sometimes("diff", Shape::Text, "What was undone in them."),
];

const PROVIDER: &[Field] = &[
    always("provider_id", Shape::Text, "The provider."),
    always("name", Shape::Text, "Its name for people."),
    always("connected", Shape::Flag, "OpenCode can use it."),
    always("model_count", Shape::Count, "How many models it has."),
    sometimes("source", Shape::Text, "Where OpenCode knows it from."),
    sometimes("default_model_id", Shape::Text, "Its model if none is named."),
];

const MODEL: &[Field] = &[
    always("provider_id", Shape::Text, "Its provider."),
    always("model_id", Shape::Text, "The model, as its provider calls it."),
    always("name", Shape::Text, "Its name for people."),
    always("default", Shape::Flag, "It is its provider's model if none is named."),
    always("connected", Shape::Flag, "OpenCode can use its provider."),
    sometimes("status", Shape::Text, "How mature it is."),
    sometimes("context_window", Shape::Count, "How many tokens it reads at most."),
    sometimes("max_output_tokens", Shape::Count, "How many tokens it writes at most."),
    sometimes("supports_reasoning", Shape::Flag, "It can reason."),
    sometimes("supports_tool_call", Shape::Flag, "It can call tools."),
    sometimes("supports_attachments", Shape::Flag, "It can read files."),
];

const PROJECT: &[Field] = &[
    always("id", Shape::Text, "The project."),
    sometimes("name", Shape::Text, "Its name for people."),
    sometimes("vcs", Shape::Text, "What keeps its history."),
    older(sometimes("worktree", Shape::Text, "Where it is, if it is the gateway's own.")),
    older(always(
        "sandboxes",
        Shape::Texts,
        "Its other directories that OpenCode knows, if it is the gateway's own.",
    )),
    older(always("time", Shape::Object(PROJECT_TIME), "When it was made, changed and set up.")),
];

const PROJECT_TIME: &[Field] = &[
    sometimes("created", Shape::Millis, "When it was made."),
    sometimes("updated", Shape::Millis, "When it changed."),
    sometimes("initialized", Shape::Millis, "When it was set up."),
];

const WORKSPACE: &[Field] = &[
    always("id", Shape::Id, "The workspace."),
    sometimes("type", Shape::Text, "The adapter of OpenCode that made it."),
    sometimes("name", Shape::Text, "Its name."),
    sometimes("branch", Shape::Text, "The branch that it works on."),
    older(sometimes("directory", Shape::Text, "Where it is.")),
    older(sometimes("projectID", Shape::Text, "The project that it belongs to.")),
    older(sometimes("timeUsed", Shape::Millis, "When it was used last.")),
];

const WORKTREE: &[Field] = &[
    always("name", Shape::Text, "The last segment of its directory."),
    sometimes("branch", Shape::Text, "The branch that is checked out there."),
    older(always("directory", Shape::Text, "Where it is. A list has nothing but this.")),
];

const INTERRUPT: &[Field] = &[
    always("request_id", Shape::Id, "What an answer has to name."),
    always("session_id", Shape::Id, "The session that asks."),
    always("interrupt_type", Shape::Words(&["permission", "question"]), "What is asked for."),
    always("task_id", Shape::Id, "The task that waits."),
    always("context_id", Shape::Id, "Its context."),
    always("details", Shape::Facts, "What the agent says about it."),
    always("expires_at", Shape::Deadline, "Until when, in seconds since 1970. Null: there is no deadline."),
];
