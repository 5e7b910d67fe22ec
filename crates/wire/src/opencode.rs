//! The additions of the agent OpenCode to the protocol: its methods, its fields in messages, and its entries in the documents.

mod answer;
mod build;
mod card;
mod errors;
mod example;
pub mod ids;
pub mod items;
mod location;
pub(crate) mod message_options;
mod params;
mod providers;
pub mod reference;
mod sessions;
mod skills;
mod workspaces;

#[cfg(test)]
pub(crate) use answer::samples;

use longshore_model::Offers;
use serde_json::{Value, json};

use crate::agent::AgentSurface;
use crate::contract::Deployment;
use crate::extension::Extension;
use crate::methods::{self, Method};
use crate::surface::ProtocolVersion;

/// The name of the agent.
pub const NAME: &str = "OpenCode";

/// The description of a gateway whose operator configured none.
pub const DEFAULT_DESCRIPTION: &str = "A coding agent (OpenCode) that works in one directory.";

pub static SURFACE: AgentSurface = AgentSurface {
    key: "opencode",
    has_workspaces: true,
    has_options: false,
    takes_titles: true,
    tool_fields: &[],
    methods: &[&sessions::METHODS, &providers::METHODS, &workspaces::METHODS],
    items: &items::ALL,
    description,
    params,
    model_selection,
    location_note,
    skills: &skills::TABLE,
    offered_skills: card::offers::skills,
    control_note: " Methods of extensions read and control OpenCode's sessions, models and workspaces.",
    message_fields: message_options::schema,
    session_example: "In an OpenCode session that exists.",
    examples: example::calls,
};

impl Deployment {
    /// An OpenCode gateway with the default configuration.
    pub fn of_opencode() -> Self {
        Self {
            description: DEFAULT_DESCRIPTION.to_owned(),
            agent_name: NAME.to_owned(),
            surface: &SURFACE,
            ..Self::default()
        }
    }
}

/// Every method of an OpenCode gateway.
pub fn methods() -> impl Iterator<Item = &'static Method> + Clone {
    methods::of(&SURFACE)
}

/// The method with this name. `None`: no OpenCode gateway has such a method.
pub fn method(name: &str) -> Option<&'static Method> {
    methods().find(|method| method.name == name)
}

fn description(extension: Extension) -> Option<&'static str> {
    Some(match extension {
        Extension::SessionBinding => {
            "Continues an OpenCode session by its id, and returns the id of the session."
        }
        Extension::SessionManagement => "Reads and controls OpenCode sessions.",
        Extension::ProviderDiscovery => "Lists the providers and models of OpenCode.",
        _ => return None,
    })
}

fn params(
    deployment: &Deployment,
    version: ProtocolVersion,
    extension: Extension,
    offers: Option<&Offers>,
) -> Value {
    match extension {
        Extension::SessionManagement => card::sessions::params(deployment, version, offers),
        Extension::ProviderDiscovery => card::providers::params(deployment, version),
        Extension::WorkspaceControl => card::workspaces::params(deployment, version),
        _ => json!({}),
    }
}

fn model_selection() -> Value {
    json!({
        "message_fields": {
            "agent": "metadata.opencode.agent",
            "variant": "metadata.opencode.variant",
            "system": "metadata.opencode.system",
        },
        "notes": [
            "A model is named by providerID and modelID together: one without the other is refused.",
            "The choice is for one message. Without one OpenCode uses the model of the session, or its default.",
            "message_fields need no activation. They choose the agent, the variant of the model, and further instructions.",
        ],
    })
}

fn location_note(deployment: &Deployment) -> &'static str {
    if deployment.directory_override {
        "metadata.opencode.workspace.id wins over metadata.opencode.directory. A directory must be the root of the \
         workspace, below it, or a worktree of the project."
    } else {
        "All work happens in the root of the workspace: metadata.opencode.directory can name no other directory, and \
         metadata.opencode.workspace.id is refused."
    }
}
