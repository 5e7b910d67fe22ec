//! Resumes the tasks that the last run of the gateway left unfinished, when the gateway starts.

use std::collections::HashSet;

use longshore_model::{ErrorKind, Principal, Result, TaskId, TaskState, Timestamp};

use crate::actor::{ActorParts, ResumedTurn};
use crate::asks::AskChangeForChild;
use crate::child::ChildReport;
use crate::children::Children;
use crate::held::{self, Hold};
use crate::orphaned_turns::{self, OrphanedTurns};
use crate::port::{StoredTask, TurnRecord};
use crate::service::Engine;
use crate::snapshot::Snapshot;
use crate::turn_queue::QueueKey;
use crate::{children, derived_ids, fail_point, writer};

/// The result of [`Engine::recover`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    pub unfinished: usize,
    /// How many of these tasks are held, because the store was restored from a backup.
    pub held: usize,
}

/// The tasks that the last run left unfinished, in the order of their creation.
#[derive(Default)]
struct Unfinished {
    roots: Vec<Root>,
    /// The child tasks: owner, task and root task of each.
    sub_agents: Vec<(Principal, TaskId, TaskId)>,
    /// Whether there are further tasks that cannot be read because they are damaged.
    has_damage: bool,
}

struct Root {
    /// The task, without its content if `is_unloaded`.
    stored: StoredTask,
    bytes: usize,
    is_unloaded: bool,
}

impl Engine {
    /// Starts an actor for every unfinished task. The tasks enter their queues in the order of `rank`. Must be called before the
    /// first request is served.
    ///
    /// A waiting task continues to wait; if the store was restored from a backup, the task is held. For a task whose prompt may
    /// have been sent, the agent is asked about the turn, and the task continues where its log ends. It is never prompted again.
    pub async fn recover(&self) -> Result<Recovered> {
        let Unfinished { mut roots, sub_agents, has_damage } = self.unfinished().await?;
        if has_damage {
            self.end_damaged().await;
        }
        let mut recovered = Recovered { unfinished: roots.len() + sub_agents.len(), held: 0 };
        let (restored, resume) =
            (self.ctx().ports.store.restored().await?, self.ctx().config.resume_restored);
        if restored.is_some() && resume {
            self.ctx().ports.store.forget_restored().await?;
        }
        roots.sort_by_key(|root| rank(&root.stored));
        let orphaned = OrphanedTurns::find(self.ctx()).await?;
        let (mut actors, mut resumed_roots) = (Vec::new(), HashSet::new());
        for root in roots {
            let Root { stored, .. } = &root;
            let (mut children, mut missed) = (Vec::new(), Vec::new());
            let hold = held::decide(stored, restored, resume);
            recovered.held += usize::from(hold == Some(Hold::Held));
            if has_running_turn(stored) {
                resumed_roots.insert(stored.task.id.clone());
                let store = &self.ctx().ports.store;
                children = store.children(&stored.task.id).await?;
                for child in &children {
                    missed.extend(children::missed_asks(&**store, &stored.open_asks, child).await?);
                }
            }
            let ticketless = hold == Some(Hold::Held);
            let parts = self.resume_task(root, ticketless, children, missed).await;
            actors.push(ActorParts { hold, ..parts });
            fail_point::hit("recover.each");
        }
        let queued = orphaned.enter_queues(self.ctx());
        self.ctx().tasks.spawn("orphaned-turns", orphaned_turns::stop_queued(self.ctx().clone(), queued));
        // All queue tickets already exist, so it does not matter which actor runs first.
        for parts in actors {
            self.start_actor(parts);
        }
        for (owner, child, root) in sub_agents {
            if resumed_roots.contains(&root) {
                continue;
            }
            match self.ctx().ports.store.load(&owner, &child).await {
                Ok(Some(child)) => self.end_orphan(child).await?,
                Ok(None) => {}
                // One damaged task must not keep the gateway from starting.
                Err(error) if error.kind() == ErrorKind::Internal => {
                    tracing::error!(task = %child, error = ?error, "a sub-agent's task is damaged");
                }
                Err(error) => return Err(error),
            }
        }
        // Done last, when all turns of the gateway are known and no longer look like external turns.
        self.watch_sessions().await?;
        fail_point::hit("recover.done");
        Ok(recovered)
    }

    /// Reads the unfinished tasks page by page. Only tasks with a running turn keep their content.
    async fn unfinished(&self) -> Result<Unfinished> {
        let (mut found, mut next) = (Unfinished::default(), Some(0));
        while let Some(cursor) = next {
            let page = self.ctx().ports.store.unfinished_after(cursor).await?;
            for mut stored in page.tasks {
                if let Some(parent) = &stored.task.parent {
                    found.sub_agents.push((stored.owner, stored.task.id.clone(), parent.root.clone()));
                    continue;
                }
                let bytes = stored.task.weight();
                let is_unloaded = !has_running_turn(&stored) && writer::unload(&mut stored.task);
                found.roots.push(Root { stored, bytes, is_unloaded });
            }
            found.has_damage |= page.has_damage;
            next = page.next;
        }
        Ok(found)
    }

    /// Prepares the actor of an unfinished task: enters all its queues, and starts the actors of its child tasks. With
    /// `ticketless`, the task does not enter the queue of its context, so that other tasks may go first. `missed`: the changes of
    /// asks that the logs of the child tasks lack.
    async fn resume_task(
        &self,
        root: Root,
        ticketless: bool,
        children: Vec<StoredTask>,
        missed: Vec<AskChangeForChild>,
    ) -> ActorParts {
        let Root { stored, bytes, is_unloaded } = root;
        let StoredTask { owner, task, seq, epoch, turn, open_asks } = stored;
        let state = task.status.state;
        tracing::info!(task = %task.id, %state, "resuming a task");
        let queues = &self.ctx().live.queues;
        let runs = has_running_turn_in(state, turn.as_ref());
        let turn = turn.filter(|_| runs);
        // An external turn goes to the front of the queues. The agent already runs it, and a turn of the gateway may be
        // waiting for its end.
        let is_adopted = turn.as_ref().is_some_and(|turn| derived_ids::is_adopted(&task.id, turn));
        let enter = |key: QueueKey| {
            let id = task.id.clone();
            if is_adopted { queues.enter_front(key, id) } else { queues.enter(key, id) }
        };
        let ticket = (state != TaskState::AuthRequired && !ticketless)
            .then(|| enter(QueueKey::Context(owner.clone(), task.context_id.clone())));
        let mut resumed = turn.map(|record| {
            let key = QueueKey::Session(record.session.id.clone());
            let known_children = children::resumed(&children);
            ResumedTurn { ticket: enter(key), record, known_children, children: Children::default() }
        });
        if let Some(turn) = &mut resumed {
            turn.children.resume(self.ctx(), &turn.record.session, children);
            for change in missed {
                turn.children.report_ask(change).await;
            }
        }
        let counted = self.ctx().live.unfinished.count(&owner, &task.context_id, bytes);
        let registered = self.ctx().live.registry.register(Some(counted), task.id.clone(), seq);
        let snapshot = Snapshot { task, seq, epoch };
        ActorParts { ticket, resumed, is_unloaded, open_asks, ..ActorParts::new(owner, registered, snapshot) }
    }

    /// Ends a child task whose root task has no running turn, because the gateway stopped after the end of the root's turn and
    /// before the end of the child task.
    async fn end_orphan(&self, child: StoredTask) -> Result<()> {
        let Some(parent) = child.task.parent.clone() else { return Ok(()) };
        let root = match self.ctx().ports.store.get(&child.owner, &parent.root).await {
            // The root task is damaged and could not be ended. One damaged task must not keep the gateway from starting.
            Err(error) if error.kind() == ErrorKind::Internal => None,
            root => root?,
        };
        let state = root.map_or(TaskState::Failed, |root| root.task.status.state);
        if let Some(reports) = children::start_actor(self.ctx(), "", child) {
            // The send cannot fail: the queue is new, and the actor ends only after this report.
            let _ = reports.send(ChildReport::RootOver(state)).await;
        }
        Ok(())
    }
}

/// The order in which tasks enter their queues after a restart. First come tasks with a running turn, because they occupy
/// their sessions. Then come tasks that had reached the front of their queue but had to wait for the agent, as their status
/// message says. The others follow in the order in which they began to wait.
fn rank(stored: &StoredTask) -> (u8, Option<Timestamp>) {
    let status = &stored.task.status;
    if has_running_turn(stored) {
        return (0, None);
    }
    let had_its_turn = status.state == TaskState::Submitted && status.message.is_some();
    (if had_its_turn { 1 } else { 2 }, Some(status.at))
}

/// Whether the turn of the task runs. A task that waits for its turn or for credentials has none, even if it had one before.
fn has_running_turn(stored: &StoredTask) -> bool {
    has_running_turn_in(stored.task.status.state, stored.turn.as_ref())
}

fn has_running_turn_in(state: TaskState, turn: Option<&TurnRecord>) -> bool {
    turn.is_some() && !matches!(state, TaskState::Submitted | TaskState::AuthRequired)
}
