//! The additions of each kind of agent to the protocol: its methods, its fields in messages, and its entries in the documents.
//!
//! The rest of this crate knows these additions only through the surface of a [`Deployment`], so a document names nothing that the
//! served agent does not have. [`AgentSurface::PLAIN`] adds only what many agents have. An agent with further additions has a
//! module with its own surface.

use longshore_model::Offers;
use longshore_model::card::Skill;
use serde_json::{Value, json};

use crate::contract::{Deployment, SkillRow};
use crate::extension::Extension;
use crate::methods::{Item, Method};
use crate::names;
use crate::sessions;
use crate::surface::ProtocolVersion;

/// The additions of one kind of agent.
#[derive(Debug)]
pub struct AgentSurface {
    /// The key of the agent in the health document, which is also the tag of skills that the agent provides. `PLAIN` has no tag.
    pub(crate) key: &'static str,
    /// Whether the agent has workspaces that messages and calls may name.
    pub(crate) has_workspaces: bool,
    /// Whether the agent may offer options other than the mode and the model. Messages choose them by `metadata.shared.config`.
    pub(crate) has_options: bool,
    /// Whether a message can give a title to the session that it opens.
    pub(crate) takes_titles: bool,
    /// The fields of a tool call that only this agent reports.
    pub(crate) tool_fields: &'static [&'static str],
    /// The methods other than those about asks, in the order of the card. They are served if the agent has a control surface.
    pub(crate) methods: &'static [&'static [Method]],
    /// The items in the results of these methods.
    pub(crate) items: &'static [Item],
    /// The descriptions of extensions that only this agent has, or that differ from those of other agents.
    pub(crate) description: fn(Extension) -> Option<&'static str>,
    /// The card parameters of extensions that only this agent has, for the extended card.
    pub(crate) params: fn(&Deployment, ProtocolVersion, Extension, Option<&Offers>) -> Value,
    /// The agent-specific parameters of the extension for the model selection.
    pub(crate) model_selection: fn() -> Value,
    /// A sentence about the directories and workspaces that a message can name.
    pub(crate) location_note: fn(&Deployment) -> &'static str,
    /// The skills that only this agent has.
    pub(crate) skills: &'static [SkillRow],
    /// Converts the offers of the agent into skills.
    pub(crate) offered_skills: fn(&Offers) -> Vec<Skill>,
    /// A sentence about the methods, for the description in the card.
    pub(crate) control_note: &'static str,
    /// The schema of the fields in the object [`names::AGENT_OBJECT`] of a message's metadata.
    pub(crate) message_fields: fn() -> Value,
    /// The summary of an example that continues a session.
    pub(crate) session_example: &'static str,
    /// Example calls of the methods: their names and parameters.
    pub(crate) examples: fn() -> Vec<(&'static str, Value)>,
}

impl AgentSurface {
    /// An agent without methods of its own. It may keep sessions, and messages can name a directory.
    pub const PLAIN: Self = Self {
        key: "agent",
        has_workspaces: false,
        has_options: true,
        takes_titles: false,
        tool_fields: &["kind", "locations"],
        methods: &[&sessions::METHODS],
        items: &[sessions::SESSION],
        description: |_| None,
        params: |deployment, version, extension, _| sessions::params(deployment, version, extension),
        model_selection: || {
            json!({
                "message_fields": {"mode": "metadata.shared.mode", "config": "metadata.shared.config"},
                "notes": [
                    "metadata.shared.model may be the id of a model alone. Instead of an object it may be a string with the id.",
                    "message_fields need no activation. mode is a mode of the agent, such as plan.",
                    "The choice is for one message. Without one the turn has the default mode, model and options: the configured ones, \
                     or those that the agent gives to a new session.",
                    "modes, models and config_options are those of the session that was opened last, and are there once a session was \
                     opened. A message chooses values of config_options by an object of ids and values, such as {\"effort\": \"low\"}.",
                ],
            })
        },
        location_note: |_| names::DIRECTORY_NOTE,
        skills: &[],
        offered_skills: |_| Vec::new(),
        control_note: " Methods of an extension are about the agent's sessions.",
        message_fields: || json!({"directory": directory_schema()}),
        session_example: "In a session that exists.",
        examples: sessions::examples,
    };

    /// The metadata fields with which a message or a call chooses where the agent works.
    pub(crate) fn location_fields(&self) -> &'static [&'static str] {
        if self.has_workspaces { &[names::DIRECTORY, names::WORKSPACE] } else { &[names::DIRECTORY] }
    }
}

impl PartialEq for AgentSurface {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for AgentSurface {}

/// The schema of a field that names a directory.
pub(crate) fn directory_schema() -> Value {
    json!({"type": "string", "maxLength": 1024})
}
