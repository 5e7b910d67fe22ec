//! For tests: a file that turns read-only while it is open, and back. It is SQLite itself that refuses the writes then.

#[cfg(feature = "simulation")]
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

/// Clones are the same switch.
#[derive(Clone, Default)]
pub(super) struct Switch {
    /// What the connection is to be told next.
    #[cfg(feature = "simulation")]
    is_read_only: Arc<Mutex<Option<bool>>>,
}

impl Switch {
    #[cfg(feature = "simulation")]
    pub(super) fn turn(&self, is_read_only: bool) {
        *self.is_read_only.lock().unwrap_or_else(PoisonError::into_inner) = Some(is_read_only);
    }

    /// Tells the connection. Outside of a transaction: a file that is read-only begins none.
    #[cfg(feature = "simulation")]
    pub(super) fn apply(&self, db: &Connection) {
        let next = self.is_read_only.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(is_read_only) = next
            && let Err(error) = db.pragma_update(None, "query_only", is_read_only)
        {
            tracing::error!(%error, "the file could not be turned");
        }
    }

    #[cfg(not(feature = "simulation"))]
    #[expect(clippy::unused_self, reason = "there is nothing to switch outside of tests")]
    pub(super) fn apply(&self, _db: &Connection) {}
}
