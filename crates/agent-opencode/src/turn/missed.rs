//! Limits how often a turn reads its state because of events that could not be parsed.
//!
//! Any such event may have been important, so the state is read from OpenCode at once. After that it is read at most once a second,
//! however many such events arrive.

use std::time::Duration;

use tokio::time::Instant;

const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct MissedEvents {
    /// The time at which the state must be read. `None`: no read is needed.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl MissedEvents {
    pub(super) fn note(&mut self) {
        let now = Instant::now();
        let next = self.last.map_or(now, |last| now.max(last + MIN_INTERVAL));
        self.due.get_or_insert(next);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the state must be read now. Resets this, so a second call returns false.
    pub(super) fn take_due(&mut self) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if is_due {
            self.note_read();
        }
        is_due
    }

    /// Called when the whole state is read, for any reason.
    pub(super) fn note_read(&mut self) {
        *self = Self { due: None, last: Some(Instant::now()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_missed_events_cause_one_read_a_second() {
        let mut missed = MissedEvents::default();
        let (mut asked, began) = (Vec::new(), Instant::now());
        for _ in 0..30 {
            missed.note();
            tokio::time::advance(Duration::from_millis(100)).await;
            if missed.take_due() {
                asked.push(began.elapsed().as_millis());
            }
        }
        assert_eq!(asked, [100, 1_100, 2_100]);
        // Events shortly after a read still cause another read.
        assert_eq!(missed.due(), Some(began + Duration::from_millis(3_100)));
    }
}
