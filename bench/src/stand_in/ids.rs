//! New ids at the time of the wall clock.

use longshore_opencode_shapes::new_id;

use crate::clock;

pub(super) fn fresh(prefix: &str) -> String {
    new_id(prefix, clock::wall_ms())
}

/// A new id that sorts after every id made so far, including those that other programs made in this millisecond.
pub(super) fn later(prefix: &str) -> String {
    new_id(prefix, clock::wall_ms() + 1)
}
