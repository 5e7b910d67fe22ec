//! The ACP messages, with the members that the gateway uses.
//!
//! All types are lenient. A member that is missing or has another type counts as absent, an unreadable entry of a list is left out,
//! and unknown words are kept as text. JSON that is passed on is kept as its original text.

pub(crate) mod lenient;
mod options;
mod update;

use std::fmt;

use longshore_model::{Json, redact};
use serde::{Deserialize, Serialize};

use self::lenient::{advertised, choices, list, or_default};
pub use self::options::{ConfigChoice, ConfigOption, Mode, Model, Models, Modes, option_for};
pub use self::update::{
    COMMANDS, Chunk, Command, Commands, ContentBlock, Location, MAX_META, Meta, Plan, PlanEntry, Resource,
    ToolContent, ToolUpdate, Update, UsageUpdate,
};

/// The only version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u64 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InitializeAnswer {
    #[serde(deserialize_with = "or_default")]
    pub protocol_version: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub agent_capabilities: AgentCapabilities,
    #[serde(deserialize_with = "list")]
    pub auth_methods: Vec<AuthMethod>,
    #[serde(deserialize_with = "or_default")]
    pub agent_info: AgentInfo,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AgentInfo {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub title: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct AuthMethod {
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: Option<String>,
}

/// A sentence about the method for callers.
impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, description } = self;
        let name = if name.is_empty() { id } else { name };
        let how = description.as_deref().map(|how| format!(" ({how})")).unwrap_or_default();
        f.write_str(&redact::public(&format!("Method `{id}`: {name}{how}.")))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentCapabilities {
    #[serde(deserialize_with = "or_default")]
    pub load_session: bool,
    #[serde(deserialize_with = "or_default")]
    pub prompt_capabilities: PromptCapabilities,
    #[serde(deserialize_with = "or_default")]
    pub mcp_capabilities: McpCapabilities,
    #[serde(deserialize_with = "or_default")]
    pub session_capabilities: SessionCapabilities,
}

/// The content that a prompt may hold in addition to text and links, which every agent accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptCapabilities {
    #[serde(deserialize_with = "or_default")]
    pub image: bool,
    #[serde(deserialize_with = "or_default")]
    pub audio: bool,
    #[serde(deserialize_with = "or_default")]
    pub embedded_context: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct McpCapabilities {
    #[serde(deserialize_with = "or_default")]
    pub http: bool,
    #[serde(deserialize_with = "or_default")]
    pub sse: bool,
}

/// The session methods that an agent advertises. It may lack some of them nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a capability of its own")]
pub struct SessionCapabilities {
    #[serde(deserialize_with = "advertised")]
    pub list: bool,
    #[serde(deserialize_with = "advertised")]
    pub resume: bool,
    #[serde(deserialize_with = "advertised")]
    pub fork: bool,
    #[serde(deserialize_with = "advertised")]
    pub close: bool,
    #[serde(deserialize_with = "advertised")]
    pub delete: bool,
}

/// The response to `session/new`, `session/load`, `session/resume` and `session/fork`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAnswer {
    #[serde(deserialize_with = "or_default")]
    pub session_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub modes: Option<Modes>,
    #[serde(deserialize_with = "or_default")]
    pub models: Option<Models>,
    #[serde(deserialize_with = "choices")]
    pub config_options: Vec<ConfigOption>,
}

/// The response to `session/set_config_option`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigAnswer {
    #[serde(deserialize_with = "choices")]
    pub config_options: Vec<ConfigOption>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionList {
    #[serde(deserialize_with = "list")]
    pub sessions: Vec<ListedSession>,
    #[serde(deserialize_with = "or_default")]
    pub next_cursor: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    pub session_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cwd: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub title: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub updated_at: Option<String>,
}

/// The response to `session/prompt`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptAnswer {
    #[serde(deserialize_with = "or_default")]
    pub stop_reason: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub usage: Option<TokenUsage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenUsage {
    #[serde(deserialize_with = "or_default")]
    pub input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub output_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub total_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub thought_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub cached_read_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    pub cached_write_tokens: u64,
}

/// The parameters of `session/request_permission`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    pub session_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub tool_call: ToolUpdate,
    #[serde(default, deserialize_with = "list")]
    pub options: Vec<RawOption>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawOption {
    pub option_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub kind: String,
    #[serde(rename = "_meta", default, deserialize_with = "or_default")]
    pub meta: Meta,
}

/// A configured MCP server, which offers tools to the agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum McpServer {
    Stdio { name: String, command: String, args: Vec<String>, env: Vec<NamedValue> },
    Remote { r#type: RemoteKind, name: String, url: String, headers: Vec<NamedValue> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteKind {
    Http,
    Sse,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NamedValue {
    pub name: String,
    pub value: String,
}

/// Parses a response. `None`: the response is not a JSON object.
pub fn read<T: Default + for<'de> Deserialize<'de>>(answer: &Json) -> Option<T> {
    match answer.get() {
        // Some agents respond with `null` where others respond with `{}`.
        "null" => Some(T::default()),
        text if text.starts_with('{') => serde_json::from_str(text).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
