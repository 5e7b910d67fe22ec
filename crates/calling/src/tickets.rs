//! Tickets: they identify bridges that were started before their session had an id.
//!
//! An ACP agent names a new session only after it has opened it, but starts the MCP servers of the session before that. So the
//! bridge of a new session gets a ticket, and the gateway binds the ticket to the session once the agent has named it. The ACP
//! agent and its bridges end with the gateway, so tickets are kept only in memory. The bridge of a reopened session gets a token
//! with the session id.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_model::SessionId;
use rand::distr::{Alphanumeric, SampleString as _};
use tokio::sync::watch;
use tokio::time::timeout;

/// The most tickets. With more, the oldest is forgotten, and the calls of its session are refused until the session is opened
/// again.
const MAX_TICKETS: usize = 10_000;

/// How long a tool call waits for the binding of its ticket. No agent should call a tool before its session is open.
const BINDING_PATIENCE: Duration = Duration::from_secs(10);

const LENGTH: usize = 22;

/// The issued tickets and the sessions that they are bound to.
#[derive(Debug, Default)]
pub struct Tickets {
    issued: Mutex<VecDeque<(String, Bound)>>,
    changed: watch::Sender<()>,
}

/// The session that a ticket is bound to.
#[derive(Clone, Debug)]
enum Bound {
    NotYet,
    To(SessionId),
}

impl Tickets {
    /// Issues a ticket, and returns its name.
    pub fn issue(&self) -> String {
        let name = Alphanumeric.sample_string(&mut rand::rng(), LENGTH);
        let mut issued = self.lock();
        if issued.len() >= MAX_TICKETS {
            issued.pop_front();
        }
        issued.push_back((name.clone(), Bound::NotYet));
        name
    }

    /// Binds a ticket to its session, whose id is now known.
    pub fn bind(&self, name: &str, session: SessionId) {
        if let Some((_, bound)) = self.lock().iter_mut().rev().find(|(issued, _)| issued == name) {
            *bound = Bound::To(session);
        }
        self.changed.send_replace(());
    }

    /// The session of a ticket. Waits until the ticket is bound. `None`: the ticket is unknown, or was not bound in time.
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
