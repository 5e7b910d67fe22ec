//! The implementations of [`longshore_engine::port::Store`], which stores tasks, logs and bindings.
//!
//! [`MemoryStore`] loses everything when the process ends. [`SqliteStore`] writes to one file. Both pass the store suite of
//! `longshore-testkit`, so the engine sees a difference between them only after a restart.

mod memory;
mod rules;
mod sqlite;

use std::path::Path;

pub use memory::MemoryStore;
pub use sqlite::{
    Backup, Damage, DamagedTask, DiskRules, Durability, Repaired, SqliteOptions, SqliteStore, StoredSecrets,
    backup, find_damage, repair,
};

/// A store in memory, whose content is lost when the process ends.
pub fn memory() -> MemoryStore {
    MemoryStore::default()
}

/// A store in the file at `path`, which is created if it does not exist.
pub fn sqlite(path: &Path, options: impl Into<SqliteOptions>) -> longshore_model::Result<SqliteStore> {
    SqliteStore::open(path, options)
}
