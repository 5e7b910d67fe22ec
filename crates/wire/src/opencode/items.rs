//! The items in the results of OpenCode's methods. A test compares them with real results.

use crate::methods::item::{always, sometimes};
use crate::methods::{Field, FieldType, Item, ItemType};
use crate::surface::ProtocolVersion;

/// All items in the order of the documents.
pub const ALL: [Item; 11] = [
    SESSION_STATUS,
    TASK,
    MESSAGE,
    PLANNED,
    FILE_DIFF,
    SESSION_SUMMARY,
    PROVIDER,
    MODEL,
    PROJECT,
    WORKSPACE,
    WORKTREE,
];

pub const SESSION_STATUS: Item =
    &ItemType::new("SessionStatusSummary", "The status of a session.", STATUS_FIELDS);
pub const TASK: Item = &ItemType::new("Task", "A session, as a completed task of A2A.", &[]);
pub const MESSAGE: Item = &ItemType::new("Message", "A message of a session, as a message of A2A.", &[]);
/// A todo of the agent.
pub const PLANNED: Item = &ItemType::new("Todo", "A todo of the agent.", PLANNED_FIELDS);
pub const FILE_DIFF: Item = &ItemType::new("FileDiff", "The change of a file.", DIFF_FIELDS);
pub const SESSION_SUMMARY: Item = &ItemType::new("SessionSummary", "A session.", SUMMARY_FIELDS);
pub const PROVIDER: Item = &ItemType::new("ProviderSummary", "A provider of models.", PROVIDER_FIELDS);
pub const MODEL: Item = &ItemType::new("ModelSummary", "A model.", MODEL_FIELDS);
pub const PROJECT: Item = &ItemType::new("Project", "A project of OpenCode.", PROJECT_FIELDS);
pub const WORKSPACE: Item = &ItemType::new("Workspace", "A workspace of OpenCode.", WORKSPACE_FIELDS);
pub const WORKTREE: Item = &ItemType {
    is_text_in_v03: true,
    ..ItemType::new("Worktree", "A worktree of the project.", WORKTREE_FIELDS)
};

/// Marks a field as present only in 0.3, where projects and workspaces have OpenCode's own fields.
const fn older(field: Field) -> Field {
    Field { version: Some(ProtocolVersion::V03), ..field }
}

const STATUS_FIELDS: &[Field] = &[
    always("session_id", FieldType::Id, "The session."),
    always("type", FieldType::Text, "The status in OpenCode's words, such as busy or retry."),
    sometimes("attempt", FieldType::Count, "The number of attempts so far."),
    sometimes("message", FieldType::Text, "The reason for the retry."),
    sometimes("next", FieldType::Millis, "The time of the next attempt."),
];

const PLANNED_FIELDS: &[Field] = &[
    always("id", FieldType::Text, "The position in the list."),
    always("content", FieldType::Text, "The description of the todo."),
    always("status", FieldType::Text, "The status of the todo."),
    always("priority", FieldType::Text, "The priority of the todo."),
];

const DIFF_FIELDS: &[Field] = &[
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

const SUMMARY_FIELDS: &[Field] = &[
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

const PROVIDER_FIELDS: &[Field] = &[
    always("provider_id", FieldType::Text, "The provider."),
    always("name", FieldType::Text, "Its name for people."),
    always("connected", FieldType::Flag, "Whether OpenCode can use the provider."),
    always("model_count", FieldType::Count, "The number of models."),
    sometimes("source", FieldType::Text, "The source from which OpenCode knows the provider."),
    sometimes("default_model_id", FieldType::Text, "The default model."),
];

const MODEL_FIELDS: &[Field] = &[
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

const PROJECT_FIELDS: &[Field] = &[
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

const WORKSPACE_FIELDS: &[Field] = &[
    always("id", FieldType::Id, "The workspace."),
    sometimes("type", FieldType::Text, "The adapter of OpenCode that created the workspace."),
    sometimes("name", FieldType::Text, "Its name."),
    sometimes("branch", FieldType::Text, "The branch of the workspace."),
    older(sometimes("directory", FieldType::Text, "The directory of the workspace.")),
    older(sometimes("projectID", FieldType::Text, "The project that it belongs to.")),
    older(sometimes("timeUsed", FieldType::Millis, "The time of the last use.")),
];

const WORKTREE_FIELDS: &[Field] = &[
    always("name", FieldType::Text, "The last segment of its directory."),
    sometimes("branch", FieldType::Text, "The branch that is checked out there."),
    older(always(
        "directory",
        FieldType::Text,
        "The directory of the worktree. A list contains the directories only.",
    )),
];
