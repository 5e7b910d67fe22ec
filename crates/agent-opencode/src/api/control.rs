//! What OpenCode answers to callers who look at its sessions and places, or change them.
//!
//! Only what they may see is read. Its answers about providers hold keys, and those about commands whole prompts.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Number;

use super::catalog::{SessionModel, if_understood};
use super::template::Template;
use super::{Fault, default_for_null, string_or_nothing};

#[derive(Deserialize, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) title: String,
    #[serde(default, rename = "projectID")]
    pub(crate) project: Option<String>,
    #[serde(default)]
    pub(crate) directory: Option<String>,
    #[serde(default, rename = "parentID")]
    pub(crate) parent: Option<String>,
    #[serde(default, rename = "workspaceID")]
    pub(crate) workspace: Option<String>,
    #[serde(default)]
    pub(crate) version: Option<String>,
    #[serde(default)]
    pub(crate) share: Option<Share>,
    #[serde(default)]
    pub(crate) revert: Option<Revert>,
    /// That of its last prompt.
    #[serde(default, deserialize_with = "if_understood")]
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
    #[serde(default, rename = "partID")]
    pub(crate) part: Option<String>,
    #[serde(default)]
    pub(crate) snapshot: Option<String>,
    #[serde(default)]
    pub(crate) diff: Option<String>,
}

/// Of sessions, projects and messages: milliseconds of the epoch.
#[derive(Deserialize, Debug, Default)]
pub(crate) struct Times {
    #[serde(default)]
    pub(crate) created: Option<Number>,
    #[serde(default)]
    pub(crate) updated: Option<Number>,
    #[serde(default)]
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
    #[serde(default)]
    pub(crate) patch: Option<String>,
    #[serde(default)]
    pub(crate) status: Option<String>,
    #[serde(default)]
    pub(crate) additions: Option<Number>,
    #[serde(default)]
    pub(crate) deletions: Option<Number>,
}

impl FileDiff {
    /// How much there is to tell of it, in bytes.
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
    #[serde(default, deserialize_with = "if_understood")]
    pub(crate) error: Option<Fault>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Part {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) text: Option<String>,
    /// OpenCode wrote it, not the user.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) synthetic: bool,
    /// The model is not shown it.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) ignored: bool,
    #[serde(default, deserialize_with = "if_understood")]
    pub(crate) state: Option<ToolState>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct ToolState {
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) output: Option<String>,
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) error: Option<String>,
}

/// A message without its content.
#[derive(Deserialize, Debug)]
pub(crate) struct Heading {
    pub(crate) info: MessageInfo,
}

/// A message, read for what its turn changed.
#[derive(Deserialize, Debug)]
pub(crate) struct Changed {
    pub(crate) info: ChangedInfo,
}

#[derive(Deserialize, Debug)]
pub(crate) struct ChangedInfo {
    pub(crate) id: String,
    /// Of a user's message. One of the agent has a word of another kind here.
    #[serde(default, deserialize_with = "if_understood")]
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
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) source: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) models: BTreeMap<String, Model>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Model {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) status: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) limit: Limits,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) capabilities: Abilities,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct Limits {
    #[serde(default)]
    pub(crate) context: Option<Number>,
    #[serde(default)]
    pub(crate) output: Option<Number>,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct Abilities {
    #[serde(default)]
    pub(crate) reasoning: Option<bool>,
    #[serde(default)]
    pub(crate) toolcall: Option<bool>,
    #[serde(default)]
    pub(crate) attachment: Option<bool>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Project {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) vcs: Option<String>,
    #[serde(default)]
    pub(crate) worktree: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) sandboxes: Vec<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) time: Times,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) branch: Option<String>,
    #[serde(default)]
    pub(crate) directory: Option<String>,
    #[serde(default, rename = "projectID")]
    pub(crate) project: Option<String>,
    /// One that was never used has a word here.
    #[serde(default, rename = "timeUsed", deserialize_with = "number_or_nothing")]
    pub(crate) used: Option<Number>,
}

/// The answer to one who makes a worktree.
#[derive(Deserialize, Debug)]
pub(crate) struct Worktree {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) branch: Option<String>,
    pub(crate) directory: String,
}

/// `GET /command`, one of them.
#[derive(Deserialize, Debug)]
pub(crate) struct Command {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "string_or_nothing")]
    source: Option<String>,
    #[serde(default)]
    template: Template,
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) agent: Option<String>,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) subtask: bool,
}

impl Command {
    /// What it does with its arguments. The template of an MCP server's prompt is whatever that server says when it is asked for it,
    /// also where OpenCode tells one.
    pub(crate) fn template(&self) -> Template {
        if self.source.as_deref() == Some("mcp") { Template::default() } else { self.template }
    }
}

/// `GET /global/event`, one of them.
#[derive(Deserialize, Debug)]
pub(crate) struct GlobalEvent {
    #[serde(default)]
    pub(crate) directory: Option<String>,
    pub(crate) payload: GlobalPayload,
}

#[derive(Deserialize, Debug)]
pub(crate) struct GlobalPayload {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "if_understood")]
    pub(crate) properties: Option<GlobalProperties>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct GlobalProperties {
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) message: Option<String>,
}

fn number_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Number>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose {
        Number(Number),
        Other(IgnoredAny),
    }
    Ok(match Loose::deserialize(deserializer)? {
        Loose::Number(number) => Some(number),
        Loose::Other(_) => None,
    })
}
