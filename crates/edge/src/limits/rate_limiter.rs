//! Limits how often a caller may send requests, and how often an address may present wrong credentials.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, Principal, Result};
use tokio::sync::Semaphore;

use super::gcra::Gcra;
use super::{Limits, Network, Rate};
use crate::auth::Caller;

/// The rate of warnings about locked addresses. A client with many addresses can get many of them locked, and must not fill the
/// log.
const LOCK_WARNINGS: Rate = Rate { requests: 1, window: Duration::from_secs(10) };

/// The mean delay of the response to a refused request; each delay is up to a half shorter or longer. A client that retries at once
/// then waits on each of its connections and takes no processor time from others. `Retry-After` asks for at least one second.
const DELAY: Duration = Duration::from_millis(100);

/// Added to `spread` with each refusal, modulo 2^32. The step is derived from the golden ratio, so that any number of consecutive
/// delays is spread evenly.
const SPREAD_STEP: u32 = 0x9E37_79B9;

/// How many refusals may be delayed at the same time. Further refusals are answered at once, because each delayed one costs memory.
const MAX_DELAYED: usize = 1024;

/// Counts requests and failed logins, and delays refusals.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    requests: Option<RateCounter<RateKey>>,
    logins: Option<RateCounter<Network>>,
    /// Limits the log lines about locked addresses.
    lock_warnings: Option<Gcra<()>>,
    delay_slots: Semaphore,
    /// The delay of the next refusal, as a fraction of 2^32.
    spread: AtomicU32,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct RateCounter<K> {
    rate: Rate,
    gcra: Gcra<K>,
}

/// The key under which requests are counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RateKey {
    /// A named credential. Two named credentials of one principal are counted separately.
    Credential(Principal, Box<str>),
    Principal(Principal),
    /// The network of a caller without a credential.
    Network(Network),
}

impl RateLimiter {
    pub(crate) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            requests: limits.rate.and_then(rate_counter),
            logins: limits.failed_logins.and_then(rate_counter),
            lock_warnings: Gcra::new(LOCK_WARNINGS),
            delay_slots: Semaphore::new(MAX_DELAYED),
            spread: AtomicU32::new(0),
            metrics,
        }
    }

    /// Counts a request. `caller`: `None` if the path needs no credential and the request has none.
    pub(crate) fn admit(&self, caller: Option<&Caller>, peer: IpAddr) -> Result<()> {
        let Some(RateCounter { rate, gcra }) = &self.requests else { return Ok(()) };
        gcra.take(rate_key(caller, peer)).map_err(|wait| {
            self.metrics.rate_limit_rejected.increment();
            self.metrics.refused.of(Limit::RateRequests).increment();
            let text = format!("Too many requests: {}. Send this one again later.", in_words(*rate));
            refusal(text, "rate_requests", *rate).after(wait)
        })
    }

    /// Delays the response to a request that exceeded its rate. Requests that were refused at the same moment are answered at
    /// different times. Otherwise their clients would retry together, and the whole allowance of the rate would be used at one
    /// moment.
    pub(crate) async fn delay(&self, refusal: &Error) {
        if refusal.kind() != ErrorKind::TooManyRequests {
            return;
        }
        if let Ok(_slot) = self.delay_slots.try_acquire() {
            let part = f64::from(self.spread.fetch_add(SPREAD_STEP, Ordering::Relaxed)) / f64::from(u32::MAX);
            tokio::time::sleep(DELAY / 2 + DELAY.mul_f64(part)).await;
        }
    }

    /// Fails while the address is locked, before a credential is checked. A valid credential is refused too, because otherwise the
    /// response would reveal that it is valid.
    pub(crate) fn check_login(&self, peer: IpAddr) -> Result<()> {
        let Some(RateCounter { rate, gcra }) = self.login_counter(peer) else { return Ok(()) };
        gcra.check(&Network::containing(peer)).map_err(|wait| {
            self.metrics.refused.of(Limit::FailedLogins).increment();
            let text = "Too many wrong credentials came from your address. Check yours, and try again later.";
            refusal(text.to_owned(), "failed_logins", *rate).after(wait)
        })
    }

    /// Counts a wrong credential. A valid one does not reset the count, because otherwise a client that has a valid credential
    /// could guess others without limit.
    pub(crate) fn record_failed_login(&self, peer: IpAddr) {
        self.metrics.failed_logins.increment();
        let Some(RateCounter { rate, gcra }) = self.login_counter(peer) else { return };
        let network = Network::containing(peer);
        // While the address is locked, further attempts are not counted.
        let becomes_locked = gcra.take(network).is_ok() && gcra.check(&network).is_err();
        if becomes_locked
            && self.lock_warnings.as_ref().is_some_and(|lock_warnings| lock_warnings.take(()).is_ok())
        {
            tracing::warn!(
                address = %network.0,
                failed_logins = rate.requests,
                "an address is locked: it sent too many wrong credentials, so right ones are refused as well; if it is the \
                 address of a proxy, set limits.failed_logins to 0"
            );
        }
    }

    /// The counter for the address. `None` for a loopback address: it may be a proxy for all other clients, and locking it would
    /// lock out everybody.
    fn login_counter(&self, peer: IpAddr) -> Option<&RateCounter<Network>> {
        self.logins.as_ref().filter(|_| !peer.is_loopback())
    }
}

fn rate_counter<K: Eq + std::hash::Hash>(rate: Rate) -> Option<RateCounter<K>> {
    Gcra::new(rate).map(|gcra| RateCounter { rate, gcra })
}

fn rate_key(caller: Option<&Caller>, peer: IpAddr) -> RateKey {
    match caller {
        None => RateKey::Network(Network::containing(peer)),
        Some(Caller { principal, rights }) => match &rights.credential_id {
            Some(name) => RateKey::Credential(principal.clone(), name.as_str().into()),
            None => RateKey::Principal(principal.clone()),
        },
    }
}

fn refusal(text: String, limit: &str, rate: Rate) -> Error {
    Error::new(ErrorKind::TooManyRequests, text)
        .detail("limit", limit)
        .detail("max", rate.requests.to_string())
}

fn in_words(rate: Rate) -> String {
    format!("{} in {} seconds are allowed", rate.requests, rate.window.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::auth::Rights;
    use crate::log_lines::LogLines;

    const MINUTE: Duration = Duration::from_mins(1);

    fn limiter(requests: u32, failed_logins: u32) -> RateLimiter {
        let rate = |requests| Some(Rate { requests, window: MINUTE });
        let limits = Limits { rate: rate(requests), failed_logins: rate(failed_logins), ..Limits::default() };
        RateLimiter::new(&limits, Arc::default())
    }

    fn caller(principal: &str, credential: Option<&str>) -> Caller {
        let rights = Rights { credential_id: credential.map(str::to_owned), ..Rights::default() };
        Caller { principal: Principal::new(principal), rights }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_by_credential_else_by_principal_else_by_address() {
        let here = address("192.0.2.1");
        let (ada, bob) = (caller("ada", None), caller("bob", None));
        let (first, second) = (caller("ada", Some("1")), caller("ada", Some("2")));
        // Credential ids are separate for each principal.
        let same_id = caller("eve", Some("1"));
        let all = [Some(&ada), Some(&bob), Some(&first), Some(&second), Some(&same_id), None];
        let rate_limiter = limiter(2, 0);
        for caller in all {
            let asked: Vec<bool> = (0..3).map(|_| rate_limiter.admit(caller, here).is_ok()).collect();
            assert_eq!(asked, [true, true, false], "{caller:?}");
        }
        // The requests of a caller with a credential are counted together for all its addresses.
        assert!(rate_limiter.admit(Some(&ada), address("192.0.2.2")).is_err());
        assert!(rate_limiter.admit(None, address("192.0.2.2")).is_ok());
        // Two credentials of one principal with the same id are counted as one.
        assert!(rate_limiter.admit(Some(&caller("ada", Some("1"))), here).is_err());
        let refused = rate_limiter.admit(Some(&ada), here).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
        assert_eq!(refused.retry_after(), Some(MINUTE / 2));
        assert_eq!(
            refused.message(),
            "Too many requests: 2 in 60 seconds are allowed. Send this one again later."
        );
        let metrics = &rate_limiter.metrics;
        assert_eq!(metrics.rate_limit_rejected.get(), 9);
        assert_eq!(metrics.refused.of(Limit::RateRequests).get(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_delayed_and_spread_and_those_beyond_the_bound_are_not() {
        let rate_limiter = limiter(1, 0);
        let here = address("192.0.2.1");
        assert!(rate_limiter.admit(None, here).is_ok());
        let refused = rate_limiter.admit(None, here).unwrap_err();
        let begun = Instant::now();
        let held = async || {
            rate_limiter.delay(&refused).await;
            begun.elapsed()
        };
        let mut waiting = futures_util::future::join_all((0..MAX_DELAYED).map(|_| Box::pin(held())));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // This refusal exceeds the bound, so it is answered at once.
        rate_limiter.delay(&refused).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // The delays are spread evenly.
        let times = waiting.await;
        let starts = [50, 60, 70, 80, 90, 100, 110, 120, 130, 140].map(Duration::from_millis);
        for from in starts {
            let together = times.iter().filter(|time| (from..from + DELAY / 10).contains(*time)).count();
            assert!((90..=115).contains(&together), "{together} of {MAX_DELAYED} at {from:?}");
        }
        // Other errors are not delayed.
        let begun = Instant::now();
        rate_limiter.delay(&Error::new(ErrorKind::Unauthenticated, "Who is it?")).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_credentials_are_counted_by_address_or_ipv6_network() {
        let rate_limiter = limiter(0, 3);
        let cases = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            // Loopback addresses are never locked.
            ("127.0.0.1", "127.0.0.1", false),
            ("127.9.9.9", "127.9.9.9", false),
            ("::1", "::1", false),
        ];
        for (guesser, other, is_locked) in cases {
            let (guesser, other) = (address(guesser), address(other));
            for _ in 0..10 {
                rate_limiter.record_failed_login(guesser);
            }
            assert_eq!(rate_limiter.check_login(other).is_err(), is_locked, "{guesser} {other}");
        }
        assert_eq!(rate_limiter.metrics.failed_logins.get(), 70);
        assert_eq!(rate_limiter.metrics.refused.of(Limit::FailedLogins).get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_locked_for_a_while_and_checking_the_lock_costs_nothing() {
        let rate_limiter = limiter(0, 3);
        let peer = address("192.0.2.1");
        for _ in 0..3 {
            for _ in 0..100 {
                rate_limiter.check_login(peer).unwrap();
            }
            rate_limiter.record_failed_login(peer);
        }
        let refused = rate_limiter.check_login(peer).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (ErrorKind::TooManyRequests, Some(20)));
        tokio::time::advance(MINUTE / 3).await;
        rate_limiter.check_login(peer).unwrap();
        rate_limiter.record_failed_login(peer);
        assert!(rate_limiter.check_login(peer).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn locked_addresses_are_logged_at_a_limited_rate() {
        let rate_limiter = limiter(0, 3);
        let lines = LogLines::begin();
        let guess = |peer: &str, times: usize| {
            (0..times).for_each(|_| rate_limiter.record_failed_login(address(peer)));
            lines.take().into_iter().filter(|line| line.contains("locked")).collect::<Vec<_>>()
        };
        assert_eq!(guess("192.0.2.1", 2), [""; 0], "not yet");
        let [line] = &guess("192.0.2.1", 5)[..] else { panic!("one line when the address is locked") };
        assert!(line.contains("WARN") && line.contains("192.0.2.1"), "{line}");
        // Many locked addresses do not fill the log.
        let others: usize = (2..200).map(|last| guess(&format!("192.0.2.{last}"), 3).len()).sum();
        assert_eq!(others, 0);
        tokio::time::advance(MINUTE).await;
        assert_eq!(guess("192.0.2.1", 3).len(), 1);
        tokio::time::advance(MINUTE).await;
        assert_eq!(guess("127.0.0.1", 9), [""; 0], "never locked");
        assert_eq!(guess("2001:db8:1:2::1", 3).len(), 1);
    }

    #[test]
    fn without_limits_nothing_is_refused() {
        let rate_limiter = RateLimiter::new(&Limits::default(), Arc::default());
        let peer = address("192.0.2.1");
        for _ in 0..1000 {
            rate_limiter.admit(None, peer).unwrap();
            rate_limiter.record_failed_login(peer);
            rate_limiter.check_login(peer).unwrap();
        }
    }
}
