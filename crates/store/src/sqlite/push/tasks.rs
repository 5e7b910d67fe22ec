//! Which appends are news for a configuration, so that those of other tasks cost nothing more.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_model::{Epoch, PushEvents};
use rusqlite::Connection;
use tokio::sync::Notify;

use super::super::fault::Outcome;
use super::super::read::TERMINAL_WORDS;
use super::super::record::Batch;
use super::record::read_events;

/// The table is read again when it has this many entries, and each time it has doubled since: tasks that have ended are then left out.
const FIRST_READ: usize = 1024;

/// The tasks with configurations, and the events that any of these wants. May name a task or an event too many, which costs one
/// update that changes nothing, but never one too few.
///
/// An append of another task pays for one look into this table, and for nothing at all while it is empty.
pub(in crate::sqlite) struct PushTasks {
    wanted: HashMap<i64, PushEvents>,
    read_again_at: usize,
    /// The table was read in a transaction that has not been committed yet.
    is_uncommitted: bool,
    /// The table could not be read, so all appends count as news.
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

    /// Whether the batch has an event that a configuration of its task wants, or that ends the task.
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

    /// Reads the table again if it was read in the transaction: it may lack a task whose end was rolled back.
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

    /// No other lease has this number: each start has another epoch.
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
            // Words that cannot be read cost a wake-up too many.
            let events = read_events(row.get_ref(1)?.as_str().unwrap_or_default()).unwrap_or(PushEvents::ALL);
            let wanted = self.wanted.entry(row.get(0)?).or_insert(PushEvents::NONE);
            *wanted = wanted.and_also(events);
        }
        self.read_again_at = FIRST_READ.max(self.wanted.len() * 2);
        Ok(())
    }
}
