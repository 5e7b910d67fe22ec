//! Deletes sessions.
//!
//! The store keeps the owner of a deleted session, so that no other caller can claim it. A context that is bound to the
//! session behaves as after every loss of a session: its next turn opens a new session, or fails if a caller had named the
//! session.

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
    /// Removes the approvals of a deleted session. Nothing asks in that session any more, so an approval that cannot be removed
    /// does no harm: it only stays in the list for longer.
    pub(super) async fn forget_approvals(&self, session: &SessionId) {
        if let Err(error) = self.revoke_all(session).await {
            tracing::warn!(%session, error = ?error, "the approvals of a deleted session are still listed");
        }
    }

    async fn revoke_all(&self, session: &SessionId) -> Result<()> {
        let store = &self.ctx().ports.store;
        // Turns belong to the owner of their session, and so do the approvals given in them.
        let Some(owned) = store.owner_of(None, session).await? else { return Ok(()) };
        for approval in store.approvals(&owned.owner, Some(session)).await? {
            store.revoke_approval(&owned.owner, &approval.request_id).await?;
        }
        Ok(())
    }
}
