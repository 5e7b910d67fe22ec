//! What callers may take of the gateway, as the configuration says it.

mod gcra;
mod pace;
mod slots;
mod turnstile;

use std::time::Duration;

pub(crate) use pace::Pace;
pub(crate) use slots::{OpenedFor, Slot, Slots};
pub(crate) use turnstile::Turnstile;

/// The bounds of what callers may ask for, and who may ask at all. What is beyond is refused, never cut in silence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Requests of one credential, or of one principal whose credential has no name. `None`: no limit.
    pub rate: Option<Rate>,
    /// Wrong credentials from one address. `None`: no limit.
    pub failed_logins: Option<Rate>,
    /// Event streams that are open at once. 0: no limit.
    pub streams: usize,
    /// Of one principal. 0: no limit.
    pub streams_per_principal: usize,
    /// What one stream may send. 0: no limit.
    pub stream_bytes: u64,
    /// How long one stream may be open. `None`: no limit.
    pub stream_duration: Option<Duration>,
    /// How long one stream may be without an event while nothing excuses it. `None`: no limit.
    pub stream_idle: Option<Duration>,
    /// More connections wait in the kernel's queue until one of these is closed.
    pub connections: usize,
    /// Web sites whose pages may call, beside the gateway's own: `https://example.com`, or `null`.
    pub allowed_origins: Vec<String>,
    /// The names by which the gateway may be called: `example.com`, `example.com:8000`, `*.example.com`. Empty: any.
    pub allowed_hosts: Vec<String>,
}

/// So many in so long a time. They may come all at once; then the next comes when its share of the time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub requests: u32,
    pub window: Duration,
}

impl Limits {
    /// The rate of a gateway that others can reach, unless it is configured.
    pub const RATE: Rate = Rate { requests: 120, window: Duration::from_mins(1) };
    /// The same for wrong credentials.
    pub const FAILED_LOGINS: Rate = Rate { requests: 20, window: Duration::from_mins(1) };
}

/// As for a gateway that only its own machine can reach: without rates.
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
