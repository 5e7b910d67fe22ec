//! Under which number this opening of the file writes.

use longshore_engine::port::{Clock as _, SystemClock};
use longshore_model::Epoch;
use rusqlite::Connection;

use super::Durability;
use super::fault::{Outcome, damaged};

/// The number of an opening, which is the file's before anything is written under it.
///
/// Nothing is written for it until then: a disk that is full keeps nobody from reading.
pub(super) struct Claim {
    pub(super) epoch: Epoch,
    durability: Durability,
    pub(super) is_on_disk: bool,
}

impl Claim {
    /// Not the clock's business, but it helps: a file that comes back from a backup does not know which numbers were used
    /// since. They lie in the past.
    pub(super) fn new(db: &Connection, durability: Durability) -> Outcome<Self> {
        let seconds = SystemClock.now().0 / 1000;
        Self::at(db, durability, u32::try_from(seconds).unwrap_or_default())
    }

    fn at(db: &Connection, durability: Durability, now: u32) -> Outcome<Self> {
        let last: i64 = db.query_row("SELECT last FROM epochs", [], |row| row.get(0))?;
        let next = u32::try_from(last).ok().and_then(|last| last.checked_add(1));
        let next = next.ok_or_else(|| damaged("the last epoch", "there is no greater one"))?;
        Ok(Self { epoch: Epoch(next.max(now)), durability, is_on_disk: false })
    }

    /// Makes the number the file's. It is on the disk when this returns, whatever a commit waits for otherwise: else a loss
    /// of power could bring it back for other events.
    pub(super) fn hold(&mut self, db: &Connection) -> Outcome<()> {
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

#[cfg(test)]
mod tests;
