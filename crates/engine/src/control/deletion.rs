//! Deletes sessions.
//!
//! The owner of a deleted session stays known, so that the session still belongs to nobody else. A context that is bound to it
//! goes on as after every loss of a session: its next turn opens a new one, or fails if a caller had named the session.

use longshore_model::{Result, SessionId};

use super::guard::AdmittedSession;
use crate::control_errors;
use crate::port::Control;
use crate::service::Engine;

/// Refuses to delete the session of a sub-agent, because the turn of its root session may use it.
pub(super) async fn check(control: &dyn Control, entry: &mut AdmittedSession) -> Result<()> {
    match entry.known(control).await?.parent {
        Some(_) => Err(control_errors::deletes_sub_agent()),
        None => Ok(()),
    }
}

impl Engine {
    /// Forgets the approvals in a session that is gone. Nothing asks there any more, so those that cannot be removed are only
    /// listed for longer.
    pub(super) async fn forget_approvals(&self, session: &SessionId) {
        if let Err(error) = self.revoke_all(session).await {
            tracing::warn!(%session, error = ?error, "the approvals of a deleted session are still listed");
        }
    }

    async fn revoke_all(&self, session: &SessionId) -> Result<()> {
        let store = &self.ctx().ports.store;
        // Turns, and so approvals, belong to the owner of their session.
        let Some(owned) = store.owner_of(None, session).await? else { return Ok(()) };
        for approval in store.approvals(&owned.owner, Some(session)).await? {
            store.revoke_approval(&owned.owner, &approval.request_id).await?;
        }
        Ok(())
    }
}
