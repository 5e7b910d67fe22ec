//! Sessions of the real OpenCode: read, steered and guarded.
//!
//! What the gateway tells is held against what OpenCode itself says over its own API, on both lines. What the peer breaks on
//! has its number in the name of a scenario.

mod canary;
mod changing;
mod cut_off;
mod elsewhere;
pub(super) mod everything;
mod not_taken;
mod parameters;
mod prompting;
mod reading;
