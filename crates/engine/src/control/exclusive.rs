//! Calls that need a session for themselves: no turn begins there meanwhile, and none runs when they begin.

use longshore_model::{ControlCommand, ErrorKind, Result};

use super::refusal;
use crate::lanes::{LaneKey, Ticket};
use crate::port::Session;
use crate::service::Engine;

/// Whether this cannot be done beside a turn.
pub(super) fn is_exclusive(act: &ControlCommand) -> bool {
    match act {
        ControlCommand::Summarize { .. }
        | ControlCommand::Revert { .. }
        | ControlCommand::Unrevert(_)
        | ControlCommand::Shell { .. } => true,
        ControlCommand::Fork { .. }
        | ControlCommand::Share(_)
        | ControlCommand::Unshare(_)
        | ControlCommand::CreateWorkspace(_)
        | ControlCommand::RemoveWorkspace(_)
        | ControlCommand::CreateWorktree(_)
        | ControlCommand::RemoveWorktree(_)
        | ControlCommand::ResetWorktree(_) => false,
    }
}

impl Engine {
    /// The session, for as long as the ticket is kept. Turns that come meanwhile wait for it as for another turn.
    pub(super) async fn hold(&self, session: &Session) -> Result<Ticket> {
        let (around, key) = (self.around(), LaneKey::Session(session.id.clone()));
        // No task has this name: whoever looks for the one that has the session finds none.
        let ticket = around.lanes.enter_if_free(key, self.new_task_id());
        let ticket = ticket.ok_or_else(|| refusal::busy(&session.id))?;
        if around.removals.take(session) {
            return Err(refusal::busy(&session.id));
        }
        match around.agent.is_busy(session).await {
            Ok(true) => Err(refusal::busy(&session.id)),
            Err(error) if error.kind() == ErrorKind::UpstreamBackpressure => Err(error),
            // When nobody could say, the call itself will find out, and say so.
            Ok(false) | Err(_) => Ok(ticket),
        }
    }
}
