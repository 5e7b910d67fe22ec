//! Limits the calls that run at the same time, and pauses hosts that fail.
//!
//! Each owner has its own state for a host, so a receiver that hangs does not delay another owner's receiver on the same host.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use longshore_engine::port::LeasedPush;
use longshore_model::Principal;
use tokio::time::Instant;
use url::Url;

use crate::in_flight::Registration;
use crate::policy::{self, DeliveryRules, Health};

/// After this many failures in a row, the circuit of a host opens: the host gets a pause. After the pause, one call tests the host.
const CIRCUIT_FAILURES: u32 = 5;

/// The most leases that wait for a busy host are this number times `calls_per_host`. Further ones are given back to the queue.
const WAITING_PER_CALL: usize = 16;

/// The most leases that wait for all hosts and owners together are this number times `calls`. Further ones are given back to the
/// queue, so that the leases of hosts that hang do not fill the memory.
const ALL_WAITING_PER_CALL: usize = 4;

/// The most hosts that are remembered. With more, the hosts without a call or waiting lease are forgotten, with their failures.
const MAX_IDLE_HOSTS: usize = 4096;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Destination {
    pub(crate) owner: Principal,
    /// The scheme, host and port of the URL.
    pub(crate) host: String,
}

impl Destination {
    pub(crate) fn of(leased: &LeasedPush) -> Self {
        Self { owner: leased.owner.clone(), host: host_of(&leased.config.url) }
    }
}

/// The scheme, host and port of a URL, for log lines. It leaves out the user and everything after the port, which may be secret.
pub(crate) fn host_of(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return "invalid".to_owned() };
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Start the call now. When it ends, call [`Hosts::end`].
    Run,
    /// The host is busy. Keep the lease, and ask again when a call to this destination has ended.
    Wait,
    /// The owner uses its whole share of the calls. Keep the lease, and ask again when a call of the owner has ended.
    WaitForOwner,
    /// The host has a pause. Give the lease back for this time.
    Later(Duration),
    /// Too many calls run, or too many leases wait. Give the lease back.
    NoRoom,
}

/// A lease that waits for a call of its host or its owner to end, and the start of the wait.
pub(crate) type Waiting = (Registration, LeasedPush, Instant);

#[derive(Debug, Default)]
struct Host {
    running: usize,
    waiting: VecDeque<Waiting>,
    /// The number of failed calls in a row.
    failures: u32,
    /// The end of the pause. `None`: the host has no pause.
    pause_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct OfOwner {
    running: usize,
    /// Leases that wait for any call of the owner to end. They wait here because a call usually takes milliseconds, and a lease
    /// that is given back to the queue waits for a second or more.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
pub(crate) struct Hosts {
    calls: usize,
    calls_per_host: usize,
    by_destination: HashMap<Destination, Host>,
    of_owner: HashMap<Principal, OfOwner>,
    running: usize,
    waiting: usize,
    /// The number of running calls to hosts whose last call failed.
    suspects: usize,
}

/// A running call.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) destination: Destination,
    is_suspect: bool,
}

impl Hosts {
    pub(crate) fn new(rules: &DeliveryRules) -> Self {
        Self {
            calls: rules.calls.max(1),
            calls_per_host: rules.calls_per_host.max(1),
            by_destination: HashMap::new(),
            of_owner: HashMap::new(),
            running: 0,
            waiting: 0,
            suspects: 0,
        }
    }

    /// How many leases may be taken from the queue: the number of calls that could start now.
    pub(crate) fn room(&self) -> usize {
        self.calls.saturating_sub(self.running)
    }

    pub(crate) fn admit(&self, destination: &Destination, now: Instant) -> Admission {
        let half = self.calls.div_ceil(2);
        let none = Host::default();
        let host = self.by_destination.get(destination).unwrap_or(&none);
        if let Some(pause) = host.pause_until.and_then(|until| until.checked_duration_since(now))
            && !pause.is_zero()
        {
            return Admission::Later(pause);
        }
        if host.failures >= CIRCUIT_FAILURES && host.running > 0 {
            // The circuit is open, and one call already tests the host.
            return Admission::NoRoom;
        }
        if host.running >= self.calls_per_host {
            let is_full = host.waiting.len() >= self.calls_per_host.saturating_mul(WAITING_PER_CALL)
                || self.waiting >= self.calls.saturating_mul(ALL_WAITING_PER_CALL);
            return if is_full { Admission::NoRoom } else { Admission::Wait };
        }
        let is_suspect = host.failures > 0;
        if self.running >= self.calls || is_suspect && self.suspects >= half {
            return Admission::NoRoom;
        }
        let Some(of_owner) = self.of_owner.get(&destination.owner).filter(|of| of.running >= half) else {
            return Admission::Run;
        };
        let is_full = of_owner.waiting.len() >= half.saturating_mul(ALL_WAITING_PER_CALL)
            || self.waiting >= self.calls.saturating_mul(ALL_WAITING_PER_CALL);
        if is_suspect || is_full { Admission::NoRoom } else { Admission::WaitForOwner }
    }

    pub(crate) fn wait(&mut self, destination: Destination, leased: Waiting) {
        self.waiting += 1;
        self.by_destination.entry(destination).or_default().waiting.push_back(leased);
    }

    pub(crate) fn wait_for_owner(&mut self, owner: Principal, leased: Waiting) {
        self.waiting += 1;
        self.of_owner.entry(owner).or_default().waiting.push_back(leased);
    }

    /// The next lease that waits for a call of the owner, if the owner may start a call now. The caller must admit it again.
    pub(crate) fn next_of(&mut self, owner: &Principal) -> Option<Waiting> {
        let half = self.calls.div_ceil(2);
        let of_owner = self.of_owner.get_mut(owner)?;
        if of_owner.running >= half || self.running >= self.calls {
            return None;
        }
        let next = of_owner.waiting.pop_front();
        self.waiting -= usize::from(next.is_some());
        if of_owner.running == 0 && of_owner.waiting.is_empty() {
            self.of_owner.remove(owner);
        }
        next
    }

    /// Starts a call after [`Admission::Run`].
    pub(crate) fn begin(&mut self, destination: Destination) -> Slot {
        let host = self.by_destination.entry(destination.clone()).or_default();
        host.running += 1;
        let is_suspect = host.failures > 0;
        self.running += 1;
        self.suspects += usize::from(is_suspect);
        self.of_owner.entry(destination.owner.clone()).or_default().running += 1;
        Slot { destination, is_suspect }
    }

    /// Ends a call, and returns the leases that waited for it. The caller must admit them again, and then those of
    /// [`Self::next_of`].
    pub(crate) fn end(&mut self, slot: Slot, health: Health, now: Instant) -> VecDeque<Waiting> {
        let Slot { destination, is_suspect } = slot;
        self.running -= 1;
        self.suspects -= usize::from(is_suspect);
        if let Some(of_owner) = self.of_owner.get_mut(&destination.owner) {
            of_owner.running -= 1;
            if of_owner.running == 0 && of_owner.waiting.is_empty() {
                self.of_owner.remove(&destination.owner);
            }
        }
        let Some(host) = self.by_destination.get_mut(&destination) else { return VecDeque::new() };
        host.running -= 1;
        match health {
            Health::Well => (host.failures, host.pause_until) = (0, None),
            Health::Failing => {
                host.failures = host.failures.saturating_add(1);
                if host.failures >= CIRCUIT_FAILURES {
                    host.pause_until = Some(now + policy::pause(host.failures - CIRCUIT_FAILURES + 1));
                }
            }
            Health::Unknown => {}
        }
        let waiting = std::mem::take(&mut host.waiting);
        self.waiting -= waiting.len();
        if host.running == 0 && host.failures == 0 {
            self.by_destination.remove(&destination);
        } else if self.by_destination.len() > MAX_IDLE_HOSTS {
            self.by_destination.retain(|_, host| host.running > 0 || !host.waiting.is_empty());
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(owner: &str, host: &str) -> Destination {
        Destination { owner: Principal::new(owner), host: host.to_owned() }
    }

    fn hosts(calls: usize, calls_per_host: usize) -> Hosts {
        Hosts::new(&DeliveryRules { calls, calls_per_host, ..DeliveryRules::default() })
    }

    #[test]
    fn a_host_is_named_without_path_query_and_user() {
        for (url, expected) in [
            (
                "https://user:secret@hooks.example.com:8443/secret?key=secret#secret",
                "https://hooks.example.com:8443",
            ),
            ("https://hooks.example.com/secret", "https://hooks.example.com"),
            ("secret", "invalid"),
        ] {
            assert_eq!(host_of(url), expected);
        }
    }

    #[test]
    fn calls_are_limited_per_host_and_owner_and_in_all() {
        let (mut hosts, now) = (hosts(4, 1), Instant::now());
        let _first = hosts.begin(to("ada", "a"));
        assert_eq!(hosts.admit(&to("ada", "a"), now), Admission::Wait);
        assert_eq!(hosts.admit(&to("bob", "a"), now), Admission::Run);
        let second = hosts.begin(to("ada", "b"));
        // Ada already has half of all calls, which is an owner's share.
        assert_eq!(hosts.admit(&to("ada", "c"), now), Admission::WaitForOwner);
        let _third = (hosts.begin(to("bob", "a")), hosts.begin(to("bob", "b")));
        assert_eq!((hosts.room(), hosts.admit(&to("eve", "a"), now)), (0, Admission::NoRoom));
        hosts.end(second, Health::Well, now);
        assert_eq!((hosts.room(), hosts.admit(&to("eve", "a"), now)), (1, Admission::Run));
    }

    #[test]
    fn a_host_that_fails_gets_pauses_and_then_one_call() {
        let (mut hosts, now) = (hosts(10, 5), Instant::now());
        for _ in 0..CIRCUIT_FAILURES {
            assert_eq!(hosts.admit(&to("ada", "a"), now), Admission::Run);
            let slot = hosts.begin(to("ada", "a"));
            hosts.end(slot, Health::Failing, now);
        }
        let Admission::Later(pause) = hosts.admit(&to("ada", "a"), now) else { panic!("no pause") };
        assert!(pause <= Duration::from_secs(1) && pause >= Duration::from_millis(500), "{pause:?}");
        assert_eq!(hosts.admit(&to("bob", "a"), now), Admission::Run);
        let after = now + pause;
        assert_eq!(hosts.admit(&to("ada", "a"), after), Admission::Run);
        let slot = hosts.begin(to("ada", "a"));
        assert_eq!(hosts.admit(&to("ada", "a"), after), Admission::NoRoom);
        hosts.end(slot, Health::Failing, after);
        let Admission::Later(longer) = hosts.admit(&to("ada", "a"), after) else { panic!("no pause") };
        assert!(longer >= Duration::from_secs(1), "{longer:?}");
        let slot = hosts.begin(to("ada", "a"));
        hosts.end(slot, Health::Well, after + longer);
        assert_eq!(hosts.admit(&to("ada", "a"), after + longer), Admission::Run);
        assert!(hosts.by_destination.is_empty());
    }

    #[test]
    fn hosts_that_fail_get_at_most_half_of_the_calls() {
        let (mut hosts, now) = (hosts(4, 1), Instant::now());
        for host in ["a", "b", "c"] {
            let slot = hosts.begin(to(host, host));
            hosts.end(slot, Health::Failing, now);
        }
        let _running = (hosts.begin(to("a", "a")), hosts.begin(to("b", "b")));
        assert_eq!(hosts.admit(&to("c", "c"), now), Admission::NoRoom);
        assert_eq!(hosts.admit(&to("d", "d"), now), Admission::Run);
    }
}
