//! The task engine: decides what happens to a task, and defines traits for everything that it needs from outside.
//!
//! Requests come down through [`Engine`] (one function per operation) to the actor that owns the task, and
//! from there to the [`port::Agent`]. Events come up from the agent to the actor, through the pure
//! `lifecycle`, into the [`port::Store`], and only then to the readers, each of which has a cursor.
//!
//! The crate knows no protocol encoding, no SQL and no sockets. Its modules import each other in one direction: `control`,
//! `recover` and `adopt` use `service`, `service` uses `actor`, and all use `engine_context` and the modules below it.

mod abort;
mod actor;
mod actor_request;
mod adopt;
mod answer;
mod asks;
mod audit;
mod child;
mod children;
mod claims;
mod config;
mod control;
mod control_errors;
mod damaged;
mod derived_ids;
mod engine_context;
pub mod fail_point;
mod files;
mod held;
mod idempotency;
mod intake;
mod joins;
mod lifecycle;
mod live;
mod log_entry;
pub mod manifest;
mod native_prompt;
mod offers;
mod open_asks;
mod open_tools;
mod orphaned_turns;
mod page_token;
pub mod port;
mod protected;
pub mod queue;
mod rare_line;
mod reader;
mod recover;
mod registry;
mod removals;
mod retention;
mod retry;
mod service;
pub mod simulation;
mod snapshot;
mod states;
pub mod tasks;
mod turn_limiter;
mod turn_queue;
mod turn_span;
mod unfinished;
mod upstream_error;
mod workspace_files;
mod writer;

pub use config::{
    AlwaysScope, AskConfig, ControlRules, DeadlinePolicy, EngineConfig, FileRules, IntakeRules,
    MAX_TASK_BYTES, PushRules, RetentionRules, SessionGuard, WireNames,
};
pub use control::{ControlCaller, Outcome, is_long_running};
pub use damaged::end_of_repaired;
pub use engine_context::{EngineParts, PushParts};
pub use log_entry::{EncodedForm, Entries, Events, LogEntry, SharedEntry};
pub use protected::{ProtectedPaths, leads_into};
pub use rare_line::RareLine;
pub use reader::TaskReader;
pub use recover::Recovered;
pub use service::{Engine, GapBounds, Listing, PushListing, Sent, Subscription, SubscriptionStart};
pub use snapshot::Snapshot;
pub use tasks::Tasks;
pub use upstream_error::{UPSTREAM_STATUS, to_control_error, with_retry_hint};
pub use workspace_files::AllowedDirectories;

#[cfg(test)]
mod tests;
