//! How often and how patiently a stream is opened.

use std::time::Duration;

use tokio::time::Instant;

/// Pauses between attempts to connect: doubled from the first to the last, each shortened by up to a half at random
/// so that many gateways do not come back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// After a life of this length the pauses begin anew. A stream that ends sooner each time is that of an OpenCode which
/// crashes after its start, and every time that it is back all its turns are read again.
const STEADY: Duration = Duration::from_secs(3);

/// How long OpenCode may take to open a stream. It never answers a request that comes while it starts, so the first
/// attempts are short; each that got no answer makes the next twice as long, for an OpenCode that is only slow.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// How long the next attempt to connect waits, before it and for the answer.
pub(super) struct Backoff {
    pause: Duration,
    patience: Duration,
    connected: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: FIRST_PAUSE, patience: FIRST_PATIENCE, connected: None }
    }
}

impl Backoff {
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// No answer came in time.
    pub(super) fn timed_out(&mut self) {
        self.patience = self.patience.saturating_mul(2);
    }

    /// OpenCode speaks.
    pub(super) fn connected(&mut self) {
        self.patience = FIRST_PATIENCE;
        self.connected = Some(Instant::now());
    }

    /// The connection ended, or there was none: the pause before the next.
    pub(super) fn next(&mut self) -> Duration {
        if self.connected.take().is_some_and(|since| since.elapsed() >= STEADY) {
            self.pause = FIRST_PAUSE;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LAST_PAUSE);
        pause
    }
}

/// A pause, shortened by up to a half at random.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_until_a_connection_has_lasted() {
        let mut backoff = Backoff::default();
        let mut pause_after = async |life: Duration| {
            backoff.connected();
            tokio::time::advance(life).await;
            backoff.next().as_millis()
        };
        let mut short = Vec::new();
        for _ in 0..8 {
            short.push(pause_after(STEADY.mul_f64(0.99)).await);
        }
        assert_eq!(short, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause_after(STEADY).await, 100, "a single cut is made good at once");
        assert_eq!(pause_after(STEADY).await, 100);
    }

    #[test]
    fn attempts_that_fail_are_made_less_and_less_often() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..4).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800]);
    }
}
