//! Sessions that were made here and not prompted yet. Nothing runs in one of them, so nobody need ask OpenCode, which would
//! answer with all sessions that are busy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::SessionId;
use tokio::time::Instant;

/// So many are remembered. At the bound all are forgotten, and are looked at when their turns begin.
const MAX_SESSIONS: usize = 4096;

/// After so long somebody may have found the session in OpenCode's own list and said something there.
const FRESH: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Unused {
    since: Mutex<HashMap<SessionId, Instant>>,
}

impl Unused {
    /// A session was made.
    pub(crate) fn note(&self, session: &SessionId) {
        let mut since = self.lock();
        if since.len() >= MAX_SESSIONS {
            since.clear();
        }
        since.insert(session.clone(), Instant::now());
    }

    /// Until when nothing can have been said in a session, if nothing was yet. The next one who asks is to look.
    pub(super) fn take(&self, session: &SessionId) -> Option<Instant> {
        self.lock().remove(session).map(|since| since + FRESH)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::parse(&format!("ses_{number}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_unused_once_and_not_for_long() {
        let unused = Unused::default();
        unused.note(&session(1));
        let made = Instant::now();
        tokio::time::advance(FRESH.mul_f64(0.99)).await;
        assert_eq!(unused.take(&session(1)), Some(made + FRESH), "then somebody may have found it");
        assert_eq!(unused.take(&session(1)), None, "it was used");
        assert_eq!(unused.take(&session(3)), None, "it was not made here");
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_remembered_are_few() {
        let unused = Unused::default();
        for number in 0..=MAX_SESSIONS {
            unused.note(&session(number));
        }
        assert_eq!(unused.lock().len(), 1);
        assert!(unused.take(&session(MAX_SESSIONS)).is_some());
    }
}
