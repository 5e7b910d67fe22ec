//! Lines of the audit log: one for each call of a peer, and one for each refusal. A line holds names and ids, never a message.

use longshore_meter::Metrics;
use longshore_meter::label::PeerCall;
use longshore_model::{Principal, SessionId, TaskId, redact};

/// The target of the audit lines. They are written at every configured log level.
const TARGET: &str = "longshore::audit";

/// The longest name of a peer in a line, in characters. It is bounded because a model may have written the name.
const MAX_PEER: usize = 200;

pub(crate) fn called(owner: &Principal, task: &TaskId, session: &SessionId, peer: &str, call: &str) {
    tracing::info!(target: TARGET, principal = %owner, %task, %session, peer, call, "the agent calls a peer");
}

/// `caller`: owner and task of the refused call. `None`: the gateway does not know for which task the agent calls.
pub(crate) fn refused(
    caller: Option<(&Principal, &TaskId)>,
    session: &SessionId,
    target: &str,
    reason: &str,
) {
    let (owner, task) = caller.unzip();
    tracing::info!(
        target: TARGET,
        principal = owner.map(tracing::field::display),
        task = task.map(tracing::field::display),
        %session,
        target = redact::cut_at(&redact::public(target), MAX_PEER),
        reason = redact::public(reason),
        "a call of a peer was refused"
    );
}

/// Records that the gateway refused a message from another gateway's agent because of its chain of gateways.
pub(crate) fn loop_refused(owner: Option<&Principal>, reason: &str) {
    tracing::info!(
        target: TARGET,
        principal = owner.map(tracing::field::display),
        reason,
        "a message of another gateway's agent was refused"
    );
}

/// Records and counts a tool call that was refused before its session was known. `session`: the session of the bridge, if known.
pub fn refused_unknown(metrics: &Metrics, session: Option<&SessionId>, tool: &str, reason: &str) {
    metrics.peer_calls.of(PeerCall::Refused).increment();
    tracing::info!(
        target: TARGET,
        session = session.map(tracing::field::display),
        tool,
        reason,
        "a tool call was refused, because its session is not known"
    );
}
