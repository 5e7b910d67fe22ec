//! Events that came and could not be read. Any of them may have been the one that matters, so OpenCode is asked what it told:
//! at once, and then once a second at most, however many there are.

use std::time::Duration;

use tokio::time::Instant;

const PACE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct MissedEvents {
    /// When OpenCode is asked.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl MissedEvents {
    pub(super) fn note(&mut self) {
        let now = Instant::now();
        let next = self.last.map_or(now, |last| now.max(last + PACE));
        self.due.get_or_insert(next);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether OpenCode is to be asked now. Says so once.
    pub(super) fn take_due(&mut self) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if is_due {
            self.asked();
        }
        is_due
    }

    /// OpenCode is asked for everything, for whatever reason.
    pub(super) fn asked(&mut self) {
        *self = Self { due: None, last: Some(Instant::now()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_are_one_question_a_second() {
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
        // The last ones are not forgotten.
        assert_eq!(missed.due(), Some(began + Duration::from_millis(3_100)));
    }
}
