//! What an agent says about itself.

use longshore_model::Choice;

use super::lease::Live;
use crate::connection::{Role, SessionFacts};
use crate::schema::AuthMethod;

/// The facts about an agent: its description of itself at its last start, and the offers in the last opened session.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentFacts {
    /// The agent's own name. If the agent gives none, the name in the configuration.
    pub name: String,
    /// The agent's version. Empty if the agent gives none.
    pub version: String,
    pub capabilities: Capabilities,
    pub auth_methods: Vec<AuthMethod>,
    /// The last opened session. `None`: none has been opened since the gateway started.
    pub session: Option<SessionFacts>,
}

/// The agent's abilities for sessions, and the content that a prompt may hold. Leaves out methods that the agent advertised but
/// turned out to lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a capability of its own")]
pub struct Capabilities {
    pub load: bool,
    pub list: bool,
    pub fork: bool,
    pub close: bool,
    pub delete: bool,
    pub resume: bool,
    pub image: bool,
    pub audio: bool,
    pub embedded_context: bool,
}

impl AgentFacts {
    /// The modes or the models that the agent offers. Empty: it offers none, or has not named them yet.
    pub fn choices(&self, role: Role) -> Vec<Choice> {
        self.session.as_ref().map(|session| session.choices(role)).unwrap_or_default()
    }

    /// Collects the facts. `session`: the last opened session; `None`: the facts in `before` about a session stay.
    pub(super) fn new(name: &str, live: &Live, session: Option<SessionFacts>, before: Option<Self>) -> Self {
        let (about, prompts) = (&live.about, live.about.agent_capabilities.prompt_capabilities);
        let offers = |method| live.connection.offers(method);
        let own = &about.agent_info.name;
        Self {
            name: if own.is_empty() { name.to_owned() } else { own.clone() },
            version: about.agent_info.version.clone(),
            capabilities: Capabilities {
                load: offers("session/load"),
                list: offers("session/list"),
                fork: offers("session/fork"),
                close: offers("session/close"),
                delete: offers("session/delete"),
                resume: offers("session/resume"),
                image: prompts.image,
                audio: prompts.audio,
                embedded_context: prompts.embedded_context,
            },
            auth_methods: about.auth_methods.clone(),
            session: session.or(before.and_then(|before| before.session)),
        }
    }
}
