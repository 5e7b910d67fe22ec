//! Measures for how long all responses of OpenCode have been invalid.
//!
//! Waiting does not help against invalid responses. Either another program has OpenCode's address and responds in its place, or
//! OpenCode's password has changed. So a turn that gets only invalid responses fails after some time.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::CallError;

/// After this time without a valid response on the event stream, the turn itself sends requests, which may still work. It does so
/// again after each further interval.
pub(super) const CHECK_AFTER: Duration = Duration::from_secs(10);

/// Since when every response has been invalid.
#[derive(Debug, Default)]
pub(super) struct InvalidResponses {
    since: Option<Instant>,
}

impl InvalidResponses {
    /// Records a failed request. Returns whether all responses have been invalid for longer than `limit`.
    pub(super) fn exceed(&mut self, cause: &CallError, limit: Duration) -> bool {
        if !cause.is_invalid_response() {
            self.clear();
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= limit
    }

    pub(super) fn clear(&mut self) {
        self.since = None;
    }

    pub(super) fn is_ongoing(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(3);

    #[tokio::test(start_paused = true)]
    async fn only_an_unbroken_sequence_counts() {
        let mut responses = InvalidResponses::default();
        let mut after = async |seconds: u64, cause: CallError| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            responses.exceed(&cause, LIMIT)
        };
        let refused = |status: u16| CallError::Refused { status, message: String::new() };
        assert!(!after(0, CallError::Unauthorized).await);
        assert!(!after(179, CallError::Garbled("a web page".to_owned())).await);
        // OpenCode does not respond, or a proxy reports that.
        for away in [CallError::NoAnswer, refused(503)] {
            assert!(!after(1_000, away).await);
            assert!(!after(1_000, CallError::Unauthorized).await);
        }
        assert!(!after(179, refused(500)).await);
        assert!(after(1, CallError::Unauthorized).await);
    }
}
