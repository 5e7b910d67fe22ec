//! Settings: which agents may be called, and how much a call may use.

use std::sync::Arc;
use std::time::Duration;

use longshore_client::{Limits, Settings};
use longshore_outbound::{Guard, Resolver};

use crate::hops::HopRules;

#[derive(Clone, Debug)]
pub struct PeersConfig {
    pub peers: Vec<Peer>,
    /// The rules for URLs that a model names. `None`: only the configured peers can be called, by their names.
    pub urls: Option<UrlRules>,
    /// The most calls of one task that run at the same time.
    pub at_once: usize,
    /// The most calls of one task over its whole life.
    pub per_task: usize,
    pub in_all: InAll,
    pub hops: HopRules,
}

/// Limits over the calls of all tasks together. The responses of each call may take the memory of [`CLIENT_LIMITS`].
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
    /// Tells models what the agent is for. `None`: the description in the agent's card is used.
    pub description: Option<String>,
    /// The URL of the agent or of its card.
    pub url: String,
    /// Bindings, version, credential and timeouts.
    pub settings: Settings,
    pub limits: CallLimits,
    /// Whether the model may answer questions of the agent. Permission requests always go to the user.
    pub model_answers: bool,
}

/// Limits for one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallLimits {
    /// The longest time of a call, waits for answers included. Then the gateway cancels the call.
    pub duration: Duration,
    /// How many bytes of text and artifacts a model gets of the result. The rest is left out.
    pub result_bytes: usize,
    /// How many asks the agent may send. With one more, the gateway cancels the call.
    pub asks: u32,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { duration: Duration::from_hours(1), result_bytes: 128 * 1024, asks: 10 }
    }
}

/// The rules for agents that a model names by a URL.
#[derive(Clone, Debug)]
pub struct UrlRules {
    pub guard: Guard,
    pub resolver: Arc<dyn Resolver>,
    /// The settings hold no credential.
    pub settings: Settings,
    pub limits: CallLimits,
}

/// The bounds of a peer's responses. They are much larger than the result that a model gets, because the gateway must also
/// read the parts that it leaves out.
pub const CLIENT_LIMITS: Limits =
    Limits { card: 1024 * 1024, response: 16 * 1024 * 1024, event: 8 * 1024 * 1024, task: 32 * 1024 * 1024 };
