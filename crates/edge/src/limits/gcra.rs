//! How often something may happen for each key, by the generic cell rate algorithm.
//!
//! Of a key only one moment is kept: when everything that it took will be paid off, at one share of the window each. It
//! may be as far ahead as the window is long. So the memory of a key does not grow with what it asks, and there is
//! nothing to be done while it does not.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Rate;

/// Requests of different keys seldom wait for each other.
const SHARDS: usize = 16;

/// As many keys as all shards together remember.
const MAX_KEYS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Gcra<K> {
    /// What one costs.
    share: Duration,
    /// How far ahead a key may have taken and still take one more.
    patience: Duration,
    keys_per_shard: usize,
    hasher: RandomState,
    shards: [Mutex<HashMap<K, Instant>>; SHARDS],
}

impl<K: Eq + Hash> Gcra<K> {
    /// `None` if that is no limit.
    pub(crate) fn new(rate: Rate) -> Option<Self> {
        Self::of_size(rate, MAX_KEYS)
    }

    fn of_size(rate: Rate, max_keys: usize) -> Option<Self> {
        let share = rate.window.checked_div(rate.requests)?;
        if share.is_zero() {
            return None;
        }
        Some(Self {
            share,
            patience: share * (rate.requests - 1),
            keys_per_shard: (max_keys / SHARDS).max(1),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Takes one for a key. An error says after how long there will be one, and takes nothing.
    pub(crate) fn take(&self, key: K) -> Result<(), Duration> {
        let now = Instant::now();
        let mut shard = self.shard(&key);
        let paid = shard.get(&key).copied().unwrap_or(now).max(now);
        self.check(paid, now)?;
        if shard.len() >= self.keys_per_shard && !shard.contains_key(&key) {
            make_room(&mut shard, self.keys_per_shard, now);
        }
        shard.insert(key, paid + self.share);
        Ok(())
    }

    /// Whether there is one for a key, without taking it.
    pub(crate) fn look(&self, key: &K) -> Result<(), Duration> {
        let now = Instant::now();
        let paid = self.shard(key).get(key).copied().unwrap_or(now).max(now);
        self.check(paid, now)
    }

    fn check(&self, paid: Instant, now: Instant) -> Result<(), Duration> {
        let wait = (paid - now).saturating_sub(self.patience);
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, Instant>> {
        let place = self.hasher.hash_one(key) % SHARDS as u64;
        self.shards[usize::try_from(place).unwrap_or(0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets keys that have paid everything, which changes nothing for them, and if that is not enough those that owe least:
/// whoever is refused now stays refused. Much is forgotten at once, so that it is seldom done.
fn make_room<K: Eq + Hash>(shard: &mut HashMap<K, Instant>, max: usize, now: Instant) {
    shard.retain(|_, paid| *paid > now);
    let keep = max - max.div_ceil(8);
    if shard.len() <= keep {
        return;
    }
    let mut debts: Vec<Instant> = shard.values().copied().collect();
    let spared = debts.len() - keep;
    let (_, most, _) = debts.select_nth_unstable(spared - 1);
    let (most, mut left) = (*most, spared);
    shard.retain(|_, paid| {
        let goes = left > 0 && *paid <= most;
        left -= usize::from(goes);
        !goes
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
    async fn all_may_come_at_once_and_the_next_when_its_share_is_over() {
        let gcra = gcra(4, 60);
        for _ in 0..4 {
            assert_eq!(gcra.take(1), Ok(()));
        }
        // Refusals cost nothing, so whoever asks again does not wait longer for it.
        for _ in 0..10 {
            assert_eq!(gcra.take(1), Err(15 * SECOND));
            assert_eq!(gcra.look(&1), Err(15 * SECOND));
        }
        // Others have their own.
        assert_eq!(gcra.take(2), Ok(()));
        tokio::time::advance(14 * SECOND).await;
        assert_eq!(gcra.take(1), Err(SECOND));
        tokio::time::advance(SECOND).await;
        assert_eq!(gcra.look(&1), Ok(()));
        assert_eq!(gcra.take(1), Ok(()));
        assert_eq!(gcra.take(1), Err(15 * SECOND));
        // After a whole window of nothing, all of them again, and no more.
        tokio::time::advance(3600 * SECOND).await;
        assert_eq!((0..10).filter(|_| gcra.take(1).is_ok()).count(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_keeps_to_the_rate_is_never_refused_and_nobody_gets_more() {
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
        // The burst and then 7 in 10 seconds.
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
    async fn what_is_no_limit_is_none() {
        for (requests, window) in [(0, SECOND), (10, Duration::ZERO), (0, Duration::ZERO)] {
            assert!(Gcra::<u32>::new(Rate { requests, window }).is_none());
        }
        assert_eq!(gcra(1, 1).take(1), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_have_a_bound_and_those_that_are_refused_are_not_forgotten() {
        let rate = Rate { requests: 2, window: 60 * SECOND };
        let gcra: Gcra<u32> = Gcra::of_size(rate, 1600).unwrap();
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
        // Who has paid is forgotten first.
        tokio::time::advance(61 * SECOND).await;
        for key in 30_000..40_000 {
            gcra.take(key).unwrap();
        }
        assert!(gcra.shards.iter().all(|shard| !shard.lock().unwrap().contains_key(&0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_of_one_key_has_room_for_the_next() {
        let gcra: Gcra<u32> = Gcra::of_size(Rate { requests: 2, window: SECOND }, 1).unwrap();
        for key in 0..1000 {
            gcra.take(key).unwrap();
        }
        assert!(gcra.shards.iter().all(|shard| shard.lock().unwrap().len() <= 1));
    }
}
