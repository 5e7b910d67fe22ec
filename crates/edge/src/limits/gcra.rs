//! Limits how often something may happen for each key, by the generic cell rate algorithm (GCRA).
//!
//! Each request costs its key one share of the window: the length of the window divided by the number of allowed requests. A key
//! has one timestamp: the time at which all its requests so far are paid for. A request that would move the timestamp more than
//! one window into the future is refused. So a key needs the same memory for any number of requests, and no work while it is
//! idle.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Rate;

/// The number of shards. With several of them, requests of different keys rarely wait for the same lock.
const SHARDS: usize = 16;

/// The number of keys that all shards together remember.
const MAX_KEYS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Gcra<K> {
    /// The time that one request costs.
    share: Duration,
    /// How far the timestamp of a key may be in the future when the key makes one more request.
    burst: Duration,
    keys_per_shard: usize,
    hasher: RandomState,
    shards: [Mutex<HashMap<K, Instant>>; SHARDS],
}

impl<K: Eq + Hash> Gcra<K> {
    /// A limiter for this rate. `None`: the rate means no limit.
    pub(crate) fn new(rate: Rate) -> Option<Self> {
        Self::with_capacity(rate, MAX_KEYS)
    }

    fn with_capacity(rate: Rate, max_keys: usize) -> Option<Self> {
        let share = rate.window.checked_div(rate.requests)?;
        if share.is_zero() {
            return None;
        }
        Some(Self {
            share,
            burst: share * (rate.requests - 1),
            keys_per_shard: (max_keys / SHARDS).max(1),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Takes one request from the allowance of a key. If none is available, takes nothing and returns the time until one is.
    pub(crate) fn take(&self, key: K) -> Result<(), Duration> {
        let now = Instant::now();
        let mut shard = self.shard(&key);
        let paid_at = shard.get(&key).copied().unwrap_or(now).max(now);
        self.wait_for(paid_at, now)?;
        if shard.len() >= self.keys_per_shard && !shard.contains_key(&key) {
            make_room(&mut shard, self.keys_per_shard, now);
        }
        shard.insert(key, paid_at + self.share);
        Ok(())
    }

    /// Whether a request is available for a key. Takes nothing. The error is the time until a request is available.
    pub(crate) fn check(&self, key: &K) -> Result<(), Duration> {
        let now = Instant::now();
        let paid_at = self.shard(key).get(key).copied().unwrap_or(now).max(now);
        self.wait_for(paid_at, now)
    }

    fn wait_for(&self, paid_at: Instant, now: Instant) -> Result<(), Duration> {
        let wait = (paid_at - now).saturating_sub(self.burst);
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, Instant>> {
        let shard = self.hasher.hash_one(key) % SHARDS as u64;
        self.shards[usize::try_from(shard).unwrap_or(0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the keys whose timestamp has passed, because a key without an entry is treated in the same way. If these are too few,
/// also removes the keys with the earliest timestamps, so that keys with the latest ones stay refused. Frees at least an eighth of
/// the room, so that this function rarely runs.
fn make_room<K: Eq + Hash>(shard: &mut HashMap<K, Instant>, max: usize, now: Instant) {
    shard.retain(|_, paid_at| *paid_at > now);
    let keep = max - max.div_ceil(8);
    if shard.len() <= keep {
        return;
    }
    let mut debts: Vec<Instant> = shard.values().copied().collect();
    let spared = debts.len() - keep;
    let (_, most, _) = debts.select_nth_unstable(spared - 1);
    let (most, mut left) = (*most, spared);
    shard.retain(|_, paid_at| {
        let is_removed = left > 0 && *paid_at <= most;
        left -= usize::from(is_removed);
        !is_removed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gcra(requests: u32, seconds: u32) -> Gcra<u32> {
        Gcra::new(Rate { requests, window: seconds * SECOND }).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_then_one_for_each_share_of_the_window() {
        let gcra = gcra(4, 60);
        for _ in 0..4 {
            assert_eq!(gcra.take(1), Ok(()));
        }
        // A refusal costs nothing, so further attempts do not prolong the wait.
        for _ in 0..10 {
            assert_eq!(gcra.take(1), Err(15 * SECOND));
            assert_eq!(gcra.check(&1), Err(15 * SECOND));
        }
        // Other keys are not affected.
        assert_eq!(gcra.take(2), Ok(()));
        tokio::time::advance(14 * SECOND).await;
        assert_eq!(gcra.take(1), Err(SECOND));
        tokio::time::advance(SECOND).await;
        assert_eq!(gcra.check(&1), Ok(()));
        assert_eq!(gcra.take(1), Ok(()));
        assert_eq!(gcra.take(1), Err(15 * SECOND));
        // After an idle window the whole burst is available again, and no more.
        tokio::time::advance(3600 * SECOND).await;
        assert_eq!((0..10).filter(|_| gcra.take(1).is_ok()).count(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_gets_exactly_its_rate() {
        let gcra = gcra(7, 10);
        let step = Duration::from_millis(100);
        let mut taken = Vec::new();
        let start = Instant::now();
        for _ in 0..1000 {
            if gcra.take(1).is_ok() {
                taken.push(Instant::now());
            }
            tokio::time::advance(step).await;
        }
        // The initial burst, and then 7 requests in 10 seconds.
        let expected = 7 + 100 * 7 / 10;
        assert!(taken.len().abs_diff(expected) <= 1, "{} of {expected}", taken.len());
        for (count, at) in taken.iter().enumerate() {
            let earned = 7.0 + 0.7 * at.duration_since(start).as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let count = count as f64;
            assert!(count < earned, "{count} at {:?}", at.duration_since(start));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_zero_means_no_limit() {
        for (requests, window) in [(0, SECOND), (10, Duration::ZERO), (0, Duration::ZERO)] {
            assert!(Gcra::<u32>::new(Rate { requests, window }).is_none());
        }
        assert_eq!(gcra(1, 1).take(1), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_keys_is_bounded_and_refused_keys_are_not_forgotten() {
        let rate = Rate { requests: 2, window: 60 * SECOND };
        let gcra: Gcra<u32> = Gcra::with_capacity(rate, 1600).unwrap();
        for key in 0..10 {
            for _ in 0..2 {
                gcra.take(key).unwrap();
            }
        }
        for key in 1000..21_000 {
            gcra.take(key).unwrap();
        }
        let kept: usize = gcra.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!((1000..=1600).contains(&kept), "{kept}");
        for key in 0..10 {
            assert_eq!(gcra.take(key), Err(30 * SECOND), "{key}");
        }
        // Keys whose timestamp has passed are removed first.
        tokio::time::advance(61 * SECOND).await;
        for key in 30_000..40_000 {
            gcra.take(key).unwrap();
        }
        assert!(gcra.shards.iter().all(|shard| !shard.lock().unwrap().contains_key(&0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_of_one_key_has_room_for_the_next() {
        let gcra: Gcra<u32> = Gcra::with_capacity(Rate { requests: 2, window: SECOND }, 1).unwrap();
        for key in 0..1000 {
            gcra.take(key).unwrap();
        }
        assert!(gcra.shards.iter().all(|shard| shard.lock().unwrap().len() <= 1));
    }
}
