//! Where tasks, logs and bindings are kept: the implementations of [`longshore_engine::port::Store`].
//!
//! [`MemoryStore`] forgets everything when the process ends. [`SqliteStore`] keeps it in one file. Both pass the
//! suite of `longshore-testkit`, so that the engine cannot tell them apart but by a restart.

mod memory;
mod rules;

pub use memory::MemoryStore;

/// A store that lives as long as the process.
pub fn memory() -> MemoryStore {
    MemoryStore::default()
}
