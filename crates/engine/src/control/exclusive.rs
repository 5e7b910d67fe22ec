//! Commands that need a session for themselves: no turn may run when they begin, and none begins meanwhile.

use longshore_model::{ErrorKind, Result};

use crate::control_errors;
use crate::port::Session;
use crate::service::Engine;
use crate::turn_queue::{QueueKey, QueueTicket};

impl Engine {
    /// Reserves the session for as long as the ticket is kept. Turns that come meanwhile wait as for another turn. `must_know`:
    /// fails also if the agent cannot tell whether the session is busy.
    pub(super) async fn hold(&self, session: &Session, must_know: bool) -> Result<QueueTicket> {
        let (ctx, key) = (self.ctx(), QueueKey::Session(session.id.clone()));
        // The ticket has a new id that no task has, so a search for the task that uses the session finds none.
        let ticket = ctx.live.queues.enter_if_free(key, self.new_task_id());
        let ticket = ticket.ok_or_else(|| control_errors::busy(&session.id))?;
        if ctx.control_state.removals.affects(session) {
            return Err(control_errors::busy(&session.id));
        }
        match ctx.ports.is_busy(session).await {
            Ok(true) => Err(control_errors::busy(&session.id)),
            Err(error) if error.kind() == ErrorKind::UpstreamBackpressure => Err(error),
            Err(error) if must_know => Err(error),
            // When the agent cannot tell, the command itself will fail with the reason.
            Ok(false) | Err(_) => Ok(ticket),
        }
    }
}
