//! The number of stored bytes of each owner: counted once after the start, and updated with every write.
//!
//! The numbers are approximate: they leave out indexes, free pages, and the snapshots of unfinished tasks, which change often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_engine::port::StoredBytes;
use longshore_model::Principal;
use rusqlite::Connection;

use super::fault::Outcome;

/// How many tasks one query counts. It is limited, so that no read keeps the write-ahead log from being restarted for long.
const PAGE: i64 = 1000;

pub(super) const BYTES_OF_TASKS: &str = "SELECT tasks.ordinal, tasks.owner,
        (SELECT coalesce(sum(octet_length(body)), 0) FROM events WHERE task = tasks.ordinal)
        + coalesce((SELECT octet_length(summary) + octet_length(artifacts) FROM snapshots
                    WHERE snapshots.task = tasks.ordinal
                    AND tasks.state IN ('completed', 'failed', 'canceled', 'rejected')), 0)
        + (SELECT coalesce(sum(size), 0) FROM files WHERE files.task = tasks.ordinal)
        + (SELECT coalesce(sum(octet_length(record)), 0) FROM calls WHERE calls.task = tasks.ordinal)
     FROM tasks WHERE tasks.ordinal > ?1 ORDER BY tasks.ordinal LIMIT ?2";

#[derive(Clone, Default)]
pub(super) struct StoredBytesCount {
    counts: Arc<Mutex<Counts>>,
}

/// The numbers of bytes. They may be negative until the file is counted: retention may have removed bytes that were never added.
#[derive(Clone, Default)]
struct Counts {
    of_owner: HashMap<Principal, i64>,
    in_all: i64,
}

impl StoredBytesCount {
    pub(super) fn get(&self, owner: &Principal) -> StoredBytes {
        let counts = self.lock();
        let not_negative = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let of_owner = counts.of_owner.get(owner).copied().map_or(0, not_negative);
        StoredBytes { of_owner, in_all: not_negative(counts.in_all) }
    }

    pub(super) fn add(&self, owner: &Principal, bytes: i64) {
        self.lock().add(owner, bytes);
    }

    /// Counts the content of the file. Bytes that are written or removed meanwhile may count twice.
    pub(super) fn count(&self, db: &Connection) -> Outcome<()> {
        let before = self.lock().clone();
        let found = Counts::read(db)?;
        self.set(found, &before);
        Ok(())
    }

    /// Sets the counts to those of the file, and adds the changes since `before`.
    fn set(&self, mut found: Counts, before: &Counts) {
        let mut counts = self.lock();
        for (owner, now) in std::mem::take(&mut counts.of_owner) {
            let own = found.of_owner.get(&owner).copied().unwrap_or(0);
            let changed = now - before.of_owner.get(&owner).copied().unwrap_or(0);
            found.add(&owner, changed.max(-own));
        }
        *counts = found;
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn read(db: &Connection) -> Outcome<Self> {
        let (mut found, mut last) = (Self::default(), Some(i64::MIN));
        while let Some(after) = last.take() {
            let mut statement = db.prepare_cached(BYTES_OF_TASKS)?;
            let mut rows = statement.query([after, PAGE])?;
            while let Some(row) = rows.next()? {
                last = Some(row.get(0)?);
                // The bytes of a row with an unreadable owner count for nobody.
                let owner = row.get_ref(1)?.as_str().map(Principal::new);
                found.add(&owner.unwrap_or_else(|_| Principal::new("")), row.get(2)?);
            }
        }
        Ok(found)
    }

    fn add(&mut self, owner: &Principal, bytes: i64) {
        self.in_all += bytes;
        match self.of_owner.get_mut(owner) {
            Some(own) => *own += bytes,
            None => drop(self.of_owner.insert(owner.clone(), bytes)),
        }
    }
}

#[cfg(test)]
mod tests;
