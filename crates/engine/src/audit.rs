//! Lines of the audit log about the answer `always`.
//!
//! A line holds only names and ids, never a caller's text or a command.

use longshore_model::{Ask, Principal, RequestId, SessionId};

use crate::config::AlwaysScope;

/// The target of these log lines. They are written whatever log level is configured.
const TARGET: &str = "longshore::audit";

/// Logs that a caller answered `always`, and that the agent accepted the answer.
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

/// Writes the audit line of a permission request that the gateway allowed because of earlier `always` answers.
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
