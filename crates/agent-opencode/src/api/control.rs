//! OpenCode's responses to callers who query or change its sessions, workspaces and worktrees.
//!
//! Only the fields that callers may see are parsed. Other fields are secret: responses about providers contain API keys, and
//! responses about commands contain whole prompts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Number;

use super::catalog::SessionModel;
use super::template::Template;
use super::{Fault, default_for_null, if_valid};

#[derive(Deserialize, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) title: String,
    #[serde(rename = "projectID")]
    pub(crate) project: Option<String>,
    pub(crate) directory: Option<String>,
    #[serde(rename = "parentID")]
    pub(crate) parent: Option<String>,
    #[serde(rename = "workspaceID")]
    pub(crate) workspace: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) share: Option<Share>,
    pub(crate) revert: Option<Revert>,
    /// The model of the session's last prompt.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<SessionModel>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) time: Times,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Share {
    pub(crate) url: String,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Revert {
    #[serde(rename = "messageID")]
    pub(crate) message: String,
    #[serde(rename = "partID")]
    pub(crate) part: Option<String>,
    pub(crate) snapshot: Option<String>,
    pub(crate) diff: Option<String>,
}

/// Times of sessions, projects and messages, in milliseconds since the epoch.
#[derive(Deserialize, Debug, Default)]
pub(crate) struct Times {
    pub(crate) created: Option<Number>,
    pub(crate) updated: Option<Number>,
    pub(crate) initialized: Option<Number>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Todo {
    pub(crate) content: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) status: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) priority: String,
}

#[derive(Deserialize, Debug)]
pub(crate) struct FileDiff {
    pub(crate) file: String,
    pub(crate) patch: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) additions: Option<Number>,
    pub(crate) deletions: Option<Number>,
}

impl FileDiff {
    /// The total size of the texts in bytes.
    pub(crate) fn size(&self) -> usize {
        self.file.len() + self.patch.as_ref().map_or(0, String::len)
    }
}

#[derive(Deserialize, Debug)]
pub(crate) struct Message {
    pub(crate) info: MessageInfo,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) parts: Vec<Part>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct MessageInfo {
    pub(crate) id: String,
    pub(crate) role: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) time: Times,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) error: Option<Fault>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Part {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) text: Option<String>,
    /// Whether OpenCode wrote the text.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) synthetic: bool,
    /// Whether the text is hidden from the model.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) ignored: bool,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) state: Option<ToolState>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct ToolState {
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) output: Option<String>,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) error: Option<String>,
}

/// A message without its content.
#[derive(Deserialize, Debug)]
pub(crate) struct MessageHead {
    pub(crate) info: MessageInfo,
}

/// A message with the changes that its turn made.
#[derive(Deserialize, Debug)]
pub(crate) struct MessageChanges {
    pub(crate) info: MessageChangesInfo,
}

#[derive(Deserialize, Debug)]
pub(crate) struct MessageChangesInfo {
    pub(crate) id: String,
    /// The summary of a user's message. In a message of the agent, this field has another type.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) summary: Option<Summary>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Summary {
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) diffs: Vec<FileDiff>,
}

/// `GET /provider`.
#[derive(Deserialize, Debug)]
pub(crate) struct Providers {
    pub(crate) all: Vec<Provider>,
    pub(crate) default: BTreeMap<String, String>,
    pub(crate) connected: Vec<String>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Provider {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) source: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) models: BTreeMap<String, Model>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Model {
    pub(crate) name: Option<String>,
    pub(crate) status: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) limit: Limits,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) capabilities: Capabilities,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) context: Option<Number>,
    pub(crate) output: Option<Number>,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct Capabilities {
    pub(crate) reasoning: Option<bool>,
    pub(crate) toolcall: Option<bool>,
    pub(crate) attachment: Option<bool>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Project {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) vcs: Option<String>,
    pub(crate) worktree: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) sandboxes: Vec<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) time: Times,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) branch: Option<String>,
    pub(crate) directory: Option<String>,
    #[serde(rename = "projectID")]
    pub(crate) project: Option<String>,
    /// The time of the last use. OpenCode sends a text here if the workspace was never used.
    #[serde(default, rename = "timeUsed", deserialize_with = "if_valid")]
    pub(crate) used: Option<Number>,
}

/// The response to the creation of a worktree.
#[derive(Deserialize, Debug)]
pub(crate) struct Worktree {
    pub(crate) name: String,
    pub(crate) branch: Option<String>,
    pub(crate) directory: String,
}

/// An element of `GET /command`.
#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Command {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "if_valid")]
    source: Option<String>,
    #[serde(default)]
    template: Template,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) description: Option<String>,
    pub(crate) agent: Option<String>,
    /// The command's model, as `provider/model`.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) subtask: bool,
}

impl Command {
    /// The template of this command. For a prompt of an MCP server this is [`Template::default`], an unknown template: the server
    /// generates the template anew for each request, so the template that OpenCode reports does not show what happens to the
    /// arguments.
    pub(crate) fn template(&self) -> Template {
        if self.source.as_deref() == Some("mcp") { Template::default() } else { self.template.clone() }
    }
}

/// An event of `GET /global/event`.
#[derive(Deserialize, Debug)]
pub(crate) struct GlobalEvent {
    pub(crate) directory: Option<String>,
    pub(crate) payload: GlobalPayload,
}

#[derive(Deserialize, Debug)]
pub(crate) struct GlobalPayload {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) properties: Option<GlobalProperties>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct GlobalProperties {
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) message: Option<String>,
}
