//! Loads: many streams at a rate, and turns one behind the other.

mod streams;
mod turns;

pub use self::streams::{StreamLoad, check, ends, kept_sum, script, stream_once, streams, whole_ones};
pub use self::turns::{Counted, TurnLoad, turns};
