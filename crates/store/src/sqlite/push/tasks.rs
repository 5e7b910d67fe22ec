//! A table in memory of the tasks that have push configurations, so that appends to all other tasks need no query for them.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_model::{Epoch, PushEvents};
use rusqlite::Connection;
use tokio::sync::Notify;

use super::super::fault::Outcome;
use super::super::read::TERMINAL_WORDS;
use super::super::record::Batch;
use super::record::read_events;

/// The table is read from the file again when it has this many entries, and each time it has doubled since. That removes ended
/// tasks.
const FIRST_READ: usize = 1024;

/// The tasks that have configurations, and for each task the events that its configurations want. The table may contain a task or
/// an event too many, which costs one update that changes nothing. It never contains one too few.
///
/// An append to any other task costs one lookup in this table, and nothing while the table is empty.
pub(in crate::sqlite) struct PushTasks {
    wanted: HashMap<i64, PushEvents>,
    read_again_at: usize,
    /// Whether the table was read in a transaction that is not committed yet.
    is_uncommitted: bool,
    /// Whether reading the table failed. If so, every append counts as wanted.
    is_unknown: bool,
    leases: u32,
    grown: Arc<Notify>,
}

impl PushTasks {
    pub(in crate::sqlite) fn read(db: &Connection, grown: Arc<Notify>) -> Outcome<Self> {
        let mut tasks = Self {
            wanted: HashMap::new(),
            read_again_at: 0,
            is_uncommitted: false,
            is_unknown: false,
            leases: 0,
            grown,
        };
        tasks.read_again(db)?;
        Ok(tasks)
    }

    /// Whether a configuration of the task wants an event of the batch, or the batch ends the task.
    pub(in crate::sqlite) fn wants(&self, task: i64, batch: &Batch) -> bool {
        if self.wanted.is_empty() {
            return self.is_unknown;
        }
        self.is_unknown
            || self
                .wanted
                .get(&task)
                .is_some_and(|wanted| wanted.shares_any(batch.push_events) || batch.is_terminal())
    }

    pub(super) fn add(&mut self, db: &Connection, task: i64, events: PushEvents) -> Outcome<()> {
        if self.wanted.len() >= self.read_again_at {
            self.read_again(db)?;
            self.is_uncommitted = true;
        }
        let wanted = self.wanted.entry(task).or_insert(PushEvents::NONE);
        *wanted = wanted.and_also(events);
        Ok(())
    }

    pub(in crate::sqlite) fn committed(&mut self) {
        self.is_uncommitted = false;
    }

    /// Call this after a rollback. If the table was read in that transaction, reads it again: the read may have left out a task
    /// whose end was then rolled back.
    pub(in crate::sqlite) fn rolled_back(&mut self, db: &Connection) {
        if self.is_uncommitted || self.is_unknown {
            self.is_unknown = self.read_again(db).is_err();
            self.is_uncommitted = false;
        }
    }

    #[cfg(test)]
    pub(in crate::sqlite) fn read_again_at_next_add(&mut self) {
        self.read_again_at = 0;
    }

    /// A lease number that no other lease has. It contains the epoch, which differs for each start.
    pub(super) fn next_lease(&mut self, epoch: Epoch) -> u64 {
        self.leases = self.leases.wrapping_add(1);
        u64::from(epoch.0) << 32 | u64::from(self.leases)
    }

    pub(super) fn has_grown(&self) {
        self.grown.notify_one();
    }

    fn read_again(&mut self, db: &Connection) -> Outcome<()> {
        self.wanted.clear();
        let sql = format!(
            "SELECT task, events FROM push_configs JOIN tasks ON tasks.ordinal = task WHERE state NOT IN ({TERMINAL_WORDS})"
        );
        let mut statement = db.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            // Unreadable kinds of events count as all, which costs at most some unneeded wake-ups.
            let events = read_events(row.get_ref(1)?.as_str().unwrap_or_default()).unwrap_or(PushEvents::ALL);
            let wanted = self.wanted.entry(row.get(0)?).or_insert(PushEvents::NONE);
            *wanted = wanted.and_also(events);
        }
        self.read_again_at = FIRST_READ.max(self.wanted.len() * 2);
        Ok(())
    }
}
