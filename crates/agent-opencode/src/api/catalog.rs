//! OpenCode's responses about its offers: models, agents, worktrees and workspaces.
//!
//! Responses about providers and configuration contain API keys, so only the needed fields are parsed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{default_for_null, if_valid};

/// `GET /config/providers`.
#[derive(Deserialize, Debug)]
pub(crate) struct Providers {
    pub(crate) providers: Vec<Provider>,
    /// The default model of each provider.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) default: BTreeMap<String, String>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Provider {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) models: BTreeMap<String, Model>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Model {
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) capabilities: Capabilities,
    #[serde(default)]
    #[expect(clippy::zero_sized_map_values, reason = "only the names in the object are read")]
    pub(crate) variants: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Deserialize, Debug, Default)]
pub(crate) struct Capabilities {
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) input: FileKinds,
}

/// The kinds of file that a model accepts. Videos are left out: none of the packages through which OpenCode
/// calls the providers can send one.
#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKinds {
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) image: bool,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) audio: bool,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) pdf: bool,
}

/// An element of `GET /agent`. If a prompt names no agent, the first one answers.
#[derive(Deserialize, Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// `subagent` if only other agents can call it.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) mode: String,
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) description: Option<String>,
    /// Whether the agent is only for OpenCode's own use.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) hidden: bool,
    /// The agent's own model.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<AgentModel>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct AgentModel {
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(rename = "modelID")]
    pub(crate) model: String,
}

/// The model of a session's last prompt.
#[derive(Deserialize, Debug)]
pub(crate) struct SessionModel {
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(rename = "id")]
    pub(crate) model: String,
}

/// `GET /config`.
#[derive(Deserialize, Debug)]
pub(crate) struct Config {
    /// The default model, as `provider/model`.
    #[serde(default, deserialize_with = "if_valid")]
    pub(crate) model: Option<String>,
}

/// An element of `GET /experimental/workspace`.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    /// Missing for a workspace on another machine.
    pub(crate) directory: Option<String>,
}

/// `GET /project/current`.
#[derive(Deserialize, Debug)]
pub(crate) struct Project {
    /// The other checkouts of the same repository.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) sandboxes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::control::Command;
    use super::*;

    /// Parts of real responses of OpenCode.
    #[test]
    fn a_value_that_the_operator_left_out_is_null_and_read_as_the_default() {
        let agents = r#"[{"name": "build", "description": "The default agent.", "mode": "primary", "native": true, "options": {}},
            {"name": "code-reviewer", "description": "R", "mode": "all", "native": false, "hidden": null, "topP": null,
                "temperature": null, "color": null, "variant": null, "options": {}, "steps": null}]"#;
        let agents: Vec<Agent> = serde_json::from_str(agents).unwrap();
        let read: Vec<_> = agents.iter().map(|agent| (agent.name.as_str(), agent.hidden)).collect();
        assert_eq!(read, [("build", false), ("code-reviewer", false)]);
        let command = r#"{"name": "review", "agent": null, "model": null, "subtask": null, "template": "Review", "hints": []}"#;
        let command: Command = serde_json::from_str(command).unwrap();
        assert!(!command.subtask && command.agent.is_none());
    }
}
