//! The agent is told to stop: its task is over.

use longshore_meter::label::AbortOutcome;
use longshore_model::TraceContext;
use tokio::time::Instant;

use super::Surroundings;
use crate::port::{Session, TurnRecord, on_behalf_of};
use crate::{fail_point, left_turns};

/// A cancel that has ended its task, and not yet its turn.
#[derive(Clone, Copy)]
pub(super) struct Canceled<'a> {
    pub(super) since: Instant,
    pub(super) trace: Option<&'a TraceContext>,
    pub(super) around: &'a Surroundings,
}

/// Stops the agent. The task is over either way; but a turn that goes on would keep its session from the next one.
pub(super) async fn abort(
    around: &Surroundings,
    record: &TurnRecord,
    is_known_to_run: bool,
    canceled: Option<Canceled<'_>>,
) {
    let outcome = if is_known_to_run {
        let trace = canceled.and_then(|canceled| canceled.trace).cloned();
        on_behalf_of(trace, try_abort(around, &record.session)).await
    } else {
        AbortOutcome::NotAttempted
    };
    note(canceled, outcome);
    if outcome != AbortOutcome::Success {
        left_turns::stop(around, record.clone()).await;
    }
}

/// Counts what became of the turn of a task that was canceled, if it was.
pub(super) fn note(canceled: Option<Canceled<'_>>, outcome: AbortOutcome) {
    if let Some(Canceled { since, around, .. }) = canceled {
        around.metrics.cancel_duration.of(outcome).set(since.elapsed());
    }
}

/// Tells the agent to stop, within the time for that. Says whether it did.
pub(crate) async fn try_abort(around: &Surroundings, session: &Session) -> AbortOutcome {
    let (limit, metrics) = (around.config.cancel_abort_timeout, &around.metrics);
    metrics.abort_attempts.increment();
    fail_point::hit("abort.before");
    let told = tokio::time::timeout(limit, around.agent.abort(session)).await;
    fail_point::hit("abort.after");
    match told {
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
            // Whoever allows no time does not want to hear of it.
            if !limit.is_zero() {
                tracing::warn!(session = %session.id, ?limit, "abort took too long");
            }
            AbortOutcome::Timeout
        }
    }
}
