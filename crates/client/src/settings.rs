//! The settings of a client: timeouts, limits, the order of bindings, and the credential.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longshore_model::TraceContext;
use longshore_wire::surface::ProtocolVersion;
use secrecy::SecretString;

use crate::Result;
use crate::card::Binding;

/// The credential that identifies the caller to the agent.
#[derive(Clone, Debug)]
pub enum Credential {
    Bearer(SecretString),
    Basic {
        username: String,
        password: SecretString,
    },
    /// An API key. It is sent in the header that the card names, or else in `X-API-Key`.
    ApiKey(SecretString),
}

/// A check before each request that the server may still get it. It is needed because another program can take over an address.
#[derive(Clone)]
pub struct Guard(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Guard {
    /// `check`: returns an error to refuse a request. If the error's kind may pass, the request is retried like a failed one.
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
    /// The longest time of a call, and the longest silence of a stream.
    pub timeout: Duration,
    /// The longest time to read a card.
    pub card_timeout: Duration,
    /// The bindings that may be used. If `prefers_own_order` is set, their order here decides which is used; otherwise the order of
    /// the card decides.
    pub bindings: Vec<Binding>,
    pub prefers_own_order: bool,
    /// The only A2A version whose interfaces are used. `None`: both versions are used.
    pub version: Option<ProtocolVersion>,
    /// How to poll a task if the response to a message is an unfinished task. `None`: do not poll.
    pub polling: Option<Polling>,
    pub credential: Option<Credential>,
    pub guard: Option<Guard>,
    /// The only certificate that the server may have, in PEM. Nothing else of the server is checked then. `None`: the certificate
    /// authorities of the system decide. Not supported for gRPC.
    pub certificate: Option<String>,
    /// The URIs of the extensions to activate. Agents ignore unknown ones.
    pub extensions: Vec<String>,
    /// Whether the agent treats a message with a known id as the same message, as Longshore does. If so, a message whose response
    /// was lost may be sent again.
    pub resends: bool,
    /// The only addresses to connect to. If they are set, host names in URLs are not resolved and no proxy is used. `None`: the
    /// system resolves host names. Not supported for gRPC, so leave gRPC out of `bindings`.
    pub addresses: Option<Vec<SocketAddr>>,
    /// The trace context that is sent with each request.
    pub trace: Option<TraceContext>,
    pub cache: CardCache,
    pub limits: Limits,
}

impl Settings {
    /// Fails if the guard refuses a request now.
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

/// The limits of the cache for cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardCache {
    /// The most cards. When the cache is full, it drops the least recently used card. 0: caches nothing.
    pub capacity: usize,
    /// How long a card is used without a request. After that, the agent is asked whether the card has changed. `None`: for ever.
    pub lifetime: Option<Duration>,
}

impl Default for CardCache {
    fn default() -> Self {
        Self { capacity: 256, lifetime: Some(Duration::from_mins(15)) }
    }
}

/// The schedule of polling a task.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Polling {
    pub initial: Duration,
    pub longest: Duration,
    /// The factor by which each interval is longer than the one before. At least 1.
    pub factor: f64,
    /// How long to poll in all. `None`: until the task settles.
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

/// The most bytes that are read of a response. More makes an error of kind [`crate::ErrorKind::TooLarge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub card: usize,
    pub response: usize,
    /// The most bytes of one event of a stream.
    pub event: usize,
    /// The most bytes of a task that are kept in memory to continue its stream after a broken connection. Each part, message and
    /// artifact counts as 256 bytes more than its content.
    pub task: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self { card: MIB, response: 64 * MIB, event: 16 * MIB, task: 256 * MIB }
    }
}
