//! Decides how long to wait between attempts to open an event stream, and how long each attempt may take.

use std::time::Duration;

use tokio::time::Instant;

/// The first and the longest pause between attempts to connect. The pause doubles with each attempt, and each is shortened at
/// random by up to a half, so that many gateways do not reconnect at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// How long a connection must have lasted for the pauses to start again. After shorter connections they keep growing: OpenCode
/// probably crashes after each start, and each reconnection makes all its turns read their state again.
const STEADY: Duration = Duration::from_secs(3);

/// The first time limit for opening a stream. It is short, because OpenCode never answers a request that arrives while it starts.
/// Each timeout doubles the limit, for an OpenCode that is only slow.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// The same limit for an OpenCode that Longshore supervises, which counts as up only when it has said that it answers requests. The
/// first stream of a directory makes OpenCode load the directory, and a second attempt would have to wait behind the first.
const SUPERVISED_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause before the next attempt to connect, and the timeout for its response.
pub(super) struct Backoff {
    pause: Duration,
    response_timeout: Duration,
    connected: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: FIRST_PAUSE, response_timeout: FIRST_TIMEOUT, connected: None }
    }
}

impl Backoff {
    pub(super) fn response_timeout(&self, is_supervised: bool) -> Duration {
        if is_supervised { SUPERVISED_TIMEOUT.max(self.response_timeout) } else { self.response_timeout }
    }

    /// Called when no response came in time. Doubles the next time limit.
    pub(super) fn timed_out(&mut self) {
        self.response_timeout = self.response_timeout.saturating_mul(2);
    }

    /// Called when the first event of a connection arrives.
    pub(super) fn connected(&mut self) {
        self.response_timeout = FIRST_TIMEOUT;
        self.connected = Some(Instant::now());
    }

    /// Called when the connection ended or failed. Returns the pause before the next attempt.
    pub(super) fn next_pause(&mut self) -> Duration {
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
            backoff.next_pause().as_millis()
        };
        let mut short = Vec::new();
        for _ in 0..8 {
            short.push(pause_after(STEADY.mul_f64(0.99)).await);
        }
        assert_eq!(short, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause_after(STEADY).await, 100, "a single cut is repaired at once");
        assert_eq!(pause_after(STEADY).await, 100);
    }

    #[test]
    fn only_an_opencode_that_may_be_starting_gets_short_attempts() {
        let mut backoff = Backoff::default();
        assert_eq!(
            [false, true].map(|is_supervised| backoff.response_timeout(is_supervised).as_secs()),
            [1, 30]
        );
        backoff.timed_out();
        assert_eq!(
            [false, true].map(|is_supervised| backoff.response_timeout(is_supervised).as_secs()),
            [2, 30]
        );
    }

    #[test]
    fn pauses_between_failed_attempts_grow() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..4).map(|_| backoff.next_pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800]);
    }
}
