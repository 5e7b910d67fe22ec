//! The limits for callers, as configured.

mod fair_throttle;
mod gcra;
mod rate_limiter;
mod slots;

use std::time::Duration;

pub(crate) use fair_throttle::FairThrottle;
pub(crate) use rate_limiter::RateLimiter;
pub(crate) use slots::{OpenedFor, Slot, Slots};

/// The limits for callers, and who may call at all. A request beyond a limit is refused, never cut silently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests of one named credential, or of all unnamed credentials of one principal. `None`: no limit.
    pub rate: Option<Rate>,
    /// Wrong credentials from one address. `None`: no limit.
    pub failed_logins: Option<Rate>,
    /// Event streams that are open at the same time. 0: no limit.
    pub streams: usize,
    /// Open event streams of one principal. 0: no limit.
    pub streams_per_principal: usize,
    /// Bytes that one stream may send. 0: no limit.
    pub stream_bytes: u64,
    /// How long one stream may be open. `None`: no limit.
    pub stream_duration: Option<Duration>,
    /// How long one stream may be without an event while nothing excuses the silence. `None`: no limit.
    pub stream_idle: Option<Duration>,
    /// Open connections. Further connections wait in the kernel's queue until one of these is closed.
    pub connections: usize,
    /// Web sites whose pages may call, besides the gateway's own: `https://example.com`, or `null`.
    pub allowed_origins: Vec<String>,
    /// Host names by which the gateway may be called: `example.com`, `example.com:8000`, `*.example.com`. Empty: any.
    pub allowed_hosts: Vec<String>,
}

/// A number of requests per time window. All of them may come at once; then one more is allowed each time its share has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub requests: u32,
    pub window: Duration,
}

impl Limits {
    /// The default rate of a gateway that other machines can reach.
    pub const RATE: Rate = Rate { requests: 120, window: Duration::from_mins(1) };
    /// The same for wrong credentials.
    pub const FAILED_LOGINS: Rate = Rate { requests: 20, window: Duration::from_mins(1) };
}

/// The defaults of a gateway that only its own machine can reach: without rates.
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
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
        }
    }
}
