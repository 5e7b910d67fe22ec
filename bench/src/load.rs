//! Loads: many streams at a rate, and turns one after the other.

mod streams;
mod turns;

pub use self::streams::{
    StreamLoad, check, ends, kept_sum, script, spawn_streams, stream_once, stream_over, streams, whole_ones,
};
pub use self::turns::{Counted, TurnLoad, turns};
