//! What a credential opens beside the plain use of the agent.

use longshore_model::card::AuthScheme;
use longshore_wire::extension::Exposure;

pub use longshore_model::{Capabilities, Capability};

/// What comes with a credential beside its principal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    pub capabilities: Capabilities,
    /// How much of the agent's thinking is shown. `None`: as the gateway is configured.
    pub exposure: Option<Exposure>,
    /// Tells the credentials of one principal apart, for whoever keeps the list of them.
    pub credential_id: Option<String>,
}

impl Rights {
    /// What a credential has of which nothing is said.
    pub fn of_scheme(scheme: AuthScheme) -> Self {
        Self { capabilities: Capabilities::of_scheme(scheme), ..Self::default() }
    }

    /// What the one credential of a gateway has that is not shared with others.
    pub fn of_owner() -> Self {
        Self { capabilities: Capabilities::all(), ..Self::default() }
    }
}
