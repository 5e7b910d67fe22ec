//! Limits the number of open sessions of a process, because one agent runs a child process for each.
//!
//! After each turn, and after each opening, the least recently used sessions are closed while there are too many. A closed session
//! is reopened for its next turn. A session is never closed during a turn, and therefore never while an ask is open. A new session
//! is not closed before its first turn has had time to begin, because agents do not keep a session in which nothing was said. So
//! while many turns run or begin, there may be more open sessions than the limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::lease::{Lease, Live};
use crate::connection::CallError;

/// How long a new session is kept open for its first turn.
const FIRST_TURN: Duration = Duration::from_mins(1);

/// The sessions that are open in one process.
#[derive(Debug, Default)]
pub(super) struct OpenSessions {
    state: Mutex<State>,
    /// Signals each session that was closed.
    closed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<String, Entry>,
    /// A counter that grows with each use of a session.
    clock: u64,
    /// Whether a background task is closing sessions, one after the other.
    is_trimming: bool,
}

#[derive(Debug, Default)]
struct Entry {
    uses: usize,
    last_used: u64,
    is_closing: bool,
    /// Until when the first turn of a new session may begin. `None`: a turn has begun.
    awaits_turn_until: Option<Instant>,
}

/// A use of a session. The session is not closed while this exists.
#[derive(Debug)]
pub(super) struct SessionUse {
    live: Arc<Live>,
    session: String,
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        let mut state = self.live.open_sessions.lock();
        state.clock += 1;
        let now = state.clock;
        if let Some(entry) = state.sessions.get_mut(&self.session) {
            entry.uses -= 1;
            entry.last_used = now;
        }
    }
}

impl Lease {
    /// Keeps a session open while it is used. First waits if the session is being closed, which has a time limit.
    pub(super) async fn use_session(&self, session: &str) -> SessionUse {
        let open = &self.live.open_sessions;
        loop {
            let mut closed = open.closed.subscribe();
            {
                let mut state = open.lock();
                let entry = state.sessions.entry(session.to_owned()).or_default();
                if !entry.is_closing {
                    entry.uses += 1;
                    entry.awaits_turn_until = None;
                    return SessionUse { live: Arc::clone(&self.live), session: session.to_owned() };
                }
            }
            // Cannot fail, because the sender exists as long as the lease.
            let _ = closed.changed().await;
        }
    }

    /// Records a new session, whose first turn is about to begin.
    pub(super) fn note_opened(&self, session: &str) {
        let mut state = self.live.open_sessions.lock();
        state.clock += 1;
        let entry = Entry {
            last_used: state.clock,
            awaits_turn_until: Some(Instant::now() + FIRST_TURN),
            ..Entry::default()
        };
        state.sessions.insert(session.to_owned(), entry);
    }

    /// Closes sessions in the background while too many are open and the agent can open them again.
    pub(super) fn trim_sessions(&self) {
        let (connection, most) = (self.connection(), self.host.config.limits.open_sessions);
        if most == 0 || !connection.can_reopen() || !connection.offers("session/close") {
            return;
        }
        let mut state = self.live.open_sessions.lock();
        if state.is_trimming || state.excess(most).is_none() {
            return;
        }
        state.is_trimming = true;
        drop(state);
        self.host.tasks.spawn("acp session close", trim(self.another(), most));
    }
}

async fn trim(lease: Lease, most: usize) {
    let open = &lease.live.open_sessions;
    loop {
        let session = {
            let mut state = open.lock();
            let excess = state.excess(most).filter(|_| lease.connection().offers("session/close"));
            state.is_trimming = excess.is_some();
            let Some(session) = excess else { return };
            state.sessions.entry(session.clone()).or_default().is_closing = true;
            session
        };
        let closed = lease.connection().close_session(&session).await;
        let is_absent = closed.as_ref().is_err_and(CallError::is_method_absent);
        if let Err(error) = closed {
            tracing::debug!(session, %error, "a session could not be closed");
        }
        {
            let mut state = open.lock();
            // The agent turned out to lack the method, so it still has the session.
            if is_absent {
                state.sessions.entry(session).or_default().is_closing = false;
            } else {
                state.sessions.remove(&session);
            }
        }
        open.closed.send_replace(());
    }
}

impl OpenSessions {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The session to close next. `None`: there are not too many.
    fn excess(&self, most: usize) -> Option<String> {
        let is_over = self.sessions.len() > most;
        let now = Instant::now();
        let may_close = |entry: &Entry| {
            let awaits_turn = entry.awaits_turn_until.is_some_and(|until| now < until);
            entry.uses == 0 && !entry.is_closing && !awaits_turn
        };
        let unused = self.sessions.iter().filter(|(_, entry)| may_close(entry));
        let oldest = unused.min_by_key(|(_, entry)| entry.last_used);
        oldest.filter(|_| is_over).map(|(session, _)| session.clone())
    }
}
