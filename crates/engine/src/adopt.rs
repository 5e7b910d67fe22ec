//! Turns that somebody else began in a session of ours, such as in the agent's own interface, made into tasks.
//!
//! Nothing here prompts. The task is made with its turn on record, in one step, and its owner takes it up as one that an
//! earlier run of the gateway began: a crash between two steps leaves nothing that looks as if it had still to be sent.
//! What is in nobody's session is left alone, and a turn of ours is never somebody else's.

use std::time::Duration;

use longshore_model::{
    Error, Message, MessageId, Part, Principal, Result, Retry, Role, Seq, Task, TaskEvent, TaskId,
    TaskOptions, Timestamp,
};
use tokio::sync::mpsc;

use crate::actor::{Begun, Ownership, RETRY_FIRST, RETRY_LONGEST};
use crate::children::Children;
use crate::lanes::LaneKey;
use crate::log_entry::Events;
use crate::port::{self, Create, Created, ExternalTurn, Owned, TurnRecord};
use crate::service::Engine;
use crate::{fail_point, lifecycle, names, states};

/// Sessions that were not used for longer than this are not watched from the start on.
const RECENT: Duration = Duration::from_hours(24);

/// How many of them are watched then, the newest.
const MOST_RECENT: usize = 10_000;

/// What a task shows of work that nobody's words began.
const WITHOUT_WORDS: &str = "(work that was begun at the agent itself)";

impl Engine {
    /// Makes tasks of what somebody else prompts in our sessions, from now on. Does nothing for an agent without a control
    /// surface.
    pub(crate) async fn watch_sessions(&self) -> Result<()> {
        let around = self.around();
        let Some(control) = around.control.clone() else { return Ok(()) };
        let recent = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp(around.clock.now().0.saturating_sub(recent));
        let sessions = around.store.recent_sessions(since, MOST_RECENT).await?;
        let external_turns = control.external_turns();
        control.watch(sessions);
        let engine = self.clone();
        around.tasks.spawn("adopt", async move { engine.adopt_all(external_turns).await });
        Ok(())
    }

    async fn adopt_all(&self, mut external_turns: mpsc::Receiver<ExternalTurn>) {
        let stopping = self.around().tasks.stopping().clone();
        loop {
            let external_turn = tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                external_turn = external_turns.recv() => external_turn,
            };
            let Some(external_turn) = external_turn else { return };
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = self.adopt_patiently(&external_turn) => {}
            }
        }
    }

    /// A store that is away is waited for: the turn runs, and nobody else will tell of it.
    async fn adopt_patiently(&self, external_turn: &ExternalTurn) {
        let mut pause = RETRY_FIRST;
        loop {
            match self.adopt(external_turn).await {
                Ok(Some(task)) => {
                    tracing::info!(%task, session = %external_turn.session.id, "somebody else's turn became a task");
                    return;
                }
                Ok(None) => return,
                Err(error) if error.retry() == Retry::Later => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => {
                    tracing::warn!(session = %external_turn.session.id, error = ?error, "a turn did not become a task");
                    return;
                }
            }
        }
    }

    /// Makes a task of it. `None`: it is ours already, or in nobody's session.
    async fn adopt(&self, external_turn: &ExternalTurn) -> Result<Option<TaskId>> {
        let around = self.around();
        let session = &external_turn.session;
        let Some(Owned { owner, .. }) = around.store.owner_of(None, &session.id).await? else {
            return Ok(None);
        };
        // Also one that was canceled and goes on: somebody sees to its end.
        if around.store.turn_of(&session.id, &external_turn.prompt).await?.is_some() {
            return Ok(None);
        }
        let bound = around.store.contexts_of(&owner, &session.id).await?.into_iter().next();
        // A context that is bound to it may have got another session by the time that the task is made. The turn is told there
        // all the same.
        let named = bound.is_none().then(|| session.id.clone());
        let context = bound.unwrap_or_else(|| names::of_session(&session.id));
        let id = names::of_adopted(&session.id, &external_turn.prompt);
        let now = around.clock.now();
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message: Message {
                context_id: Some(context.clone()),
                task_id: Some(id.clone()),
                ..said(external_turn)?
            },
            at: now,
            terms: Box::new(TaskOptions { adopted: true, ..TaskOptions::default() }),
            parent: None,
        };
        let working = lifecycle::working(now);
        let record =
            TurnRecord { session: session.clone(), prompt: external_turn.prompt.clone(), joined: Vec::new() };
        let create = Create {
            owner: owner.clone(),
            task: id.clone(),
            context,
            first: first.clone(),
            at: now,
            idempotency: None,
            directory: session.directory.clone(),
            directory_named: false,
            session: named,
            claim: None,
            begun: Some(port::Begun { working: working.clone(), turn: record.clone() }),
        };
        let new = self.ownership(owner, &first, &working, record)?;
        if !self.is_made(create).await? {
            return Ok(None);
        }
        around.metrics.adopted_turns.increment();
        states::count(&around.metrics, new.task.status.state);
        new.live.publish(Events::number(Seq::START.next(), new.epoch, [first, working]), false);
        self.own(new);
        Ok(Some(id))
    }

    /// Its places are taken before it is there: whoever finds it in the store finds its owner too. It waits for nobody, because
    /// it runs.
    fn ownership(
        &self,
        owner: Principal,
        first: &TaskEvent,
        working: &TaskEvent,
        record: TurnRecord,
    ) -> Result<Ownership> {
        let around = self.around();
        let id = names::of_adopted(&record.session.id, &record.prompt);
        let mut task = Task::begin(id.clone(), first)
            .ok_or_else(|| Error::internal("a first event that makes no task"))?;
        task.apply(working);
        let lanes = &around.lanes;
        let of_context = LaneKey::Context(owner.clone(), task.context_id.clone());
        let place = lanes.enter_front(of_context, id.clone());
        let of_session = LaneKey::Session(record.session.id.clone());
        let begun = Begun {
            place: lanes.enter_front(of_session, id.clone()),
            record,
            resumed: Vec::new(),
            children: Children::default(),
        };
        // Nobody can be refused who was not asked.
        let counted = around.unfinished.count(&owner, &task.context_id);
        let (registration, live, inbox) = self.register(counted, id, Seq::START);
        Ok(Ownership {
            owner,
            registration,
            inbox,
            live,
            task,
            head: Seq::START.next().next(),
            epoch: around.store.epoch(),
            place: Some(place),
            begun: Some(begun),
            open_asks: Vec::new(),
            trace: None,
            new_context: None,
            ordered: None,
        })
    }

    /// Whether this made the task, and not somebody before.
    async fn is_made(&self, create: Create) -> Result<bool> {
        let (mut pause, mut is_unsure) = (RETRY_FIRST, false);
        loop {
            fail_point::hit("adopt.before");
            let created = self.around().store.create(create.clone()).await;
            fail_point::hit("adopt.after");
            match created {
                Ok(Created::New) => return Ok(true),
                // The answer to the first attempt was lost.
                Ok(Created::Existing { task, .. }) => return Ok(is_unsure && task == create.task),
                Ok(refused) => {
                    tracing::warn!(task = %create.task, ?refused, "a turn did not become a task");
                    return Ok(false);
                }
                Err(error) if error.retry() == Retry::Later => {
                    is_unsure = true;
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The message that began it.
fn said(external_turn: &ExternalTurn) -> Result<Message> {
    let id = MessageId::parse(external_turn.prompt.as_str()).map_err(Error::internal)?;
    let parts = match external_turn.content.as_slice() {
        [] => vec![Part::text(WITHOUT_WORDS)],
        said => said.to_vec(),
    };
    Ok(Message::new(id, Role::User, parts))
}
