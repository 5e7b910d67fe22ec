//! What an agent says about itself.

use super::lease::Live;
use crate::connection::SessionFacts;
use crate::schema::{self, AuthMethod, Command, ConfigOption, Models, Modes};

/// What an agent said when it was started, and what it offered in the session that was opened last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentFacts {
    /// The agent's own name, or that of the configuration if it gives none.
    pub name: String,
    /// Empty if the agent gives none.
    pub version: String,
    pub capabilities: Capabilities,
    pub auth_methods: Vec<AuthMethod>,
    pub modes: Option<Modes>,
    pub models: Option<Models>,
    pub config_options: Vec<ConfigOption>,
    pub commands: Vec<Command>,
}

/// What the agent can do with sessions, and what a prompt may hold. Without the methods that it advertised and was found to lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a capability of its own")]
pub struct Capabilities {
    pub load: bool,
    pub list: bool,
    pub fork: bool,
    pub close: bool,
    pub resume: bool,
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

impl AgentFacts {
    /// The ids of the models that the agent offers. Empty: it offers none, or did not say yet.
    pub fn model_ids(&self) -> Vec<&str> {
        schema::model_ids(self.models.as_ref(), &self.config_options)
    }

    /// `session`: what the agent offers in the session that was opened last. `None`: what was known before stays.
    pub(super) fn new(name: &str, live: &Live, session: Option<SessionFacts>, before: Option<Self>) -> Self {
        let (about, prompts) = (&live.about, live.about.agent_capabilities.prompt_capabilities);
        let offers = |method| live.connection.offers(method);
        let own = &about.agent_info.name;
        let mut facts = Self {
            name: if own.is_empty() { name.to_owned() } else { own.clone() },
            version: about.agent_info.version.clone(),
            capabilities: Capabilities {
                load: offers("session/load"),
                list: offers("session/list"),
                fork: offers("session/fork"),
                close: offers("session/close"),
                resume: offers("session/resume"),
                image: prompts.image,
                audio: prompts.audio,
                embedded_context: prompts.embedded_context,
            },
            auth_methods: about.auth_methods.clone(),
            modes: None,
            models: None,
            config_options: Vec::new(),
            commands: Vec::new(),
        };
        if let Some(now) = session {
            facts.modes = now.modes;
            facts.models = now.models;
            facts.config_options = now.config_options;
            facts.commands = now.commands;
        } else if let Some(before) = before {
            facts.modes = before.modes;
            facts.models = before.models;
            facts.config_options = before.config_options;
            facts.commands = before.commands;
        }
        facts
    }
}
