//! What an agent says about itself.

use crate::schema::{AuthMethod, Command, ConfigOption, Models, Modes};

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
