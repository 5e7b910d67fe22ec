//! The edge over real sockets, with a real engine, a store in memory and an agent that the test plays.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod connections;
mod errors;
mod operations;
mod public;
mod streams;
mod support;
