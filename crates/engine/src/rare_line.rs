//! Rate-limited log lines, for events that may happen thousands of times in a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_mins(1);

/// A log line that is written at most once per minute, with the number of events since the last line.
#[derive(Debug)]
pub struct RareLine(Mutex<State>);

#[derive(Debug)]
struct State {
    last: Option<Instant>,
    since: u64,
}

impl RareLine {
    pub const fn new() -> Self {
        Self(Mutex::new(State { last: None, since: 0 }))
    }

    /// Counts an event. If the next line is due, returns the number of events since the last line; otherwise `None`.
    pub fn due(&self) -> Option<u64> {
        self.due_at(Instant::now())
    }

    fn due_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.since += 1;
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.since))
    }
}

impl Default for RareLine {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_per_minute_and_counts_the_others() {
        let (line, begin) = (RareLine::new(), Instant::now());
        let at = |seconds| line.due_at(begin + Duration::from_secs(seconds));
        let due: Vec<Option<u64>> = [0, 0, 30, 59, 60, 61, 200].into_iter().map(at).collect();
        assert_eq!(due, [Some(1), None, None, None, Some(4), None, Some(2)]);
    }
}
