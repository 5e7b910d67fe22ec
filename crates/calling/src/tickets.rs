//! Bridges whose session had no id when they were started.
//!
//! An ACP agent names a new session only when it has opened it, and starts the MCP servers of the session before that. So the bridge
//! of a new session gets a ticket, and the ticket is bound to the session when the agent has named it. The ACP agent and its bridges
//! end with the gateway, so tickets are only in memory. A session that is opened again gets a token with its id.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::SessionId;
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::sync::watch;
use tokio::time::timeout;

/// The oldest tickets beyond this number are forgotten. The calls of their sessions are refused until the session is opened again.
const MAX_TICKETS: usize = 10_000;

/// No agent calls a tool before its session is open. This bounds the wait of one that does.
const BINDING_PATIENCE: Duration = Duration::from_secs(10);

const LENGTH: usize = 22;

/// See the module.
#[derive(Debug, Default)]
pub struct Tickets {
    issued: Mutex<VecDeque<(String, Bound)>>,
    changed: watch::Sender<()>,
}

/// What a ticket is bound to.
#[derive(Clone, Debug)]
enum Bound {
    NotYet,
    To(SessionId),
}

impl Tickets {
    /// The name of a new ticket.
    pub fn issue(&self) -> String {
        let name = Alphanumeric.sample_string(&mut rand::rng(), LENGTH);
        let mut issued = self.lock();
        if issued.len() >= MAX_TICKETS {
            issued.pop_front();
        }
        issued.push_back((name.clone(), Bound::NotYet));
        name
    }

    /// The session of a ticket has its id now.
    pub fn bind(&self, name: &str, session: SessionId) {
        if let Some((_, bound)) = self.lock().iter_mut().rev().find(|(issued, _)| issued == name) {
            *bound = Bound::To(session);
        }
        self.changed.send_replace(());
    }

    /// Waits for the binding. `None`: the ticket is not known, or not bound in time.
    pub(crate) async fn session(&self, name: &str) -> Option<SessionId> {
        let waiting = async {
            let mut changes = self.changed.subscribe();
            loop {
                match self.find(name)? {
                    Bound::To(session) => return Some(session),
                    Bound::NotYet => changes.changed().await.ok()?,
                }
            }
        };
        timeout(BINDING_PATIENCE, waiting).await.ok().flatten()
    }

    fn find(&self, name: &str) -> Option<Bound> {
        self.lock().iter().rev().find(|(issued, _)| issued == name).map(|(_, bound)| bound.clone())
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, Bound)>> {
        self.issued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        SessionId::parse(id).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_until_its_ticket_is_bound() {
        let tickets = Tickets::default();
        let (one, other) = (tickets.issue(), tickets.issue());
        let waiting = tickets.session(&one);
        let binding = async {
            tokio::task::yield_now().await;
            tickets.bind(&other, session("ses_2"));
            tickets.bind(&one, session("ses_1"));
        };
        assert_eq!(tokio::join!(waiting, binding).0, Some(session("ses_1")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_that_is_unknown_or_never_bound_has_no_session() {
        let tickets = Tickets::default();
        assert_eq!(tickets.session("made up").await, None);
        assert_eq!(tickets.session(&tickets.issue()).await, None);
        tickets.bind("made up", session("ses_1"));
        assert_eq!(tickets.session("made up").await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_tickets_are_forgotten() {
        let tickets = Tickets::default();
        let first = tickets.issue();
        tickets.bind(&first, session("ses_1"));
        for _ in 0..MAX_TICKETS {
            tickets.issue();
        }
        assert_eq!(tickets.session(&first).await, None);
    }
}
