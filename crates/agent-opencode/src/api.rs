//! OpenCode's data types, parsed leniently: unknown fields are skipped, and most known fields may be missing.

mod asks;
mod catalog;
pub(crate) mod control;
pub(crate) mod template;
mod tool;
mod usage;

use std::borrow::Cow;
use std::collections::HashMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;

pub(crate) use self::asks::{AskReplied, AskedBy, PermissionAsk, Question, QuestionAsk};
pub(crate) use self::catalog::{
    Agent, Config, FileKinds, Project, Provider, Providers, SessionModel, Workspace,
};
pub(crate) use self::tool::{Attachment, ToolMetadata, ToolTime};
pub(crate) use self::usage::Tokens;

/// The part of an event that decides which turn receives it.
#[derive(Deserialize, Debug)]
pub(crate) struct Head<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<Text<'a>>,
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) properties: HeadProperties<'a>,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct HeadProperties<'a> {
    #[serde(borrow, rename = "sessionID")]
    pub(crate) session: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) info: Option<HeadInfo<'a>>,
}

/// The parent of the event's object: a session in `session.created` and `session.updated`, and a message in events about
/// messages.
#[derive(Deserialize, Debug)]
pub(crate) struct HeadInfo<'a> {
    #[serde(borrow, rename = "parentID")]
    pub(crate) parent: Option<Text<'a>>,
}

/// A string that is borrowed from the event if it has no escapes. A plain `Option<Cow<str>>` would always be copied.
#[derive(Deserialize, Debug)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The kinds of event that a turn handles. The reader drops all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    Status,
    Idle,
    Error,
    MessageUpdated,
    PartUpdated,
    PartDelta,
    PartRemoved,
    SessionUpdated,
    Todos,
    PermissionAsked,
    QuestionAsked,
    /// Some client answered a question, or allowed or rejected a permission request.
    AskReplied,
    /// A question was rejected.
    AskRejected,
}

impl EventKind {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "session.status" => Self::Status,
            "session.idle" => Self::Idle,
            "session.error" => Self::Error,
            "message.updated" => Self::MessageUpdated,
            "message.part.updated" => Self::PartUpdated,
            "message.part.delta" => Self::PartDelta,
            "message.part.removed" => Self::PartRemoved,
            "session.updated" => Self::SessionUpdated,
            "todo.updated" => Self::Todos,
            "permission.asked" => Self::PermissionAsked,
            "question.asked" => Self::QuestionAsked,
            "permission.replied" | "question.replied" => Self::AskReplied,
            "question.rejected" => Self::AskRejected,
            _ => return None,
        })
    }

    /// Whether the event concerns an ask. The asks of all sub-agents belong to the turn of the root session.
    pub(crate) fn is_about_ask(self) -> bool {
        matches!(self, Self::PermissionAsked | Self::QuestionAsked | Self::AskReplied | Self::AskRejected)
    }

    /// Whether the turn of the root session needs this event from the sessions of its sub-agents too: their asks, their token
    /// usage, and their end, which also ends their asks.
    pub(crate) fn concerns_whole_tree(self) -> bool {
        self.is_about_ask() || matches!(self, Self::MessageUpdated | Self::Idle)
    }
}

/// An event with the properties of its kind.
#[derive(Deserialize, Debug)]
pub(crate) struct Envelope<T> {
    pub(crate) properties: T,
}

#[derive(Deserialize, Debug)]
pub(crate) struct StatusChanged {
    pub(crate) status: Status,
}

#[derive(Deserialize, Debug, Clone)]
pub(crate) struct Status {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// For a retry: its number, its reason, and its time (milliseconds since the epoch).
    pub(crate) attempt: Option<Number>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) message: Option<String>,
    pub(crate) next: Option<Number>,
}

/// The properties of an event that only names its session.
#[derive(Deserialize, Debug)]
pub(crate) struct SessionProperties {
    #[serde(rename = "sessionID")]
    pub(crate) session: Option<String>,
}

/// The response of `GET /session/status`: all sessions that are not idle.
pub(crate) type Statuses = HashMap<String, Status>;

#[derive(Deserialize, Debug)]
pub(crate) struct SessionFailed {
    pub(crate) error: Option<Fault>,
}

/// An error as messages and `session.error` carry it.
#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub(crate) struct Fault {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) data: FaultData,
}

#[derive(Deserialize, Debug, Clone, Default, PartialEq)]
pub(crate) struct FaultData {
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) message: Option<String>,
    #[serde(rename = "statusCode")]
    pub(crate) status_code: Option<f64>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct MessageUpdated {
    #[serde(rename = "sessionID")]
    pub(crate) session: Option<String>,
    pub(crate) info: Message,
}

#[derive(Deserialize, Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) role: String,
    #[serde(rename = "parentID")]
    pub(crate) parent: Option<String>,
    pub(crate) mode: Option<String>,
    /// In a user's message, the agent that answers; in an answer, the agent that wrote it.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) agent: Option<String>,
    /// In a user's message, the model that answers.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<ModelRef>,
    pub(crate) finish: Option<String>,
    pub(crate) error: Option<Fault>,
    #[serde(default)]
    pub(crate) time: MessageTime,
    pub(crate) tokens: Option<Tokens>,
    #[serde(default, deserialize_with = "usage::amount")]
    pub(crate) cost: f64,
}

#[derive(Deserialize, Debug, Clone)]
pub(crate) struct ModelRef {
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(rename = "modelID")]
    model: String,
}

impl ModelRef {
    /// The name as `provider/model`.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

#[derive(Deserialize, Debug, Clone, Default)]
pub(crate) struct MessageTime {
    #[serde(default)]
    pub(crate) created: f64,
    pub(crate) completed: Option<f64>,
}

/// An element of `GET /session/{id}/message`.
#[derive(Deserialize, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) info: Message,
    #[serde(default)]
    pub(crate) parts: Vec<Part>,
}

/// Like [`StoredMessage`], without the content of the message.
#[derive(Deserialize, Debug)]
pub(crate) struct StoredInfo {
    pub(crate) info: Message,
}

#[derive(Deserialize, Debug)]
pub(crate) struct PartUpdated {
    pub(crate) part: Part,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Part {
    pub(crate) id: String,
    #[serde(rename = "messageID")]
    pub(crate) message: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) text: Option<String>,
    pub(crate) time: Option<PartTime>,
    pub(crate) tool: Option<String>,
    #[serde(rename = "callID")]
    pub(crate) call: Option<String>,
    pub(crate) state: Option<ToolState>,
    /// In a user's text: whether OpenCode wrote the text.
    #[serde(default)]
    pub(crate) synthetic: bool,
    /// In a user's text: whether the text is hidden from the model.
    #[serde(default)]
    pub(crate) ignored: bool,
    /// In a compaction: whether OpenCode itself started it.
    #[serde(default)]
    pub(crate) auto: bool,
    /// In a file: its media type.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) mime: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) filename: Option<String>,
    /// In a reference to an agent: the agent's name.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) name: Option<String>,
    /// In a subtask: the agent that it calls.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) agent: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) description: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) prompt: Option<String>,
    /// In a subtask: the command that it runs.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) command: Option<String>,
    /// At the end of a step: the reason for its end, and its token usage.
    pub(crate) reason: Option<String>,
    pub(crate) tokens: Option<Tokens>,
    #[serde(default, deserialize_with = "usage::amount")]
    pub(crate) cost: f64,
}

#[derive(Deserialize, Debug)]
pub(crate) struct PartTime {
    pub(crate) end: Option<f64>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct ToolState {
    pub(crate) status: String,
    pub(crate) input: Option<Box<RawValue>>,
    pub(crate) title: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) subtitle: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) output: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) error: Option<String>,
    pub(crate) metadata: Option<ToolMetadata>,
    pub(crate) time: Option<ToolTime>,
    /// Files that the tool returns.
    #[serde(default, deserialize_with = "tool::list_or_nothing")]
    pub(crate) attachments: Vec<Attachment>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct PartDelta<'a> {
    #[serde(borrow, default, rename = "messageID")]
    pub(crate) message: Cow<'a, str>,
    #[serde(borrow, rename = "partID")]
    pub(crate) part: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) field: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) delta: Cow<'a, str>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct PartRemoved {
    #[serde(rename = "partID")]
    pub(crate) part: String,
}

#[derive(Deserialize, Debug)]
pub(crate) struct SessionUpdated {
    pub(crate) info: Session,
}

#[derive(Deserialize, Debug)]
pub(crate) struct TodosUpdated {
    #[serde(default)]
    pub(crate) todos: Vec<Todo>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Todo {
    #[serde(default)]
    content: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    priority: String,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) directory: Option<String>,
    /// The session that started this sub-agent. `None`: the session is not that of a sub-agent.
    #[serde(rename = "parentID")]
    pub(crate) parent: Option<String>,
    /// The id of the OpenCode workspace, if the session was opened in one by that id.
    #[serde(rename = "workspaceID")]
    pub(crate) workspace: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<SessionModel>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) time: SessionTime,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct SessionTime {
    /// The time of the last change.
    pub(crate) updated: Option<f64>,
}

/// OpenCode's report about itself.
#[derive(Deserialize, Debug)]
pub(crate) struct Health {
    pub(crate) healthy: bool,
    #[serde(default)]
    pub(crate) version: String,
}

/// The body of an error response. Covers all three forms that OpenCode uses.
#[derive(Deserialize, Debug, Default)]
pub(crate) struct ErrorBody {
    pub(crate) name: Option<String>,
    #[serde(rename = "_tag")]
    pub(crate) tag: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) message: Option<String>,
    #[serde(default)]
    pub(crate) data: FaultData,
}

/// Reads `null` as the default. OpenCode writes `null` for settings that its operator left out.
fn default_for_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes a value of the wrong type as `None`. Some fields contain text for one tool or provider and something else for
/// another, and one such field must not make the whole object unreadable.
fn if_valid<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose<T> {
        Valid(T),
        Other(IgnoredAny),
    }
    Ok(match Loose::deserialize(deserializer)? {
        Loose::Valid(value) => Some(value),
        Loose::Other(_) => None,
    })
}
