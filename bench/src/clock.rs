//! The monotonic clock, which is the same for all processes of the machine, and the wall clock.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since the machine started. Times of different processes can be compared.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Milliseconds since 1970, as OpenCode writes its times.
pub fn wall_ms() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)) / 1_000_000
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
