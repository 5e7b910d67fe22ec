//! Finds, identifies, measures and terminates the processes that the gateway started, also those of an earlier run.
//!
//! A process id alone says little, because the kernel reuses it. A process is identified by its id together with its start time,
//! and a group of processes by a *marker*: a random value in the environment of a program and of every process that it starts.
//!
//! Processes are found through Linux's `/proc`.

mod memory;
mod process;
mod terminate;

pub use memory::memory_bytes;
pub use process::{Identity, MARKER, Process, new_marker, process_tree};
pub use terminate::{StillRunning, terminate};
