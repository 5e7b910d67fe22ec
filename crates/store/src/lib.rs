//! Where tasks, logs and bindings are kept: the implementations of [`longshore_engine::port::Store`].
//!
//! [`MemoryStore`] forgets everything when the process ends. [`SqliteStore`] keeps it in one file. Both pass the
//! suite of `longshore-testkit`, so that the engine cannot tell them apart but by a restart.

mod memory;
mod rules;
mod sqlite;

use std::path::Path;

pub use memory::MemoryStore;
pub use sqlite::{Backup, Durability, SqliteOptions, SqliteStore, backup};

/// A store that lives as long as the process.
pub fn memory() -> MemoryStore {
    MemoryStore::default()
}

/// A store in the file at `path`, which is made when it is not there.
pub fn sqlite(path: &Path, options: impl Into<SqliteOptions>) -> longshore_model::Result<SqliteStore> {
    SqliteStore::open(path, options)
}
