//! How many bytes are stored for each owner: counted once after the start, and kept up to date with every write.
//!
//! Approximate: indexes, free pages and the growth of snapshots before the end of a task are not counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_engine::port::StoredBytes;
use longshore_model::Principal;
use rusqlite::Connection;

use super::fault::Outcome;

/// How many tasks one query counts, so that no read keeps the write-ahead log from being reset for long.
const PAGE: i64 = 1000;

pub(super) const BYTES_OF_TASKS: &str = "SELECT tasks.ordinal, tasks.owner,
        (SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE task = tasks.ordinal)
        + coalesce((SELECT octet_length(summary) + octet_length(artifacts) FROM snapshots
                    WHERE snapshots.task = tasks.ordinal), 0)
        + (SELECT coalesce(sum(size), 0) FROM files WHERE files.task = tasks.ordinal)
     FROM tasks WHERE tasks.ordinal > ?1 ORDER BY tasks.ordinal LIMIT ?2";

#[derive(Clone, Default)]
pub(super) struct StoredBytesCount {
    counts: Arc<Mutex<Counts>>,
}

#[derive(Clone, Default)]
struct Counts {
    of_owner: HashMap<Principal, u64>,
    in_all: u64,
}

impl StoredBytesCount {
    pub(super) fn get(&self, owner: &Principal) -> StoredBytes {
        let counts = self.lock();
        StoredBytes { of_owner: counts.of_owner.get(owner).copied().unwrap_or(0), in_all: counts.in_all }
    }

    pub(super) fn add(&self, owner: &Principal, bytes: u64) {
        self.lock().add(owner, bytes);
    }

    /// Never more than was counted for the owner.
    pub(super) fn subtract(&self, owner: &Principal, bytes: u64) {
        let mut counts = self.lock();
        let Some(own) = counts.of_owner.get_mut(owner) else { return };
        let taken = bytes.min(*own);
        *own -= taken;
        counts.in_all -= taken;
    }

    /// Counts what the file holds. What is written meanwhile may count twice.
    pub(super) fn count(&self, db: &Connection) -> Outcome<()> {
        let before = self.lock().clone();
        let (mut found, mut last) = (Counts::default(), Some(i64::MIN));
        while let Some(after) = last.take() {
            let mut statement = db.prepare_cached(BYTES_OF_TASKS)?;
            let mut rows = statement.query([after, PAGE])?;
            while let Some(row) = rows.next()? {
                last = Some(row.get(0)?);
                // A damaged row belongs to nobody.
                let owner = row.get_ref(1)?.as_str().map(Principal::new);
                found
                    .add(&owner.unwrap_or_else(|_| Principal::new("")), row.get::<_, i64>(2)?.unsigned_abs());
            }
        }
        let mut counts = self.lock();
        for (owner, now) in std::mem::take(&mut counts.of_owner) {
            found.add(&owner, now.saturating_sub(before.of_owner.get(&owner).copied().unwrap_or(0)));
        }
        *counts = found;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn add(&mut self, owner: &Principal, bytes: u64) {
        self.in_all += bytes;
        match self.of_owner.get_mut(owner) {
            Some(own) => *own += bytes,
            None => drop(self.of_owner.insert(owner.clone(), bytes)),
        }
    }
}

#[cfg(test)]
mod tests;
