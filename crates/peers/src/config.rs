//! Which agents may be called, and how much a call may use.

use std::sync::Arc;
use std::time::Duration;

use longshore_client::{Limits, Settings};
use longshore_outbound::{Guard, Resolver};

use crate::hops::HopRules;

#[derive(Clone, Debug)]
pub struct PeersConfig {
    pub peers: Vec<Peer>,
    /// `None`: only the peers can be called, by their names.
    pub urls: Option<UrlRules>,
    /// The most calls of one task that may run at the same time.
    pub at_once: usize,
    /// The most calls of one task in all.
    pub per_task: usize,
    pub in_all: InAll,
    pub hops: HopRules,
}

/// The calls of all tasks. The responses of each may take the memory of [`CLIENT_LIMITS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InAll {
    /// The most that run at the same time, and twice as many as those of one principal. Further ones wait. A call of an earlier run
    /// of the gateway, whose message was sent, goes on without waiting.
    pub at_once: usize,
    /// How long a new call waits. Then it fails, and nothing was sent.
    pub wait: Duration,
}

impl Default for InAll {
    fn default() -> Self {
        Self { at_once: 64, wait: Duration::from_mins(5) }
    }
}

/// An agent that may be called by its name.
#[derive(Clone, Debug)]
pub struct Peer {
    pub name: String,
    /// Tells models what the agent is for. `None`: its card does.
    pub description: Option<String>,
    /// The URL of the agent, or of its card.
    pub url: String,
    /// Bindings, version, credential and timeouts.
    pub settings: Settings,
    pub limits: CallLimits,
    /// The model may answer the questions of the agent. Permissions are always for the user.
    pub model_answers: bool,
}

/// How much one call may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// How long the call may take, with all waits for answers. Then it is canceled.
    pub duration: Duration,
    /// How many bytes of text and artifacts a model gets. The rest is left out.
    pub result_bytes: usize,
    /// How often the agent may ask. Then the call is canceled.
    pub asks: u32,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { duration: Duration::from_hours(1), result_bytes: 128 * 1024, asks: 10 }
    }
}

/// What applies to a URL that a model names.
#[derive(Clone, Debug)]
pub struct UrlRules {
    pub guard: Guard,
    pub resolver: Arc<dyn Resolver>,
    /// Without a credential.
    pub settings: Settings,
    pub limits: CallLimits,
}

/// How much of a peer's responses is read. Much more than a model gets, because a peer also sends what is left out.
pub const CLIENT_LIMITS: Limits =
    Limits { card: 1024 * 1024, response: 16 * 1024 * 1024, event: 8 * 1024 * 1024, task: 32 * 1024 * 1024 };
