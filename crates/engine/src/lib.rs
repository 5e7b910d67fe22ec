//! The task engine: decides what happens to a task, and names every thing that it needs from outside.
//!
//! Requests come down through [`Engine`] (one function per operation) to the actor that owns the task, and
//! from there to the [`port::Agent`]. Events come up from the agent to the actor, through the pure
//! `lifecycle`, into the [`port::Store`], and only then to the readers, each of which has a cursor.
//!
//! No protocol spelling, no SQL, no sockets.

mod actor;
mod adopt;
mod answer;
mod asks;
mod child;
mod children;
mod config;
mod control;
mod damaged;
pub mod fail_point;
mod files;
mod gate;
mod idempotency;
mod intake;
mod joins;
mod lanes;
mod left_turns;
mod lifecycle;
mod live;
mod log_entry;
mod names;
mod open_asks;
mod page_token;
pub mod port;
pub mod queue;
mod reader;
mod recover;
mod registry;
mod retention;
mod service;
pub mod simulation;
mod states;
pub mod tasks;
mod turn_span;
mod unfinished;
mod writer;

pub use config::{
    AskConfig, AtDeadline, ControlRules, EngineConfig, FileRules, IntakeRules, RetentionRules, SessionGuard,
};
pub use control::{ControlCaller, Outcome, UPSTREAM_STATUS, come_again, of_upstream, takes_long};
pub use log_entry::{Entries, Events, Form, LogEntry, Logged};
pub use reader::TaskReader;
pub use service::{Engine, EngineParts, GapBounds, Listing, Opening, Sent, Snapshot, Subscription};
pub use tasks::Tasks;
