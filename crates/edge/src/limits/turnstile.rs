//! Who may come in now: how often a caller may ask, and how often an address may show wrong credentials.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, Principal, Result};
use tokio::sync::Semaphore;

use super::gcra::Gcra;
use super::{Limits, Rate};
use crate::auth::Caller;

/// Whoever has many addresses can have many locked, and must not fill the log with them.
const TOLD: Rate = Rate { requests: 1, window: Duration::from_secs(10) };

/// A refusal is answered after about this long, by up to a half more or less: whoever floods by asking again at once waits
/// with each of its connections, and does not take the processor from others. It is told to come again after a second at
/// least.
const HELD: Duration = Duration::from_millis(100);

/// What is added for each refusal, of which the part above 32 bits is lost: by the golden ratio, the sums of few or many are
/// spread evenly.
const SPREAD: u32 = 0x9E37_79B9;

/// So many refusals are held at once, in all. More are answered at once: what waits costs memory.
const MAX_HELD: usize = 1024;

#[derive(Debug)]
pub(crate) struct Turnstile {
    requests: Option<Counted<Asking>>,
    logins: Option<Counted<Place>>,
    /// The lines of the log about addresses that are locked.
    told: Option<Gcra<()>>,
    places_to_wait: Semaphore,
    /// How long the next refusal is held, of the whole range.
    spread: AtomicU32,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Counted<K> {
    rate: Rate,
    by: Gcra<K>,
}

/// Whose requests are counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Asking {
    /// Two credentials of one principal have their own, if they have names.
    Credential(Principal, Box<str>),
    Principal(Principal),
    /// Somebody without a credential.
    Place(Place),
}

/// Where somebody is. An IPv6 network of 64 bits is one place: whoever has one address of it can have all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place(IpAddr);

impl Place {
    fn of(peer: IpAddr) -> Self {
        Self(match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        })
    }
}

impl Turnstile {
    pub(crate) fn new(limits: &Limits, metrics: Arc<Metrics>) -> Self {
        Self {
            requests: limits.rate.and_then(counted),
            logins: limits.failed_logins.and_then(counted),
            told: Gcra::new(TOLD),
            places_to_wait: Semaphore::new(MAX_HELD),
            spread: AtomicU32::new(0),
            metrics,
        }
    }

    /// Counts a request. `caller`: nobody, if what is asked for is for everybody.
    pub(crate) fn admit(&self, caller: Option<&Caller>, peer: IpAddr) -> Result<()> {
        let Some(Counted { rate, by }) = &self.requests else { return Ok(()) };
        by.take(asking(caller, peer)).map_err(|wait| {
            self.metrics.rate_limit_rejected.increment();
            self.metrics.refused.of(Limit::RateRequests).increment();
            let text = format!("Too many requests: {}. Send this one again later.", in_words(*rate));
            refusal(text, "rate_requests", *rate).after(wait)
        })
    }

    /// Waits before the answer to one who came too often. Those that came at once are not let go at once: they would come
    /// again together, and as many as may by then would all be let in at one moment.
    pub(crate) async fn hold(&self, refusal: &Error) {
        if refusal.kind() != ErrorKind::TooManyRequests {
            return;
        }
        if let Ok(_place) = self.places_to_wait.try_acquire() {
            let part = f64::from(self.spread.fetch_add(SPREAD, Ordering::Relaxed)) / f64::from(u32::MAX);
            tokio::time::sleep(HELD / 2 + HELD.mul_f64(part)).await;
        }
    }

    /// Whether a credential from this peer is looked at. If not, a right one is refused as well: else the answer would tell
    /// which one is right.
    pub(crate) fn may_log_in(&self, peer: IpAddr) -> Result<()> {
        let Some(Counted { rate, by }) = self.logins_of(peer) else { return Ok(()) };
        by.look(&Place::of(peer)).map_err(|wait| {
            self.metrics.refused.of(Limit::FailedLogins).increment();
            let text = "Too many wrong credentials came from your address. Check yours, and try again later.";
            refusal(text.to_owned(), "failed_logins", *rate).after(wait)
        })
    }

    /// Counts a credential that was wrong. Those that are right change nothing: else whoever has one could guess others
    /// without end.
    pub(crate) fn note_failed_login(&self, peer: IpAddr) {
        self.metrics.failed_logins.increment();
        let Some(Counted { rate, by }) = self.logins_of(peer) else { return };
        let place = Place::of(peer);
        // One that is refused is as far as it can get already.
        let becomes_locked = by.take(place).is_ok() && by.look(&place).is_err();
        if becomes_locked && self.told.as_ref().is_some_and(|told| told.take(()).is_ok()) {
            tracing::warn!(
                address = %place.0,
                failed_logins = rate.requests,
                "an address is locked: too many wrong credentials came from it, so right ones are refused as well; if it is a \
                 proxy's, set limits.failed_logins to 0"
            );
        }
    }

    /// Behind a loopback address may be a proxy with everybody else behind it, and all would be locked out.
    fn logins_of(&self, peer: IpAddr) -> Option<&Counted<Place>> {
        self.logins.as_ref().filter(|_| !peer.is_loopback())
    }
}

fn counted<K: Eq + std::hash::Hash>(rate: Rate) -> Option<Counted<K>> {
    Gcra::new(rate).map(|by| Counted { rate, by })
}

fn asking(caller: Option<&Caller>, peer: IpAddr) -> Asking {
    match caller {
        None => Asking::Place(Place::of(peer)),
        Some(Caller { principal, rights }) => match &rights.credential_id {
            Some(name) => Asking::Credential(principal.clone(), name.as_str().into()),
            None => Asking::Principal(principal.clone()),
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
    use crate::lines::Lines;

    const MINUTE: Duration = Duration::from_mins(1);

    fn turnstile(requests: u32, failed_logins: u32) -> Turnstile {
        let rate = |requests| Some(Rate { requests, window: MINUTE });
        let limits = Limits { rate: rate(requests), failed_logins: rate(failed_logins), ..Limits::default() };
        Turnstile::new(&limits, Arc::default())
    }

    fn caller(principal: &str, credential: Option<&str>) -> Caller {
        let rights = Rights { credential_id: credential.map(str::to_owned), ..Rights::default() };
        Caller { principal: Principal::new(principal), rights }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_counted_for_the_credential_else_the_principal_else_the_address() {
        let here = address("192.0.2.1");
        let (ada, bob) = (caller("ada", None), caller("bob", None));
        let (first, second) = (caller("ada", Some("1")), caller("ada", Some("2")));
        // Names are those of one principal.
        let named_so = caller("eve", Some("1"));
        let all = [Some(&ada), Some(&bob), Some(&first), Some(&second), Some(&named_so), None];
        let turnstile = turnstile(2, 0);
        for caller in all {
            let asked: Vec<bool> = (0..3).map(|_| turnstile.admit(caller, here).is_ok()).collect();
            assert_eq!(asked, [true, true, false], "{caller:?}");
        }
        // Whoever has a credential takes it along.
        assert!(turnstile.admit(Some(&ada), address("192.0.2.2")).is_err());
        assert!(turnstile.admit(None, address("192.0.2.2")).is_ok());
        // Two credentials of one name and one principal are one.
        assert!(turnstile.admit(Some(&caller("ada", Some("1"))), here).is_err());
        let refused = turnstile.admit(Some(&ada), here).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
        assert_eq!(refused.retry_after(), Some(MINUTE / 2));
        assert_eq!(
            refused.message(),
            "Too many requests: 2 in 60 seconds are allowed. Send this one again later."
        );
        let metrics = &turnstile.metrics;
        assert_eq!(metrics.rate_limit_rejected.get(), 9);
        assert_eq!(metrics.refused.of(Limit::RateRequests).get(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_comes_too_often_waits_for_the_refusal_and_a_crowd_does_not() {
        let turnstile = turnstile(1, 0);
        let here = address("192.0.2.1");
        assert!(turnstile.admit(None, here).is_ok());
        let refused = turnstile.admit(None, here).unwrap_err();
        let begun = Instant::now();
        let held = async || {
            turnstile.hold(&refused).await;
            begun.elapsed()
        };
        let mut waiting = futures_util::future::join_all((0..MAX_HELD).map(|_| Box::pin(held())));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        // One more finds no place.
        turnstile.hold(&refused).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // They go a few at a time.
        let times = waiting.await;
        let slots = [50, 60, 70, 80, 90, 100, 110, 120, 130, 140].map(Duration::from_millis);
        for from in slots {
            let together = times.iter().filter(|time| (from..from + HELD / 10).contains(*time)).count();
            assert!((90..=115).contains(&together), "{together} of {MAX_HELD} at {from:?}");
        }
        // Nobody else waits.
        let begun = Instant::now();
        turnstile.hold(&Error::new(ErrorKind::Unauthenticated, "Who is it?")).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_credentials_are_counted_for_the_place() {
        let turnstile = turnstile(0, 3);
        let cases = [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            // Never for this machine.
            ("127.0.0.1", "127.0.0.1", false),
            ("127.9.9.9", "127.9.9.9", false),
            ("::1", "::1", false),
        ];
        for (guesser, other, is_locked) in cases {
            let (guesser, other) = (address(guesser), address(other));
            for _ in 0..10 {
                turnstile.note_failed_login(guesser);
            }
            assert_eq!(turnstile.may_log_in(other).is_err(), is_locked, "{guesser} {other}");
        }
        assert_eq!(turnstile.metrics.failed_logins.get(), 70);
        assert_eq!(turnstile.metrics.refused.of(Limit::FailedLogins).get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_locked_out_for_a_while_only_and_looking_is_free() {
        let turnstile = turnstile(0, 3);
        let peer = address("192.0.2.1");
        for _ in 0..3 {
            for _ in 0..100 {
                turnstile.may_log_in(peer).unwrap();
            }
            turnstile.note_failed_login(peer);
        }
        let refused = turnstile.may_log_in(peer).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_after_seconds()), (ErrorKind::TooManyRequests, Some(20)));
        tokio::time::advance(MINUTE / 3).await;
        turnstile.may_log_in(peer).unwrap();
        turnstile.note_failed_login(peer);
        assert!(turnstile.may_log_in(peer).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_told_in_the_log_now_and_then() {
        let turnstile = turnstile(0, 3);
        let lines = Lines::begin();
        let guess = |peer: &str, times: usize| {
            (0..times).for_each(|_| turnstile.note_failed_login(address(peer)));
            lines.take().into_iter().filter(|line| line.contains("locked")).collect::<Vec<_>>()
        };
        assert_eq!(guess("192.0.2.1", 2), [""; 0], "not yet");
        let [line] = &guess("192.0.2.1", 5)[..] else { panic!("one line when it is locked") };
        assert!(line.contains("WARN") && line.contains("192.0.2.1"), "{line}");
        // Many addresses do not fill the log.
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
        let turnstile = Turnstile::new(&Limits::default(), Arc::default());
        let peer = address("192.0.2.1");
        for _ in 0..1000 {
            turnstile.admit(None, peer).unwrap();
            turnstile.note_failed_login(peer);
            turnstile.may_log_in(peer).unwrap();
        }
    }
}
