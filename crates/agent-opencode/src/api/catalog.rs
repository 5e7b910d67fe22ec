//! What OpenCode has to offer: models, agents, worktrees and workspaces.
//!
//! Its answers about providers and its configuration hold keys. Nothing is read here but what is needed.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{default_for_null, string_or_nothing};

/// `GET /config/providers`.
#[derive(Deserialize, Debug)]
pub(crate) struct Providers {
    pub(crate) providers: Vec<Provider>,
    /// Each provider's own choice among its models.
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
    pub(crate) input: Takes,
}

/// The kinds of file that a model takes. Films are not among them: no provider's package can send one.
#[derive(Deserialize, Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) image: bool,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) audio: bool,
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) pdf: bool,
}

/// `GET /agent`, one of them. The first is the one that answers when none is named.
#[derive(Deserialize, Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    /// `subagent`: meant to be called by another one.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) mode: String,
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) description: Option<String>,
    /// For OpenCode's own use.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) hidden: bool,
    /// It has a model of its own.
    #[serde(default, deserialize_with = "if_understood")]
    pub(crate) model: Option<AgentModel>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct AgentModel {
    #[serde(rename = "providerID")]
    pub(crate) provider: String,
    #[serde(rename = "modelID")]
    pub(crate) model: String,
}

/// What can be read so, and nothing otherwise: a session is not lost for a model of another shape.
pub(super) fn if_understood<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Loose<T> {
        Understood(T),
        Other(IgnoredAny),
    }
    Ok(match Loose::deserialize(deserializer)? {
        Loose::Understood(value) => Some(value),
        Loose::Other(_) => None,
    })
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
    /// Written `provider/model`.
    #[serde(default, deserialize_with = "string_or_nothing")]
    pub(crate) model: Option<String>,
}

/// `GET /experimental/workspace`, one of them.
#[derive(Deserialize, Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    /// A workspace elsewhere has none.
    #[serde(default)]
    pub(crate) directory: Option<String>,
}

/// `GET /project/current`.
#[derive(Deserialize, Debug)]
pub(crate) struct Project {
    /// Other checkouts of the same repository.
    #[serde(default, deserialize_with = "default_for_null")]
    pub(crate) sandboxes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::super::control::Command;
    use super::*;

    /// From OpenCode's answers, shortened.
    #[test]
    fn what_an_operator_left_out_is_null_and_not_set() {
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
