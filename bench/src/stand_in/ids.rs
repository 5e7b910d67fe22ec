//! Identifiers in OpenCode's form and length: a prefix, twelve hexadecimal digits of time, fourteen characters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock;

/// The time counts in 48 bits and wraps there.
const MASK: u64 = (1 << 48) - 1;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A fresh id.
pub(super) fn fresh(prefix: &str) -> String {
    at(prefix, clock::wall_ms())
}

/// A fresh id that sorts behind all that were made up to now, also by others within this millisecond.
pub(super) fn later(prefix: &str) -> String {
    at(prefix, clock::wall_ms() + 1)
}

fn at(prefix: &str, wall_ms: u64) -> String {
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let time = (wall_ms * 0x1000 + (count & 0xfff)) & MASK;
    format!("{prefix}_{time:012x}{count:014}")
}
