//! Turns that are over here and that the agent may still be at work on: it could not be told to stop, or the gateway died
//! before it did so.

use std::collections::HashSet;
use std::time::Duration;

use longshore_model::{Result, Retry, Timestamp};
use tokio::time::Instant;

use crate::actor::{RETRY_FIRST, RETRY_LONGEST, Surroundings};
use crate::lanes::{LaneKey, Ticket};
use crate::port::TurnRecord;

/// A turn that ended longer ago than this is not looked for when the gateway starts.
const RECENT: Duration = Duration::from_hours(24);

/// What an earlier run of the gateway may have left to the agent.
#[derive(Debug)]
pub(crate) struct LeftTurns {
    turns: Vec<TurnRecord>,
    /// The places in the lanes of their sessions, so that no other turn begins there before.
    places: Vec<Ticket>,
}

impl LeftTurns {
    /// Call it before anybody else takes a place.
    pub(crate) async fn find(around: &Surroundings) -> Result<Self> {
        let recent = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp(around.clock.now().0.saturating_sub(recent));
        let ended = around.store.ended_turns(since).await?;
        let (mut turns, mut places, mut sessions) = (Vec::new(), Vec::new(), HashSet::new());
        for ended in ended {
            let session = &ended.turn.session.id;
            if sessions.insert(session.clone()) {
                places.push(around.lanes.enter(LaneKey::Session(session.clone()), ended.task));
            }
            turns.push(ended.turn);
        }
        Ok(Self { turns, places })
    }

    pub(crate) async fn stop(self, around: Surroundings) {
        if !self.turns.is_empty() {
            stop(&around, &self.turns).await;
        }
        drop(self.places);
    }
}

/// Sees to it that the agent does not go on with these turns. While it is away it is asked again, for as long as a turn waits
/// for it to begin. After that, the next turn in the session finds it busy and says so.
pub(crate) async fn stop(around: &Surroundings, turns: &[TurnRecord]) {
    let deadline = Instant::now() + around.config.start_patience;
    let mut pause = RETRY_FIRST;
    loop {
        let asked = tokio::select! {
            biased;
            // The next start looks for them.
            () = around.tasks.stopping().cancelled() => return,
            asked = tokio::time::timeout_at(deadline, around.agent.stop_turns(turns)) => asked,
        };
        match asked {
            Ok(Ok(true)) => return,
            Ok(Err(error)) if error.retry() != Retry::Later || error.is_lasting() => {
                tracing::warn!(error = ?error, "the agent may go on with turns that are over");
                return;
            }
            _ if Instant::now() + pause >= deadline => {
                tracing::warn!("the agent may go on with turns that are over; it was away for too long");
                return;
            }
            Ok(_) | Err(_) => {}
        }
        tokio::select! {
            biased;
            () = around.tasks.stopping().cancelled() => return,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_LONGEST),
        }
    }
}
