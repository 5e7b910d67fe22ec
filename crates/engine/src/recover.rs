//! Taking up, at the start of the gateway, the tasks that its last run left unfinished.

use std::collections::HashSet;

use longshore_model::{ErrorKind, Result, TaskState, Timestamp};

use crate::actor::{Begun, Ownership};
use crate::asks::AskNews;
use crate::child::News;
use crate::children::Children;
use crate::lanes::LaneKey;
use crate::left_turns::LeftTurns;
use crate::port::{StoredTask, TurnRecord};
use crate::service::Engine;
use crate::{children, fail_point, names};

impl Engine {
    /// Gives every unfinished task an owner again, in the order in which they were made, and says how many there
    /// were. Call it before the first request is served.
    ///
    /// A task that was waiting goes on waiting. A task whose prompt may have been sent is looked up at the agent
    /// and goes on from where its log ends; it is never prompted again.
    pub async fn recover(&self) -> Result<usize> {
        self.end_damaged().await;
        let unfinished = self.around().store.unfinished().await?;
        let count = unfinished.len();
        let (mut roots, below): (Vec<_>, Vec<_>) =
            unfinished.into_iter().partition(|one| one.task.parent.is_none());
        roots.sort_by_key(rank);
        let left = LeftTurns::find(self.around()).await?;
        let (mut owners, mut followed) = (Vec::new(), HashSet::new());
        for stored in roots {
            let (mut children, mut missed) = (Vec::new(), Vec::new());
            if has_running_turn(&stored) {
                followed.insert(stored.task.id.clone());
                let store = &self.around().store;
                children = store.children(&stored.task.id).await?;
                for child in &children {
                    missed.extend(children::missed_asks(&**store, &stored.open_asks, child).await?);
                }
            }
            owners.push(self.take_up(stored, children, missed).await);
            fail_point::hit("recover.each");
        }
        let left = left.hold(self.around());
        self.around().tasks.spawn("left-turns", left.stop(self.around().clone()));
        // Every place in every lane is taken now, so it does not matter which owner runs first.
        for ownership in owners {
            self.own(ownership);
        }
        for child in below {
            if child.task.parent.as_ref().is_none_or(|parent| !followed.contains(&parent.root)) {
                self.end_orphan(child).await?;
            }
        }
        // Every turn of ours is known by now.
        self.watch_sessions().await?;
        fail_point::hit("recover.done");
        Ok(count)
    }

    /// Makes an unfinished task ready to be owned again: all its places in the lanes are taken, and its sub-agents' tasks,
    /// which `missed` some asks, have their owners.
    async fn take_up(
        &self,
        stored: StoredTask,
        children: Vec<StoredTask>,
        missed: Vec<AskNews>,
    ) -> Ownership {
        let StoredTask { owner, task, seq: head, epoch, turn, open_asks } = stored;
        let state = task.status.state;
        tracing::info!(task = %task.id, %state, "taking up a task");
        let lanes = &self.around().lanes;
        let runs = has_running_turn_in(state, turn.as_ref());
        let turn = turn.filter(|_| runs);
        // What somebody else began waits for nobody, because it runs: a turn of ours may itself wait for its end.
        let is_adopted = turn.as_ref().is_some_and(|turn| names::is_adopted(&task.id, turn));
        let enter = |key: LaneKey| {
            let id = task.id.clone();
            if is_adopted { lanes.enter_front(key, id) } else { lanes.enter(key, id) }
        };
        let place = (state != TaskState::AuthRequired)
            .then(|| enter(LaneKey::Context(owner.clone(), task.context_id.clone())));
        let mut begun = turn.map(|record| {
            let key = LaneKey::Session(record.session.id.clone());
            let resumed = children::resumed(&children);
            Begun { place: enter(key), record, resumed, children: Children::default() }
        });
        if let Some(begun) = &mut begun {
            begun.children.take_up(self.around(), &begun.record.session, children);
            for news in missed {
                begun.children.tell_of_ask(news).await;
            }
        }
        let counted = self.around().unfinished.count(&owner, &task.context_id);
        let (registration, live, inbox) = self.register(counted, task.id.clone(), head);
        let trace = None;
        Ownership {
            owner,
            registration,
            inbox,
            live,
            task,
            head,
            epoch,
            place,
            begun,
            open_asks,
            trace,
            new_context: None,
            ordered: None,
        }
    }

    /// The gateway stopped between the end of a turn and that of its sub-agent.
    async fn end_orphan(&self, child: StoredTask) -> Result<()> {
        let Some(parent) = child.task.parent.clone() else { return Ok(()) };
        let root = match self.around().store.get(&child.owner, &parent.root).await {
            // It is damaged, and could not be ended above. One task must not keep the gateway from starting.
            Err(error) if error.kind() == ErrorKind::Internal => None,
            root => root?,
        };
        let state = root.map_or(TaskState::Failed, |root| root.task.status.state);
        if let Some(news) = children::own(self.around(), "", child) {
            // The queue is new, and its reader ends with this.
            let _ = news.send(News::RootOver(state)).await;
        }
        Ok(())
    }
}

/// Who comes first in the lanes. Turns that run have their sessions. Those that waited for the agent had their turn, and say
/// why it did not begin. The others follow in the order in which they came to wait.
fn rank(stored: &StoredTask) -> (u8, Option<Timestamp>) {
    let status = &stored.task.status;
    if has_running_turn(stored) {
        return (0, None);
    }
    let had_its_turn = status.state == TaskState::Submitted && status.message.is_some();
    (if had_its_turn { 1 } else { 2 }, Some(status.at))
}

/// A task that waits, for its turn or for credentials, has no turn that runs, whatever it had before.
fn has_running_turn(stored: &StoredTask) -> bool {
    has_running_turn_in(stored.task.status.state, stored.turn.as_ref())
}

fn has_running_turn_in(state: TaskState, turn: Option<&TurnRecord>) -> bool {
    turn.is_some() && !matches!(state, TaskState::Submitted | TaskState::AuthRequired)
}
