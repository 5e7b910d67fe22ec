//! Commands that need a session for themselves: no turn may run when they begin, and no turn starts until they end.

use longshore_model::{ErrorKind, Result};

use crate::control_errors;
use crate::port::Session;
use crate::service::Engine;
use crate::turn_queue::{QueueKey, QueueTicket};

impl Engine {
    /// Reserves the session until the returned ticket is dropped. New turns wait as they wait for another turn. With `must_know`,
    /// also fails if the agent cannot tell whether the session is busy.
    pub(super) async fn hold(&self, session: &Session, must_know: bool) -> Result<QueueTicket> {
        let (ctx, key) = (self.ctx(), QueueKey::Session(session.id.clone()));
        // The ticket gets the id of no existing task, so a search for the task that uses the session finds none.
        let ticket = ctx.live.queues.enter_if_free(key, self.new_task_id());
        let ticket = ticket.ok_or_else(|| control_errors::busy(&session.id))?;
        if ctx.control_state.removals.affects(session) {
            return Err(control_errors::busy(&session.id));
        }
        match ctx.ports.is_busy(session).await {
            Ok(true) => Err(control_errors::busy(&session.id)),
            Err(error) if error.kind() == ErrorKind::UpstreamBackpressure => Err(error),
            Err(error) if must_know => Err(error),
            // If the agent cannot tell, the command itself will fail and say why.
            Ok(false) | Err(_) => Ok(ticket),
        }
    }
}
