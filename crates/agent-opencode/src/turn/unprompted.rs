//! Remembers sessions that the gateway has created but not prompted yet.
//!
//! No turn runs in such a session, so its first turn need not query whether the session is idle. That saves a request whose
//! response lists all busy sessions of the directory.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use longshore_model::SessionId;
use tokio::time::Instant;

use crate::reader::lock;

/// The most unprompted sessions that are remembered. At this number all are forgotten, and the first turn of a forgotten session
/// queries whether the session is idle.
const MAX_SESSIONS: usize = 4096;

/// How long a new session is certainly idle. After that, another client may have found it in OpenCode's list and prompted it.
const FRESH: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct UnpromptedSessions {
    since: Mutex<HashMap<SessionId, Instant>>,
}

impl UnpromptedSessions {
    /// Remembers a session that was just created.
    pub(crate) fn note(&self, session: &SessionId) {
        let mut since = lock(&self.since);
        if since.len() >= MAX_SESSIONS {
            since.clear();
        }
        since.insert(session.clone(), Instant::now());
    }

    /// The time until which the session is certainly idle. `None`: unknown. Also forgets the session, because it is about to be
    /// prompted.
    pub(super) fn take(&self, session: &SessionId) -> Option<Instant> {
        lock(&self.since).remove(session).map(|since| since + FRESH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::parse(&format!("ses_{number}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_surely_idle_once_and_for_a_short_time() {
        let unused = UnpromptedSessions::default();
        unused.note(&session(1));
        let made = Instant::now();
        tokio::time::advance(FRESH.mul_f64(0.99)).await;
        assert_eq!(
            unused.take(&session(1)),
            Some(made + FRESH),
            "idle until another client may have found it"
        );
        assert_eq!(unused.take(&session(1)), None, "taken before");
        assert_eq!(unused.take(&session(3)), None, "not created by the gateway");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_remembered_sessions_is_bounded() {
        let unused = UnpromptedSessions::default();
        for number in 0..=MAX_SESSIONS {
            unused.note(&session(number));
        }
        assert_eq!(lock(&unused.since).len(), 1);
        assert!(unused.take(&session(MAX_SESSIONS)).is_some());
    }
}
