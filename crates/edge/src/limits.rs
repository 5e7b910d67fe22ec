//! The configured limits for callers.

mod bodies;
mod connections;
mod fair_throttle;
mod gcra;
mod rate_limiter;
mod slots;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

pub(crate) use bodies::{Bodies, HeldBody};
#[cfg(test)]
pub(crate) use connections::tests::open_request;
pub(crate) use connections::{Connection, OpenRequest, Places};
pub(crate) use fair_throttle::FairThrottle;
pub(crate) use rate_limiter::RateLimiter;
pub(crate) use slots::{OpenedFor, Slot, Slots};

use gcra::Gcra;

/// The limits for callers, and the origins and hosts that may call. A request beyond a limit is refused, never silently cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The rate of requests of one named credential, or of all unnamed credentials of one principal together. `None`: no limit.
    pub rate: Option<Rate>,
    /// The rate of wrong credentials from one address. `None`: no limit.
    pub failed_logins: Option<Rate>,
    /// How many event streams may be open at the same time. 0: no limit.
    pub streams: usize,
    /// How many event streams of one principal may be open. 0: no limit.
    pub streams_per_principal: usize,
    /// How many bytes one stream may send. 0: no limit.
    pub stream_bytes: u64,
    /// How long one stream may be open. `None`: no limit.
    pub stream_duration: Option<Duration>,
    /// How long one stream may be without an event, unless a long silence of its task is expected. `None`: no limit.
    pub stream_idle: Option<Duration>,
    /// How many connections may be open. At the limit, each new connection displaces the oldest connection that has no open request
    /// of an authenticated caller.
    pub connections: usize,
    /// How many connections of one address may be open. Further ones are closed at once. Loopback addresses are not limited. 0: no
    /// limit.
    pub connections_per_address: usize,
    /// How many requests, including streams, may be open on one WebSocket or on the standard input. 0: no limit.
    pub requests_per_connection: usize,
    /// How many bytes of incompletely received request bodies all connections may hold together. 0: no limit.
    pub body_bytes: usize,
    /// Origins whose pages may send requests, besides the gateway's own origin: `https://example.com`, or `null`.
    pub allowed_origins: Vec<String>,
    /// Host names that requests may use: `example.com`, `example.com:8000`, `*.example.com`. Empty: any.
    pub allowed_hosts: Vec<String>,
}

/// A number of requests per time window. A caller may send all of them at once. After that, one more request is allowed each time
/// `window / requests` has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub requests: u32,
    pub window: Duration,
}

impl Limits {
    /// The default request rate of a gateway that other machines can reach.
    pub const RATE: Rate = Rate { requests: 120, window: Duration::from_mins(1) };
    /// The default rate of wrong credentials of a gateway that other machines can reach.
    pub const FAILED_LOGINS: Rate = Rate { requests: 20, window: Duration::from_mins(1) };
}

/// The default limits of a gateway that only its own machine can reach: no rate limits.
impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            failed_logins: None,
            streams: 4096,
            streams_per_principal: 1024,
            stream_bytes: 64 * 1024 * 1024,
            stream_duration: Some(Duration::from_hours(1)),
            stream_idle: Some(Duration::from_mins(10)),
            connections: 8192,
            connections_per_address: 2048,
            requests_per_connection: 128,
            body_bytes: 256 * 1024 * 1024,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
        }
    }
}

/// An IPv4 address or a /64 IPv6 network, because a client that has one address of such a network can have all of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Network(IpAddr);

impl Network {
    fn containing(peer: IpAddr) -> Self {
        Self(match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        })
    }
}

/// Limits a log line to one per minute.
#[derive(Debug)]
pub(crate) struct OncePerMinute(Option<Gcra<()>>);

impl OncePerMinute {
    pub(crate) fn is_due(&self) -> bool {
        self.0.as_ref().is_some_and(|lines| lines.take(()).is_ok())
    }
}

impl Default for OncePerMinute {
    fn default() -> Self {
        Self(Gcra::new(Rate { requests: 1, window: Duration::from_mins(1) }))
    }
}
