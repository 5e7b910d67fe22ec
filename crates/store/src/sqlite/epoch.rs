//! Chooses the epoch for this opening of the file, and records it on the disk.

use longshore_engine::port::{Clock as _, SystemClock};
use longshore_model::Epoch;
use rusqlite::Connection;

use super::Durability;
use super::fault::{Outcome, damaged};

/// The epoch of one opening of the store. The file records the epoch before any event of that epoch is written.
///
/// Nothing is written before the first event, so that a store on a full disk can be opened and read.
pub(super) struct EpochClaim {
    pub(super) epoch: Epoch,
    durability: Durability,
    pub(super) is_on_disk: bool,
}

impl EpochClaim {
    /// Chooses the epoch, which is at least the current time in seconds. A file that was restored from a backup does not know the
    /// epochs that were used since the backup, but all of them are in the past.
    pub(super) fn new(db: &Connection, durability: Durability) -> Outcome<Self> {
        Self::with_minimum(db, durability, now())
    }

    pub(super) fn with_minimum(db: &Connection, durability: Durability, minimum: u32) -> Outcome<Self> {
        let last: i64 = db.query_row("SELECT last FROM epochs", [], |row| row.get(0))?;
        let next = u32::try_from(last).ok().and_then(|last| last.checked_add(1));
        let next = next.ok_or_else(|| damaged("the last epoch", "there is no greater one"))?;
        Ok(Self { epoch: Epoch(next.max(minimum)), durability, is_on_disk: false })
    }

    /// Records the epoch in the file. Waits for the disk whatever the durability: otherwise, after a loss of power, the same epoch
    /// could be used again for other events.
    pub(super) fn persist(&mut self, db: &Connection) -> Outcome<()> {
        if self.is_on_disk {
            return Ok(());
        }
        db.pragma_update(None, "synchronous", Durability::Power.synchronous())?;
        let held = db.execute("UPDATE epochs SET last = ?", [self.epoch.0]);
        db.pragma_update(None, "synchronous", self.durability.synchronous())?;
        held?;
        self.is_on_disk = true;
        Ok(())
    }
}

/// The current time in seconds.
pub(super) fn now() -> u32 {
    u32::try_from(SystemClock.now().0 / 1000).unwrap_or_default()
}

#[cfg(test)]
mod tests;
