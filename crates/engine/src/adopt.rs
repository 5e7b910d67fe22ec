//! Turns external turns into tasks: turns that another client of the agent started in a session that a principal owns.
//!
//! This module never prompts the agent. The task and the record of its turn are created in one step, so that a crash cannot
//! leave a task whose prompt seems to be unsent. The actor of the task resumes the turn as it resumes turns after a restart
//! of the gateway. Unowned sessions are left alone, and a turn that the gateway started is never adopted.

use std::time::Duration;

use longshore_model::{
    Error, Message, MessageId, Part, Principal, Result, Retry, Role, Seq, TaskEvent, TaskId, TaskOptions,
    Timestamp,
};
use tokio::sync::mpsc;

use crate::actor::{ActorParts, ResumedTurn};
use crate::children::Children;
use crate::log_entry::Events;
use crate::port::{self, Create, Created, ExternalTurn, OwnedSession, TurnRecord};
use crate::retry::Backoff;
use crate::service::Engine;
use crate::snapshot::Snapshot;
use crate::turn_queue::QueueKey;
use crate::{derived_ids, fail_point, lifecycle, states};

/// When the gateway starts, it watches only the sessions that were used within this time.
const RECENT: Duration = Duration::from_hours(24);

/// When the gateway starts, it watches at most this many sessions: the most recently used ones.
const MOST_RECENT: usize = 10_000;

/// The message of a task whose turn began without a message.
const NO_MESSAGE: &str = "(work that was begun at the agent itself)";

impl Engine {
    /// Adopts external turns in owned sessions, from now on. Does nothing for an agent that has no other clients.
    pub(crate) async fn watch_sessions(&self) -> Result<()> {
        let ctx = self.ctx();
        let Some(watch) = ctx.ports.session_watch() else { return Ok(()) };
        let recent = i64::try_from(RECENT.as_millis()).unwrap_or(i64::MAX);
        let since = Timestamp(ctx.ports.clock.now().0.saturating_sub(recent));
        let sessions = ctx.ports.store.recent_sessions(since, MOST_RECENT).await?;
        let external_turns = watch.external_turns();
        watch.watch(sessions);
        let engine = self.clone();
        ctx.tasks.spawn("adopt", async move { engine.adopt_all(external_turns).await });
        Ok(())
    }

    async fn adopt_all(&self, mut external_turns: mpsc::Receiver<ExternalTurn>) {
        let stopping = self.ctx().tasks.stopping().clone();
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
                () = self.adopt_with_retries(&external_turn) => {}
            }
        }
    }

    /// Adopts the turn, and repeats the attempt while the store cannot be reached: the turn already runs and is not
    /// reported again.
    async fn adopt_with_retries(&self, external_turn: &ExternalTurn) {
        let mut backoff = Backoff::new();
        loop {
            match self.adopt(external_turn).await {
                Ok(Some(task)) => {
                    tracing::info!(%task, session = %external_turn.session.id, "adopted an external turn as a task");
                    return;
                }
                Ok(None) => return,
                Err(error) if error.retry() == Retry::Later => {
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                Err(error) => {
                    tracing::warn!(session = %external_turn.session.id, error = ?error, "an external turn could not be adopted");
                    return;
                }
            }
        }
    }

    /// Makes a task of the external turn. `None`: the gateway itself started the turn, or its session is unowned.
    async fn adopt(&self, external_turn: &ExternalTurn) -> Result<Option<TaskId>> {
        let ctx = self.ctx();
        let session = &external_turn.session;
        let Some(OwnedSession { owner, .. }) = ctx.ports.store.owner_of(None, &session.id).await? else {
            return Ok(None);
        };
        // The gateway started this turn. That includes a canceled turn that still runs: the gateway is stopping it.
        for prompt in
            [Some(&external_turn.prompt), external_turn.engine_prompt.as_ref()].into_iter().flatten()
        {
            if ctx.ports.store.turn_of(&session.id, prompt).await?.is_some() {
                return Ok(None);
            }
        }
        let bound = ctx.ports.store.contexts_of(&owner, &session.id).await?.into_iter().next();
        // A context that is bound to the session may be bound to another session by the time that the task is created. The
        // turn is reported in that context anyway.
        let named = bound.is_none().then(|| session.id.clone());
        let context = bound.unwrap_or_else(|| derived_ids::session_context(ctx.config.names, &session.id));
        let id = derived_ids::adopted_task(&session.id, &external_turn.prompt);
        let now = ctx.ports.clock.now();
        let first = TaskEvent::Submitted {
            context_id: context.clone(),
            message: Message {
                context_id: Some(context.clone()),
                task_id: Some(id.clone()),
                ..message_of(external_turn)?
            },
            at: now,
            options: Box::new(TaskOptions { adopted: true, ..TaskOptions::default() }),
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
            begun: Some(port::RunningTurn { working: working.clone(), turn: record.clone() }),
            push: None,
        };
        let new = self.actor_parts(owner, &first, &working, record)?;
        if !self.create_once(create).await? {
            return Ok(None);
        }
        ctx.metrics.adopted_turns.increment();
        states::count(&ctx.metrics, new.snapshot.task.status.state);
        new.registered
            .live
            .publish(Events::number(Seq::START.next(), new.snapshot.epoch, [first, working]), false);
        self.start_actor(new);
        Ok(Some(id))
    }

    /// Enters both queues and registers the task before the task exists, so that a caller who finds the task in the store also
    /// finds its actor. The tickets are at the front of both queues, because the turn already runs.
    fn actor_parts(
        &self,
        owner: Principal,
        first: &TaskEvent,
        working: &TaskEvent,
        record: TurnRecord,
    ) -> Result<ActorParts> {
        let ctx = self.ctx();
        let id = derived_ids::adopted_task(&record.session.id, &record.prompt);
        let mut snapshot = Snapshot::first(id.clone(), first, ctx.ports.store.epoch())?;
        snapshot.task.apply(working);
        snapshot.seq = snapshot.seq.next();
        let context = snapshot.task.context_id.clone();
        let queues = &ctx.live.queues;
        let of_context = QueueKey::Context(owner.clone(), context.clone());
        let ticket = queues.enter_front(of_context, id.clone());
        let of_session = QueueKey::Session(record.session.id.clone());
        let resumed = ResumedTurn {
            ticket: queues.enter_front(of_session, id.clone()),
            record,
            known_children: Vec::new(),
            children: Children::default(),
        };
        // Counted without a limit, because an external turn cannot be refused.
        let counted = ctx.live.unfinished.count(&owner, &context, snapshot.task.weight());
        let registered = ctx.live.registry.register(Some(counted), id, Seq::START);
        let parts = ActorParts::new(owner, registered, snapshot);
        Ok(ActorParts { ticket: Some(ticket), resumed: Some(resumed), ..parts })
    }

    /// Returns whether this call created the task.
    async fn create_once(&self, create: Create) -> Result<bool> {
        let (mut backoff, mut is_unsure) = (Backoff::new(), false);
        loop {
            fail_point::hit("adopt.before");
            let created = self.ctx().ports.store.create(create.clone()).await;
            fail_point::hit("adopt.after");
            match created {
                Ok(Created::New) => return Ok(true),
                // If an earlier attempt returned an error, that attempt may have created this task.
                Ok(Created::Existing { task, .. }) => return Ok(is_unsure && task == create.task),
                Ok(refused) => {
                    tracing::warn!(task = %create.task, ?refused, "an external turn could not be adopted");
                    return Ok(false);
                }
                Err(error) if error.retry() == Retry::Later => {
                    is_unsure = true;
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The message that started the turn.
fn message_of(external_turn: &ExternalTurn) -> Result<Message> {
    let id = MessageId::parse(external_turn.prompt.as_str()).map_err(Error::internal)?;
    let parts = match external_turn.content.as_slice() {
        [] => vec![Part::text(NO_MESSAGE)],
        parts => parts.to_vec(),
    };
    Ok(Message::new(id, Role::User, parts))
}
