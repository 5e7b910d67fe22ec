//! The updates of a session.

use longshore_model::{Json, redact};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::TokenUsage;
use super::lenient::{choices, choices_and_rest, json, list, optional_list, or_default};
use super::options::ConfigOption;

/// The kind of the update that names the commands.
pub const COMMANDS: &str = "available_commands_update";

/// One update of a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    UserMessage(Chunk),
    AgentMessage(Chunk),
    AgentThought(Chunk),
    /// The agent announces a tool call.
    ToolCall(Box<ToolUpdate>),
    /// A change of a tool call, which may not have been announced.
    ToolCallUpdate(Box<ToolUpdate>),
    Plan(Plan),
    Commands(Commands),
    Mode(String),
    ConfigOptions(Vec<ConfigOption>),
    Title(Option<String>),
    Usage(UsageUpdate),
    /// The name of the update's kind, if the kind is unknown or its content is unreadable.
    Unknown(String),
}

impl Update {
    /// Parses the update of a `session/update`.
    pub fn read(raw: &RawValue) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            session_update: String,
        }
        let text = raw.get();
        let Ok(Kind { session_update: kind }) = serde_json::from_str(text) else {
            return Self::Unknown(String::new());
        };
        Self::of_kind(&kind, text).unwrap_or(Self::Unknown(kind))
    }

    fn of_kind(kind: &str, text: &str) -> Option<Self> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Others {
            available_commands: Commands,
            #[serde(deserialize_with = "or_default")]
            current_mode_id: String,
            #[serde(deserialize_with = "choices")]
            config_options: Vec<ConfigOption>,
            #[serde(deserialize_with = "or_default")]
            title: Option<String>,
        }
        fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
            serde_json::from_str(text).ok()
        }
        Some(match kind {
            "user_message_chunk" => Self::UserMessage(read(text)?),
            "agent_message_chunk" => Self::AgentMessage(read(text)?),
            "agent_thought_chunk" => Self::AgentThought(read(text)?),
            "tool_call" => Self::ToolCall(read::<Box<ToolUpdate>>(text).filter(|call| !call.id.is_empty())?),
            "tool_call_update" => {
                Self::ToolCallUpdate(read::<Box<ToolUpdate>>(text).filter(|call| !call.id.is_empty())?)
            }
            "usage_update" => Self::Usage(read(text)?),
            "plan" => Self::Plan(read(text)?),
            COMMANDS => {
                let mut commands = read::<Others>(text).unwrap_or_default().available_commands;
                commands.entries.retain(|command| !command.name.is_empty());
                Self::Commands(commands)
            }
            "current_mode_update" => Self::Mode(read::<Others>(text)?.current_mode_id),
            "config_option_update" => Self::ConfigOptions(read::<Others>(text)?.config_options),
            // These facts are kept for as long as the session is open.
            "session_info_update" => {
                Self::Title(read::<Others>(text)?.title.map(|title| redact::cut(&title)))
            }
            _ => return None,
        })
    }
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Chunk {
    #[serde(deserialize_with = "or_default")]
    pub content: ContentBlock,
    #[serde(deserialize_with = "or_default")]
    pub message_id: Option<String>,
    #[serde(rename = "_meta", deserialize_with = "or_default")]
    pub meta: ChunkMeta,
}

/// The tokens of a model request. Some agents report them together with an empty text.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChunkMeta {
    #[serde(deserialize_with = "or_default")]
    pub usage: Option<Box<TokenUsage>>,
}

/// A piece of content. `kind` decides which of the members are used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentBlock {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    /// The data in base64.
    #[serde(deserialize_with = "or_default")]
    pub data: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub mime_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub uri: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub resource: Option<Box<Resource>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    #[serde(deserialize_with = "or_default")]
    pub uri: String,
    #[serde(deserialize_with = "or_default")]
    pub mime_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub text: Option<String>,
    /// The bytes in base64.
    #[serde(deserialize_with = "or_default")]
    pub blob: Option<String>,
}

/// A tool call, or its changed members.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolUpdate {
    #[serde(rename = "toolCallId", deserialize_with = "or_default")]
    pub id: String,
    #[serde(deserialize_with = "or_default")]
    pub title: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub kind: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub status: Option<String>,
    #[serde(deserialize_with = "optional_list")]
    pub content: Option<Vec<ToolContent>>,
    #[serde(deserialize_with = "optional_list")]
    pub locations: Option<Vec<Location>>,
    #[serde(deserialize_with = "json")]
    pub raw_input: Option<Json>,
    #[serde(deserialize_with = "json")]
    pub raw_output: Option<Json>,
    /// The type of the sub-agent. Older OpenCode versions send it here instead of in the input.
    #[serde(rename = "subagent_type", deserialize_with = "or_default")]
    pub sub_agent: Option<String>,
    /// The instructions for the sub-agent, also from older OpenCode versions.
    #[serde(deserialize_with = "or_default")]
    pub description: Option<String>,
    #[serde(rename = "_meta", deserialize_with = "or_default")]
    pub meta: ToolMeta,
}

/// The name of a tool. ACP defines only a title, and each agent puts the name at another place in `_meta`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolMeta {
    pub tool: Option<String>,
    /// The complete `_meta` for callers. `None`: there is none, or it exceeds [`MAX_META`].
    pub raw: Option<Json>,
}

/// The longest `_meta` that is passed on to callers, in bytes. A longer one is left out.
pub const MAX_META: usize = 4096;

/// A `_meta` for callers. `None`: there is none, or it exceeds [`MAX_META`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta(pub Option<Json>);

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(&Box::<RawValue>::deserialize(deserializer)?))
    }
}

impl Meta {
    fn of(raw: &RawValue) -> Self {
        let text = raw.get();
        let is_shown = text.starts_with('{') && text != "{}" && text.len() <= MAX_META;
        Self(is_shown.then(|| Json::from_raw(raw)))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawToolMeta {
    #[serde(alias = "tool_name", deserialize_with = "or_default")]
    tool_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    claude_code: Vendor,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Vendor {
    #[serde(deserialize_with = "or_default")]
    tool_name: Option<String>,
}

impl<'de> Deserialize<'de> for ToolMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let known: RawToolMeta = serde_json::from_str(raw.get()).unwrap_or_default();
        let tool = known.tool_name.or(known.claude_code.tool_name).filter(|name| !name.is_empty());
        Ok(Self { tool, raw: Meta::of(&raw).0 })
    }
}

/// A piece of a tool's output. `kind` decides which of the members are used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolContent {
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub content: ContentBlock,
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    #[serde(deserialize_with = "or_default")]
    pub old_text: String,
    #[serde(deserialize_with = "or_default")]
    pub new_text: String,
    #[serde(deserialize_with = "or_default")]
    pub terminal_id: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Location {
    pub path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub line: Option<u64>,
}

/// The steps that the agent plans.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Plan {
    #[serde(deserialize_with = "list")]
    pub entries: Vec<PlanEntry>,
    #[serde(rename = "_meta", deserialize_with = "or_default")]
    pub meta: Meta,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct PlanEntry {
    #[serde(deserialize_with = "or_default")]
    pub content: String,
    #[serde(deserialize_with = "or_default")]
    pub status: String,
    #[serde(deserialize_with = "or_default")]
    pub priority: String,
}

/// The commands that the agent names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commands {
    pub entries: Vec<Command>,
    /// False: the agent may have others too, because the list was too long or could not be read.
    pub is_whole: bool,
}

impl<'de> Deserialize<'de> for Commands {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        choices_and_rest(deserializer).map(|(entries, is_whole)| Self { entries, is_whole })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Command {
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
}

/// How full the model's context is, and what the session has cost so far.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UsageUpdate {
    #[serde(deserialize_with = "or_default")]
    pub used: u64,
    #[serde(deserialize_with = "or_default")]
    pub size: u64,
    #[serde(deserialize_with = "or_default")]
    pub cost: Option<SessionCost>,
    #[serde(rename = "_meta", deserialize_with = "or_default")]
    pub meta: UsageMeta,
}

/// The cost of the session so far.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct SessionCost {
    pub amount: f64,
}

/// The tokens of the session so far, as Vibe reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "the agent's names")]
pub struct UsageMeta {
    #[serde(deserialize_with = "or_default")]
    pub prompt_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub completion_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub cached_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub total_tokens: Option<u64>,
}
