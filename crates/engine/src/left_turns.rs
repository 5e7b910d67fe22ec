//! Turns that are over here and that the agent may still be at work on: it could not be told to stop, or the gateway died
//! before it did so.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use longshore_model::{Result, Retry, SessionId, TaskState, Timestamp};
use tokio::time::Instant;

use crate::actor::{RETRY_FIRST, RETRY_LONGEST, Surroundings};
use crate::lanes::{LaneKey, Ticket};
use crate::names;
use crate::port::{EndedTurn, Owned, TurnRecord};

/// A turn that ended longer ago than this is not looked for when the gateway starts.
const RECENT: Duration = Duration::from_hours(24);

/// A look at one session takes no longer than this.
const ONE_LOOK: Duration = Duration::from_secs(10);

/// So many directories are looked at together.
const AT_ONCE: usize = 16;

/// What an earlier run of the gateway may have left to the agent.
#[derive(Debug)]
pub(crate) struct LeftTurns {
    /// The newest first.
    ended: Vec<EndedTurn>,
}

impl LeftTurns {
    pub(crate) async fn find(around: &Surroundings) -> Result<Self> {
        let recent = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp(around.clock.now().0.saturating_sub(recent));
        let mut ended = Vec::new();
        for turn in around.store.ended_turns(since).await? {
            if may_stop(around, &turn).await? {
                ended.push(turn);
            }
        }
        Ok(Self { ended })
    }

    /// Takes a place in the lane of each session, so that no other turn begins there before. Call it when the turns that run
    /// have theirs: they have nothing to wait for.
    pub(crate) fn hold(self, around: &Surroundings) -> HeldTurns {
        let mut by_directory: BTreeMap<String, Held> = BTreeMap::new();
        for EndedTurn { task, turn } in self.ended {
            let held = by_directory.entry(turn.session.directory.clone()).or_default();
            let session = turn.session.id.clone();
            let place = || around.lanes.enter(LaneKey::Session(session.clone()), task);
            held.places.entry(session.clone()).or_insert_with(place);
            held.turns.push(turn);
        }
        HeldTurns { by_directory }
    }
}

/// What somebody else began is stopped only if its task was canceled.
async fn may_stop(around: &Surroundings, ended: &EndedTurn) -> Result<bool> {
    let EndedTurn { task, turn } = ended;
    if !names::is_adopted(task, turn) {
        return Ok(true);
    }
    let Some(Owned { owner, .. }) = around.store.owner_of(None, &turn.session.id).await? else {
        return Ok(false);
    };
    let head = around.store.head(&owner, task).await?;
    Ok(head.is_some_and(|head| head.state == TaskState::Canceled))
}

#[derive(Debug)]
pub(crate) struct HeldTurns {
    by_directory: BTreeMap<String, Held>,
}

#[derive(Default, Debug)]
struct Held {
    turns: Vec<TurnRecord>,
    places: HashMap<SessionId, Ticket>,
}

impl HeldTurns {
    /// Each session is free as soon as the agent is done with it, whatever becomes of the others.
    pub(crate) async fn stop(self, around: Surroundings) {
        let stops: Vec<_> = self.by_directory.into_values().map(|held| stop_all(&around, held)).collect();
        stream::iter(stops).buffer_unordered(AT_ONCE).collect::<()>().await;
    }
}

/// Sees to it that the agent does not go on with this turn.
pub(crate) async fn stop(around: &Surroundings, turn: TurnRecord) {
    stop_all(around, Held { turns: vec![turn], places: HashMap::new() }).await;
}

/// The turns that are over here and that this session may be at work on. A turn waits for it, and asks only the store: while it
/// has not given up its own start, nothing may be stopped there.
pub(crate) async fn find_in(around: &Surroundings, session: &SessionId) -> Vec<TurnRecord> {
    let there = |ended: EndedTurn| (ended.turn.session.id == *session).then_some(ended.turn);
    let found = one_look(session, LeftTurns::find(around)).await;
    found.map(|left| left.ended.into_iter().filter_map(there).collect()).unwrap_or_default()
}

/// A turn waits for this session. If that is at work on one of these, which are over here, it is stopped: part of it came to
/// the agent when nobody waited for it any more.
pub(crate) async fn stop_in(around: &Surroundings, session: &SessionId, turns: &[TurnRecord]) {
    one_look(session, around.agent.stop_turns(turns)).await;
}

/// Whoever waits goes on waiting, and looks once more.
async fn one_look<T>(session: &SessionId, look: impl Future<Output = Result<T>>) -> Option<T> {
    match tokio::time::timeout(ONE_LOOK, look).await.ok()? {
        Ok(seen) => Some(seen),
        Err(error) => {
            tracing::warn!(%session, error = ?error, "cannot see what keeps the session of a turn");
            None
        }
    }
}

/// While the agent is away it is asked again, for as long as a turn waits for it to begin. After that, the next turn in the
/// session finds it busy and says so.
async fn stop_all(around: &Surroundings, held: Held) {
    let Held { mut turns, mut places } = held;
    let deadline = Instant::now() + around.config.start_patience;
    let mut pause = RETRY_FIRST;
    loop {
        let asked = tokio::select! {
            biased;
            // The next start looks for them.
            () = around.tasks.stopping().cancelled() => return,
            asked = tokio::time::timeout_at(deadline, around.agent.stop_turns(&turns)) => asked,
        };
        match asked {
            Ok(Ok(may_run)) => {
                turns.retain(|turn| may_run.contains(&turn.session.id));
                places.retain(|session, _| may_run.contains(session));
                if turns.is_empty() {
                    return;
                }
            }
            Ok(Err(error)) if error.retry() != Retry::Later || error.is_lasting() => {
                tracing::warn!(error = ?error, "the agent may go on with turns that are over");
                return;
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if Instant::now() + pause >= deadline {
            tracing::warn!("the agent may go on with turns that are over; it was asked for long enough");
            return;
        }
        tokio::select! {
            biased;
            () = around.tasks.stopping().cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_LONGEST),
        }
    }
}
