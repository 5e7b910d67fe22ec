//! What A2A clients see when the gateway drives an OpenCode that does what the real one was recorded to do, and what
//! they see when it breaks.

mod asks;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod faults;
mod names;
mod pitfalls;
mod recordings;
mod run;
mod usage;
