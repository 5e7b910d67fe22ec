//! For tests: makes an open file read-only or writable again. SQLite itself then refuses writes.

#[cfg(feature = "simulation")]
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

/// A switch. Clones share the same state.
#[derive(Clone, Default)]
pub(super) struct ReadOnlySwitch {
    /// The setting that is applied to the connection next. `None`: no change.
    #[cfg(feature = "simulation")]
    is_read_only: Arc<Mutex<Option<bool>>>,
}

impl ReadOnlySwitch {
    #[cfg(feature = "simulation")]
    pub(super) fn set(&self, is_read_only: bool) {
        *self.is_read_only.lock().unwrap_or_else(PoisonError::into_inner) = Some(is_read_only);
    }

    /// Applies the setting to the connection. Call this outside of a transaction, because on a read-only file none
    /// could start.
    #[cfg(feature = "simulation")]
    pub(super) fn apply(&self, db: &Connection) {
        let next = self.is_read_only.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(is_read_only) = next
            && let Err(error) = db.pragma_update(None, "query_only", is_read_only)
        {
            tracing::error!(%error, "the file could not be switched between read-only and writable");
        }
    }

    #[cfg(not(feature = "simulation"))]
    #[expect(clippy::unused_self, reason = "there is nothing to switch outside of tests")]
    pub(super) fn apply(&self, _db: &Connection) {}
}
