//! The idempotency keys of one owner.

use std::collections::{BTreeSet, HashMap};

use longshore_engine::port::IdempotencyKey;
use longshore_model::{TaskId, Timestamp};

pub(super) type Digest = [u8; 32];

#[derive(Default)]
pub(super) struct Keys {
    tasks: HashMap<Digest, (TaskId, Timestamp)>,
    /// The same keys, by their age.
    by_age: BTreeSet<(Timestamp, Digest)>,
}

impl Keys {
    /// The task that the key belongs to, unless the key has expired.
    pub(super) fn get(&self, key: &IdempotencyKey) -> Option<&TaskId> {
        let (task, at) = self.tasks.get(&key.digest)?;
        (*at >= key.valid_since).then_some(task)
    }

    pub(super) fn insert(&mut self, digest: Digest, task: TaskId, at: Timestamp) {
        if let Some((_, before)) = self.tasks.insert(digest, (task, at)) {
            self.by_age.remove(&(before, digest));
        }
        self.by_age.insert((at, digest));
    }

    /// Removes the key if it belongs to `task`.
    pub(super) fn remove(&mut self, digest: &Digest, task: &TaskId) {
        if let Some((_, at)) = self.tasks.get(digest).filter(|(known, _)| known == task).cloned() {
            self.tasks.remove(digest);
            self.by_age.remove(&(at, *digest));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Removes the oldest keys from before `valid_since`, at most `limit`. Returns how many.
    pub(super) fn drop_expired(&mut self, valid_since: Timestamp, limit: u32) -> u32 {
        for dropped in 0..limit {
            let Some(oldest) = self.by_age.first().filter(|(at, _)| *at < valid_since) else {
                return dropped;
            };
            self.tasks.remove(&oldest.1);
            self.by_age.pop_first();
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use longshore_testkit::store_suite::make::task_id;

    use super::*;

    #[test]
    fn expired_keys_are_dropped_oldest_first() {
        // The times of the keys, the cutoff, the limit, and the times of the keys that stay.
        let cases: [(&[i64], i64, u32, &[i64]); 6] = [
            (&[], 9, 3, &[]),
            (&[5, 1, 4, 2], 9, 3, &[5]),
            (&[5, 1, 4, 2], 4, 3, &[4, 5]),
            (&[5, 1, 4, 2], 4, 1, &[2, 4, 5]),
            (&[5, 1, 4, 2], 1, 3, &[1, 2, 4, 5]),
            (&[3, 3, 3], 4, 2, &[3]),
        ];
        for (made, valid_since, limit, expected) in cases {
            let mut keys = Keys::default();
            for (byte, at) in (0..).zip(made) {
                keys.insert([byte; 32], task_id("t"), Timestamp(*at));
            }
            keys.drop_expired(Timestamp(valid_since), limit);
            let left: Vec<_> = keys.by_age.iter().map(|(at, _)| at.0).collect();
            assert_eq!(left, expected, "{made:?} before {valid_since}");
            let mut counted: Vec<_> = keys.tasks.values().map(|(_, at)| at.0).collect();
            counted.sort_unstable();
            assert_eq!(counted, expected, "{made:?} before {valid_since}");
        }
    }

    #[test]
    fn a_repeated_key_has_its_new_age() {
        let mut keys = Keys::default();
        keys.insert([0; 32], task_id("old"), Timestamp(1));
        keys.insert([0; 32], task_id("new"), Timestamp(5));
        keys.drop_expired(Timestamp(5), 9);
        let key = IdempotencyKey { digest: [0; 32], valid_since: Timestamp(5) };
        assert_eq!(keys.get(&key), Some(&task_id("new")));
        assert_eq!(keys.by_age.len(), 1);
    }
}
