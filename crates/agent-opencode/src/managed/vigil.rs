//! Notices an OpenCode whose process lives and which does not answer any more.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::health;

/// Fewer questions without an answer than this say nothing, however long they took: it may have been the gateway that
/// could do nothing meanwhile.
const QUESTIONS: u32 = 4;

/// How one that runs is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vigil {
    pub(super) every: Duration,
    /// How long one answer may take.
    pub(super) timeout: Duration,
    /// So long it may be silent. Whoever ends it ends its turns, and its one thread may be busy for a good while.
    pub(super) silence: Duration,
}

impl Default for Vigil {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            timeout: Duration::from_secs(15),
            silence: Duration::from_mins(2),
        }
    }
}

impl Vigil {
    /// Waits until it has not answered for too long.
    pub(super) async fn until_silent(self, port: u16, password: &str) {
        let mut unanswered = Unanswered::default();
        loop {
            sleep(self.every).await;
            let asked = Instant::now();
            let answers = health::answers(port, password, self.timeout).await;
            if unanswered.is_too_much(asked, answers, self.silence) {
                return;
            }
        }
    }
}

/// The questions since the last answer.
#[derive(Debug, Default)]
struct Unanswered {
    since: Option<Instant>,
    count: u32,
}

impl Unanswered {
    fn is_too_much(&mut self, asked: Instant, answers: bool, silence: Duration) -> bool {
        if answers {
            *self = Self::default();
            return false;
        }
        self.count += 1;
        let since = *self.since.get_or_insert(asked);
        self.count >= QUESTIONS && since.elapsed() >= silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_mins(2);

    #[tokio::test(start_paused = true)]
    async fn only_a_long_silence_is_too_much() {
        let mut unanswered = Unanswered::default();
        let mut ask = async |answers: bool| {
            let asked = Instant::now();
            tokio::time::advance(Duration::from_secs(25)).await;
            unanswered.is_too_much(asked, answers, SILENCE)
        };
        for _ in 0..4 {
            assert!(!ask(false).await);
        }
        // It was busy.
        assert!(!ask(true).await);
        for _ in 0..4 {
            assert!(!ask(false).await);
        }
        assert!(ask(false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stood_still_blames_nobody() {
        let mut unanswered = Unanswered::default();
        let asked = Instant::now();
        tokio::time::advance(SILENCE * 10).await;
        assert!(!unanswered.is_too_much(asked, false, SILENCE));
        assert!(!unanswered.is_too_much(Instant::now(), true, SILENCE));
    }
}
