//! What A2A clients see when the gateway drives an OpenCode that does what the real one was recorded to do, and what
//! they see when it breaks.

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod faults;
mod names;
mod pitfalls;
mod recordings;
mod run;
