//! What a client is told: timeouts, limits, the order of transports, and its credential.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_model::TraceContext;
use longshore_wire::surface::ProtocolVersion;
use secrecy::SecretString;

use crate::Result;
use crate::card::Binding;

/// What a caller sends to prove who it is.
#[derive(Clone, Debug)]
pub enum Credential {
    Bearer(SecretString),
    Basic {
        username: String,
        password: SecretString,
    },
    /// Sent in the header that the card names, or else in `X-API-Key`.
    ApiKey(SecretString),
}

/// Decides before each request whether the server may still get it: another program can take over an address.
#[derive(Clone)]
pub struct Guard(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Guard {
    /// `check`: an error refuses the request. If its kind is passing, the request is tried again like one that failed.
    pub fn new(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a call may take, and how long a stream may be silent.
    pub timeout: Duration,
    /// How long reading a card may take.
    pub card_timeout: Duration,
    /// The bindings that may be used. With `prefers_own_order`, the first that the card offers is used; otherwise the order of the
    /// card decides.
    pub bindings: Vec<Binding>,
    pub prefers_own_order: bool,
    /// Only interfaces of this version are used. `None`: of both.
    pub version: Option<ProtocolVersion>,
    /// Asks for a task again and again if the response to a message is an unfinished task. `None`: off.
    pub polling: Option<Polling>,
    pub credential: Option<Credential>,
    pub guard: Option<Guard>,
    /// The certificate that the server must have, in PEM. Then nothing else is asked of it. `None`: the authorities of the system
    /// decide. Not for gRPC.
    pub certificate: Option<String>,
    /// The URIs of extensions to activate. Agents ignore those that they do not know.
    pub extensions: Vec<String>,
    /// The agent treats a message with the id of an earlier one as the same message, so a message may be sent again when the
    /// response was lost. True for Longshore.
    pub resends: bool,
    /// The only addresses that are connected to, whatever the names of URLs resolve to. A name in a URL is not resolved, and no proxy
    /// is used. `None`: the system resolves names. Not for gRPC, so leave it out of `bindings`.
    pub addresses: Option<Vec<SocketAddr>>,
    /// The position in the caller's trace, sent with each request.
    pub trace: Option<TraceContext>,
    pub cache: CardCache,
    pub limits: Limits,
}

impl Settings {
    /// Fails if no request may be sent now.
    pub(crate) fn check_guard(&self) -> Result<()> {
        self.guard.as_ref().map_or(Ok(()), |guard| (guard.0)())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            card_timeout: Duration::from_secs(5),
            bindings: Binding::ALL.to_vec(),
            prefers_own_order: false,
            version: None,
            polling: None,
            credential: None,
            guard: None,
            certificate: None,
            extensions: Vec::new(),
            resends: false,
            addresses: None,
            trace: None,
            cache: CardCache::default(),
            limits: Limits::default(),
        }
    }
}

/// Which cards are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardCache {
    /// How many cards. When there are more, the one that was not used for the longest time is forgotten. 0: none is kept.
    pub capacity: usize,
    /// For how long a card is used without a request. Then the agent is asked whether it has changed. `None`: for ever.
    pub lifetime: Option<Duration>,
}

impl Default for CardCache {
    fn default() -> Self {
        Self { capacity: 256, lifetime: Some(Duration::from_mins(15)) }
    }
}

/// The intervals between two looks at a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Polling {
    pub initial: Duration,
    pub longest: Duration,
    /// At least 1. Each interval is so many times the one before.
    pub factor: f64,
    /// How long to look in all. `None`: until the task settles.
    pub timeout: Option<Duration>,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            longest: Duration::from_secs(2),
            factor: 2.0,
            timeout: Some(Duration::from_secs(10)),
        }
    }
}

/// The largest responses that are read, in bytes. A longer one is an error of its own kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub card: usize,
    pub response: usize,
    /// One event of a stream.
    pub event: usize,
    /// All that one task says, as far as it is kept to continue after a broken connection. Each part, message and artifact counts
    /// for 256 bytes more than it has.
    pub task: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self { card: MIB, response: 64 * MIB, event: 16 * MIB, task: 256 * MIB }
    }
}
