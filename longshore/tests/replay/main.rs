//! What A2A clients see when the gateway drives an OpenCode that does what the real one was recorded to do, and what
//! they see when it breaks.

mod all_recordings;
mod asks;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod faults;
mod joining;
mod names;
mod peer_weaknesses;
mod pitfalls;
mod recordings;
mod refusals;
mod replaced;
mod run;
mod usage;
