//! Stopping the agent's turn after its task has ended.

use longshore_meter::label::AbortOutcome;
use longshore_model::TraceContext;
use tokio::time::Instant;

use crate::engine_context::EngineContext;
use crate::port::{Session, TurnRecord, with_caller_trace};
use crate::{fail_point, orphaned_turns};

/// A cancel whose task has ended while the agent's turn may still run.
#[derive(Clone, Copy)]
pub(crate) struct Canceled<'a> {
    pub(crate) since: Instant,
    pub(crate) trace: Option<&'a TraceContext>,
    pub(crate) ctx: &'a EngineContext,
}

/// Tries to stop the turn in the agent. The task has already ended, but a turn that keeps running would block its session
/// for the next turn.
pub(crate) async fn abort(
    ctx: &EngineContext,
    record: &TurnRecord,
    is_known_to_run: bool,
    canceled: Option<Canceled<'_>>,
) {
    // If no other client can start a turn in the session, the abort can only hit this turn.
    let outcome = if is_known_to_run || ctx.ports.agent.unfollowed_turns().is_none() {
        let trace = canceled.and_then(|canceled| canceled.trace).cloned();
        with_caller_trace(trace, try_abort(ctx, &record.session)).await
    } else {
        AbortOutcome::NotAttempted
    };
    record_outcome(canceled, outcome);
    if outcome != AbortOutcome::Success {
        orphaned_turns::stop(ctx, record.clone()).await;
    }
}

/// Records the outcome and the duration of the cancel in the metrics, if a caller canceled the task.
pub(crate) fn record_outcome(canceled: Option<Canceled<'_>>, outcome: AbortOutcome) {
    if let Some(Canceled { since, ctx, .. }) = canceled {
        ctx.metrics.cancel_duration.of(outcome).set(since.elapsed());
    }
}

/// Tells the agent to stop, within the configured time.
pub(crate) async fn try_abort(ctx: &EngineContext, session: &Session) -> AbortOutcome {
    let (limit, metrics) = (ctx.config.cancel_abort_timeout, &ctx.metrics);
    metrics.abort_attempts.increment();
    fail_point::hit("abort.before");
    let stopped = tokio::time::timeout(limit, ctx.ports.agent.cancel(session)).await;
    fail_point::hit("abort.after");
    match stopped {
        Ok(Ok(())) => {
            metrics.abort_successes.increment();
            AbortOutcome::Success
        }
        Ok(Err(error)) => {
            metrics.abort_errors.increment();
            tracing::warn!(session = %session.id, error = ?error, "abort failed");
            AbortOutcome::Error
        }
        Err(_) => {
            metrics.abort_timeouts.increment();
            // A timeout of zero is the operator's way to switch these warnings off.
            if !limit.is_zero() {
                tracing::warn!(session = %session.id, ?limit, "abort took too long");
            }
            AbortOutcome::Timeout
        }
    }
}
