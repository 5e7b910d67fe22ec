//! The gateways that a message came through, when agents call agents.

use serde::{Deserialize, Serialize};

/// The longest chain that is read. Longer ones are refused before anybody looks at them.
pub const MAX_HOPS: usize = 32;

/// A chain of gateways, the first caller first.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hops(pub Vec<Hop>);

/// A gateway whose agent called the next one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Hop {
    /// The id that the gateway made for itself.
    pub gateway: String,
    /// Lets the gateway recognize its own entry, and a chain before it that was changed. Says nothing to others.
    pub signature: String,
}

impl Hops {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn gateways(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|hop| hop.gateway.as_str())
    }

    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(|hop| hop.gateway.len() + hop.signature.len()).sum()
    }
}
