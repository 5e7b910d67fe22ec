//! Answers that are none of OpenCode's, or that it always gives: it was replaced by something else, or has another
//! password now. Time alone does not mend that, so they are not waited out for ever.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::CallError;

/// After so long without a proper answer to the reader of the stream, the turn asks for itself, and again each time that
/// as much has passed. Other ways than the stream may work.
pub(super) const CHECK_AFTER: Duration = Duration::from_secs(10);

/// Since when nothing but such answers came.
#[derive(Debug, Default)]
pub(super) struct InvalidResponses {
    since: Option<Instant>,
}

impl InvalidResponses {
    /// Notes what came. Says whether it has been so for too long.
    pub(super) fn is_too_long(&mut self, cause: &CallError, limit: Duration) -> bool {
        if !cause.is_strange() {
            self.over();
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= limit
    }

    pub(super) fn over(&mut self) {
        self.since = None;
    }

    pub(super) fn is_on(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_mins(3);

    #[tokio::test(start_paused = true)]
    async fn only_an_unbroken_row_counts() {
        let mut strange = InvalidResponses::default();
        let mut after = async |seconds: u64, cause: CallError| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            strange.is_too_long(&cause, LIMIT)
        };
        let refused = |status: u16| CallError::Refused { status, message: String::new() };
        assert!(!after(0, CallError::Unauthorized).await);
        assert!(!after(179, CallError::Garbled("a web page".to_owned())).await);
        // Nobody is there, or what stands before it says so.
        for away in [CallError::NoAnswer, refused(503)] {
            assert!(!after(1_000, away).await);
            assert!(!after(1_000, CallError::Unauthorized).await);
        }
        assert!(!after(179, refused(500)).await);
        assert!(after(1, CallError::Unauthorized).await);
    }
}
