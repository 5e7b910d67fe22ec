//! Detects an OpenCode whose process is alive but no longer responds.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::health;

/// How many failed checks are needed. Fewer prove nothing, even over a long time, because the gateway itself may have been
/// suspended.
const MIN_FAILURES: u32 = 4;

/// How a running OpenCode is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct LivenessCheck {
    pub(super) every: Duration,
    /// How long one response may take.
    pub(super) timeout: Duration,
    /// How long OpenCode may be silent. The limit is generous: terminating OpenCode ends its turns, and its one thread may be busy.
    pub(super) silence: Duration,
}

impl Default for LivenessCheck {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            timeout: Duration::from_secs(15),
            silence: Duration::from_mins(2),
        }
    }
}

impl LivenessCheck {
    /// Waits until OpenCode has been silent for too long.
    pub(super) async fn until_silent(self, port: u16, password: &str) {
        let mut failures = Failures::default();
        loop {
            sleep(self.every).await;
            let asked = Instant::now();
            let answers = health::responds(port, password, self.timeout).await;
            if failures.are_too_many(asked, answers, self.silence) {
                return;
            }
        }
    }
}

/// The failed checks since the last response.
#[derive(Debug, Default)]
struct Failures {
    since: Option<Instant>,
    count: u32,
}

impl Failures {
    fn are_too_many(&mut self, asked: Instant, answers: bool, silence: Duration) -> bool {
        if answers {
            *self = Self::default();
            return false;
        }
        self.count += 1;
        let since = *self.since.get_or_insert(asked);
        self.count >= MIN_FAILURES && since.elapsed() >= silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_mins(2);

    #[tokio::test(start_paused = true)]
    async fn only_a_long_silence_counts() {
        let mut failures = Failures::default();
        let mut ask = async |answers: bool| {
            let asked = Instant::now();
            tokio::time::advance(Duration::from_secs(25)).await;
            failures.are_too_many(asked, answers, SILENCE)
        };
        for _ in 0..4 {
            assert!(!ask(false).await);
        }
        // OpenCode was busy.
        assert!(!ask(true).await);
        for _ in 0..4 {
            assert!(!ask(false).await);
        }
        assert!(ask(false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_gateway_does_not_count_as_silence_of_opencode() {
        let mut failures = Failures::default();
        let asked = Instant::now();
        tokio::time::advance(SILENCE * 10).await;
        assert!(!failures.are_too_many(asked, false, SILENCE));
        assert!(!failures.are_too_many(Instant::now(), true, SILENCE));
    }
}
