//! The chain of gateways behind a message, when agents call agents.

use serde::{Deserialize, Serialize};

/// The longest chain that is parsed. A longer chain is refused before it is evaluated.
pub const MAX_HOPS: usize = 32;

/// A chain of gateways. The first entry is the first caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hops(pub Vec<Hop>);

/// One entry of the chain: a gateway whose agent called the next gateway.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Hop {
    /// The id that the gateway generated for itself.
    pub gateway: String,
    /// Lets the gateway recognize its own entry, and notice if the chain before that entry was changed. Has no meaning for others.
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
