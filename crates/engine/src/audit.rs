//! Lines of the audit log about the answer `always`.
//!
//! A line holds names only: never what a caller wrote, nor a command.

use longshore_model::{Ask, Principal, RequestId, SessionId};

use crate::config::AlwaysScope;

/// The target of these log lines. They are written whatever log level is configured.
const TARGET: &str = "longshore::audit";

/// A caller answered `always`, and the agent goes on.
pub(crate) fn always_answered(
    owner: &Principal,
    request: &RequestId,
    session: Option<&SessionId>,
    scope: AlwaysScope,
) {
    tracing::info!(
        target: TARGET,
        principal = %owner,
        target = %request,
        session = session.map(display),
        scope = scope.as_str(),
        "a permission was answered with always"
    );
}

/// Kept approvals answered an ask.
pub(crate) fn approval_used(owner: &Principal, ask: &Ask, by: &[&RequestId], session: &SessionId) {
    let by: Vec<_> = by.iter().map(|request| request.as_str()).collect();
    tracing::info!(
        target: TARGET,
        principal = %owner,
        target = %ask.request_id,
        %session,
        scope = AlwaysScope::Session.as_str(),
        approvals = by.join(","),
        "a kept approval answered a permission"
    );
}
