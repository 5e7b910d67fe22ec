//! The values that agents send: tasks, messages and the events of a stream. They serialize to the JSON of A2A 1.0.

use longshore_model::TaskState;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Extra data of an agent, unchanged.
pub type Metadata = Map<String, Value>;

/// One event of a stream, or the response to a message.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    Task(Task),
    /// A complete answer for which the agent made no task.
    Message(Message),
    StatusUpdate(StatusUpdate),
    ArtifactUpdate(ArtifactUpdate),
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub id: String,
    /// Empty if the agent leaves it out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Status {
    /// `None`: the agent leaves the state out, or uses a word that A2A does not have.
    #[serde(serialize_with = "state_name")]
    pub state: Option<TaskState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub message_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task_id: String,
    pub role: Role,
    pub parts: Vec<Part>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Role {
    #[serde(rename = "ROLE_USER")]
    User,
    #[serde(rename = "ROLE_AGENT")]
    Agent,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    #[serde(flatten)]
    pub content: Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    Text(String),
    /// Bytes, in base64.
    Raw(String),
    Url(String),
    Data(Value),
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    pub artifact_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub parts: Vec<Part>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpdate {
    pub task_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: Status,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactUpdate {
    pub task_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub artifact: Artifact,
    /// Whether the parts follow those of the known artifact. Otherwise the artifact is new, or replaces the one with its id.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last_chunk: bool,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Metadata,
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    pub fn data(data: Value) -> Self {
        Self::new(Content::Data(data))
    }

    pub fn new(content: Content) -> Self {
        Self { content, filename: None, media_type: None, metadata: Map::new() }
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// About how many bytes of memory the part takes.
    pub(crate) fn weight(&self) -> usize {
        let content = match &self.content {
            Content::Text(text) | Content::Raw(text) | Content::Url(text) => text.len(),
            // Computed without serializing, because an estimate is enough for a limit.
            Content::Data(data) => weight_of(data),
        };
        let names = [&self.filename, &self.media_type].into_iter().flatten().map(String::len).sum::<usize>();
        ITEM + content + names + weight_of_metadata(&self.metadata)
    }
}

/// The fixed weight of a part, message or artifact in addition to its content, so that the limit also bounds how many there are.
const ITEM: usize = 256;

pub(crate) fn weight_of_metadata(metadata: &Metadata) -> usize {
    metadata.iter().map(|(name, value)| weight_of_entry(name, value)).sum()
}

pub(crate) fn weight_of_entry(name: &str, value: &Value) -> usize {
    name.len() + 4 + weight_of(value)
}

fn weight_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight_of(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| weight_of_entry(key, value)).sum::<usize>() + 2
        }
        _ => 8,
    }
}

impl Message {
    /// The text parts of the message, one a line.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn weight(&self) -> usize {
        let ids = self.message_id.len() + self.context_id.len() + self.task_id.len();
        ITEM + ids + self.parts.iter().map(Part::weight).sum::<usize>() + weight_of_metadata(&self.metadata)
    }
}

impl Artifact {
    pub(crate) fn weight(&self) -> usize {
        let names = [&self.name, &self.description].into_iter().flatten().map(String::len).sum::<usize>();
        let parts = self.parts.iter().map(Part::weight).sum::<usize>();
        ITEM + self.artifact_id.len() + names + parts + weight_of_metadata(&self.metadata)
    }
}

impl Task {
    /// Whether the task has ended.
    pub fn is_over(&self) -> bool {
        self.status.state.is_some_and(TaskState::is_terminal)
    }

    /// Whether the task has ended or waits for its user.
    pub fn is_settled(&self) -> bool {
        self.status.state.is_some_and(TaskState::is_settled)
    }
}

/// Serializes a state. An unknown state becomes `TASK_STATE_UNSPECIFIED`.
#[expect(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference to the field"
)]
fn state_name<S: Serializer>(state: &Option<TaskState>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        None => "TASK_STATE_UNSPECIFIED",
        Some(TaskState::Submitted) => "TASK_STATE_SUBMITTED",
        Some(TaskState::Working) => "TASK_STATE_WORKING",
        Some(TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
        Some(TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
        Some(TaskState::Completed) => "TASK_STATE_COMPLETED",
        Some(TaskState::Failed) => "TASK_STATE_FAILED",
        Some(TaskState::Canceled) => "TASK_STATE_CANCELED",
        Some(TaskState::Rejected) => "TASK_STATE_REJECTED",
    })
}
