//! Orphaned turns: their task has ended in the gateway, but the agent may still work on them, because the abort did not reach
//! the agent, or the gateway was killed before it sent one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use longshore_model::{Result, Retry, SessionId, TaskState, Timestamp};
use tokio::time::Instant;

use crate::derived_ids;
use crate::engine_context::EngineContext;
use crate::port::{EndedTurn, OwnedSession, TurnRecord};
use crate::retry::{Backoff, sleep_unless_stopping};
use crate::turn_queue::{QueueKey, QueueTicket};

/// How long ago a task may have ended so that its turn is checked when the gateway starts.
const RECENT: Duration = Duration::from_hours(24);

/// The time limit for the check of one session.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// How many directories are checked at the same time.
const CONCURRENT_CHECKS: usize = 16;

/// The orphaned turns that an earlier run of the gateway may have left behind.
#[derive(Debug)]
pub(crate) struct OrphanedTurns {
    /// The turns, the newest first.
    ended: Vec<EndedTurn>,
}

impl OrphanedTurns {
    pub(crate) async fn find(ctx: &EngineContext) -> Result<Self> {
        if ctx.ports.agent.unfollowed_turns().is_none() {
            return Ok(Self { ended: Vec::new() });
        }
        let recent = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp(ctx.ports.clock.now().0.saturating_sub(recent));
        let mut ended = Vec::new();
        for turn in ctx.ports.store.ended_turns(since).await? {
            if may_stop(ctx, &turn).await? {
                ended.push(turn);
            }
        }
        Ok(Self { ended })
    }

    /// Enters the queue of each session, so that no other turn begins there first. Must be called after the running turns have
    /// their tickets, because a running turn must not wait behind an orphaned one.
    pub(crate) fn enter_queues(self, ctx: &EngineContext) -> Vec<SessionStops> {
        let mut by_directory: BTreeMap<String, SessionStops> = BTreeMap::new();
        for EndedTurn { task, turn } in self.ended {
            let stops = by_directory.entry(turn.session.directory.clone()).or_default();
            let session = turn.session.id.clone();
            let ticket = || ctx.live.queues.enter(QueueKey::Session(session.clone()), task);
            stops.tickets.entry(session.clone()).or_insert_with(ticket);
            stops.turns.push(turn);
        }
        by_directory.into_values().collect()
    }
}

/// Whether the gateway may stop the turn. An external turn may be stopped only if its task was canceled.
async fn may_stop(ctx: &EngineContext, ended: &EndedTurn) -> Result<bool> {
    let EndedTurn { task, turn } = ended;
    if !derived_ids::is_adopted(task, turn) {
        return Ok(true);
    }
    let Some(OwnedSession { owner, .. }) = ctx.ports.store.owner_of(None, &turn.session.id).await? else {
        return Ok(false);
    };
    let head = ctx.ports.store.head(&owner, task).await?;
    Ok(head.is_some_and(|head| head.state == TaskState::Canceled))
}

/// The orphaned turns of one directory, and the tickets that keep other turns out of their sessions.
#[derive(Default, Debug)]
pub(crate) struct SessionStops {
    turns: Vec<TurnRecord>,
    tickets: HashMap<SessionId, QueueTicket>,
}

/// Stops the orphaned turns of all directories. The ticket of a session is released as soon as the agent is done with that
/// session, however long the other sessions take.
pub(crate) async fn stop_queued(ctx: EngineContext, queued: Vec<SessionStops>) {
    let stops: Vec<_> = queued.into_iter().map(|stops| stop_all(&ctx, stops)).collect();
    stream::iter(stops).buffer_unordered(CONCURRENT_CHECKS).collect::<()>().await;
}

/// Makes sure that the agent does not continue this turn.
pub(crate) async fn stop(ctx: &EngineContext, turn: TurnRecord) {
    stop_all(ctx, SessionStops { turns: vec![turn], tickets: HashMap::new() }).await;
}

/// The orphaned turns of a session that another turn waits for. Queries only the store. Nothing may be stopped in the session
/// while that other turn is still trying to start.
pub(crate) async fn find_in(ctx: &EngineContext, session: &SessionId) -> Vec<TurnRecord> {
    let there = |ended: EndedTurn| (ended.turn.session.id == *session).then_some(ended.turn);
    let found = check(session, OrphanedTurns::find(ctx)).await;
    found.map(|turns| turns.ended.into_iter().filter_map(there).collect()).unwrap_or_default()
}

/// Stops these orphaned turns in a session that another turn waits for, if the agent works on one of them. The prompt of an
/// orphaned turn may have reached the agent after its task had ended.
pub(crate) async fn stop_in(ctx: &EngineContext, session: &SessionId, turns: &[TurnRecord]) {
    let Some(unfollowed) = ctx.ports.agent.unfollowed_turns() else { return };
    check(session, unfollowed.stop_turns(turns)).await;
}

/// Runs a query with a time limit. `None`: the query failed. The waiting turn then continues to wait and checks again.
async fn check<T>(session: &SessionId, query: impl Future<Output = Result<T>>) -> Option<T> {
    match tokio::time::timeout(CHECK_TIMEOUT, query).await.ok()? {
        Ok(seen) => Some(seen),
        Err(error) => {
            tracing::warn!(%session, error = ?error, "cannot check what blocks the session of a turn");
            None
        }
    }
}

/// Stops the turns. Repeats this while the agent cannot be reached, for as long as a turn would wait to begin. After that, the
/// next turn in the session finds the session busy and reports that.
async fn stop_all(ctx: &EngineContext, stops: SessionStops) {
    let Some(unfollowed) = ctx.ports.agent.unfollowed_turns() else { return };
    let SessionStops { mut turns, mut tickets } = stops;
    let deadline = Instant::now() + ctx.config.start_patience;
    let mut backoff = Backoff::new();
    loop {
        let stopped = tokio::select! {
            biased;
            // The next start of the gateway checks these turns again.
            () = ctx.tasks.stopping().cancelled() => return,
            stopped = tokio::time::timeout_at(deadline, unfollowed.stop_turns(&turns)) => stopped,
        };
        match stopped {
            Ok(Ok(may_run)) => {
                turns.retain(|turn| may_run.contains(&turn.session.id));
                tickets.retain(|session, _| may_run.contains(session));
                if turns.is_empty() {
                    return;
                }
            }
            Ok(Err(error)) if error.retry() != Retry::Later || error.is_permanent() => {
                tracing::warn!(error = ?error, "the agent may still run turns whose tasks have ended");
                return;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        let pause = backoff.next_pause();
        if Instant::now() + pause >= deadline {
            tracing::warn!(
                "the agent may still run turns whose tasks have ended; giving up after many attempts to stop them"
            );
            return;
        }
        if !sleep_unless_stopping(&ctx.tasks, pause).await {
            return;
        }
    }
}
