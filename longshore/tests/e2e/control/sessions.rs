//! Sessions of the real OpenCode: read, steered and guarded.
//!
//! What the gateway tells is held against what OpenCode itself says over its own API, on both lines. What the peer breaks on
//! has its number in the name of a scenario.

mod injection;
mod changing;
mod opencode_dies;
mod other_directories;
pub(super) mod every_method;
mod refusals;
mod parameters;
mod prompting;
mod reading;
