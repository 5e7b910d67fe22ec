//! The approvals that the gateway keeps.

use std::cmp::Reverse;
use std::collections::HashMap;

use longshore_engine::port::MAX_APPROVALS;
use longshore_model::{Approval, ContextId, Principal, RequestId, SessionId};

#[derive(Default)]
pub(super) struct Approvals {
    /// The approvals of each owner: newest first, equally old ones by request id.
    by_owner: HashMap<Principal, Vec<Approval>>,
}

impl Approvals {
    pub(super) fn keep(&mut self, approval: Approval) {
        let kept = self.by_owner.entry(approval.owner.clone()).or_default();
        kept.retain(|known| known.request_id != approval.request_id);
        let session = approval.session.clone();
        kept.push(approval);
        kept.sort_by(|a, b| (Reverse(a.at), &a.request_id).cmp(&(Reverse(b.at), &b.request_id)));
        let mut left = MAX_APPROVALS;
        kept.retain(|known| {
            if known.session != session {
                return true;
            }
            let is_kept = left > 0;
            left = left.saturating_sub(1);
            is_kept
        });
    }

    pub(super) fn list(&self, owner: &Principal, session: Option<&SessionId>) -> Vec<Approval> {
        let kept = self.by_owner.get(owner).into_iter().flatten();
        let listed = kept.filter(|approval| session.is_none_or(|session| approval.session == *session));
        listed.take(MAX_APPROVALS).cloned().collect()
    }

    pub(super) fn revoke(&mut self, owner: &Principal, request: &RequestId) -> bool {
        self.remove(owner, |approval| approval.request_id == *request)
    }

    /// Removes the approvals of a context.
    pub(super) fn forget_context(&mut self, owner: &Principal, context: &ContextId) {
        self.remove(owner, |approval| approval.context == *context);
    }

    fn remove(&mut self, owner: &Principal, which: impl Fn(&Approval) -> bool) -> bool {
        let Some(kept) = self.by_owner.get_mut(owner) else { return false };
        let before = kept.len();
        kept.retain(|approval| !which(approval));
        let has_removed = kept.len() < before;
        if kept.is_empty() {
            self.by_owner.remove(owner);
        }
        has_removed
    }
}
