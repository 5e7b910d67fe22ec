//! The task engine: decides what happens to a task, and names every thing that it needs from outside.
//!
//! Requests come down through [`Engine`] (one function per operation) to the actor that owns the task, and
//! from there to the [`port::Agent`]. Events come up from the agent to the actor, through the pure
//! [`lifecycle`], into the [`port::Store`], and only then to the readers, each of which has a cursor.
//!
//! No protocol spelling, no SQL, no sockets.

pub mod port;
pub mod tasks;

pub use tasks::Tasks;
