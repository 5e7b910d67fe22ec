//! The rights of a credential beyond ordinary use of the agent.

use longshore_model::card::AuthScheme;
use longshore_wire::extension::Exposure;

pub use longshore_model::{Capabilities, Capability};

/// The rights that a credential grants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    pub capabilities: Capabilities,
    /// How much of the agent's reasoning the caller sees. `None`: as the gateway is configured.
    pub exposure: Option<Exposure>,
    /// Distinguishes several credentials of one principal in the rate limit and in the audit log. `None`: they are not
    /// distinguished.
    pub credential_id: Option<String>,
}

impl Rights {
    /// The default rights of a credential of this scheme.
    pub fn default_for_scheme(scheme: AuthScheme) -> Self {
        Self { capabilities: Capabilities::default_for_scheme(scheme), ..Self::default() }
    }

    /// The rights of the only credential of a gateway that has one user.
    pub fn of_owner() -> Self {
        Self { capabilities: Capabilities::all(), ..Self::default() }
    }
}
