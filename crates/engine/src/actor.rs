//! The actor of one live task: waits for its turn, drives the agent, and writes the log.
//!
//! An actor ends when its task is over. When the gateway stops, the actor leaves the task unfinished, and the next start
//! resumes it. Every wait in this module checks the stop signal first. An actor that stops also leaves its session queue,
//! and the next actor in that queue must see the stop signal before it can start its turn.

mod begin;
mod follow;
mod limit;
mod native_prompt;
mod patience;
mod request;
mod start;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_meter::label::AbortOutcome;
use longshore_model::{
    AgentEvent, Error, Failure, Interrupt, Json, Metadata, Outcome, Principal, Result, Retry, TaskState,
    TraceContext,
};
use serde::Serialize;
use tokio::time::Instant;

use self::follow::TurnEnd;
pub(crate) use self::native_prompt::PendingPrompt;
use self::request::handle_without_turn;
use crate::abort::{self, Canceled};
use crate::actor_request::{ActorRequest, INBOX_CAPACITY, Joining};
use crate::asks::Asks;
use crate::children::Children;
use crate::engine_context::EngineContext;
use crate::held::Hold;
use crate::joins::Joins;
use crate::port::{ContextLocation, Prompting, ResumedChild, TurnRecord};
use crate::queue;
use crate::registry::{Registered, Registration};
use crate::retry::Backoff;
use crate::snapshot::Snapshot;
use crate::turn_limiter::TurnPermit;
use crate::turn_queue::{QueueKey, QueueTicket};
use crate::turn_span::TurnSpan;
use crate::writer::Writer;
use crate::{derived_ids, held, lifecycle};

/// The arguments from which an actor is created.
#[derive(Debug)]
pub(crate) struct ActorParts {
    pub(crate) owner: Principal,
    pub(crate) registered: Registered,
    pub(crate) snapshot: Snapshot,
    /// The task's ticket in the queue of its context. `None` for a task that waits for credentials.
    pub(crate) ticket: Option<QueueTicket>,
    /// The turn that already runs: a restart interrupted it, or another client of the agent started it. `None`: the task has no turn
    /// yet.
    pub(crate) resumed: Option<ResumedTurn>,
    /// Whether the snapshot lacks history and artifacts, which the actor then reads from the store when the turn begins.
    pub(crate) is_unloaded: bool,
    /// Why a task from a restored backup must not begin by itself. `None`: the task may begin.
    pub(crate) hold: Option<Hold>,
    /// The asks that were open at the restart.
    pub(crate) open_asks: Vec<Interrupt>,
    /// The trace context of the request that started the turn. A restart loses it.
    pub(crate) trace: Option<TraceContext>,
    /// The location of the context, if the context was created together with the task. Saves a query to the store.
    pub(crate) new_context: Option<ContextLocation>,
    /// The native prompt that started the turn, until the agent has accepted it. A restart loses it.
    pub(crate) pending_prompt: Option<Box<PendingPrompt>>,
}

impl ActorParts {
    /// Leaves the optional parts empty: the task is in no queue, has no turn to resume, and no caller waits for it.
    pub(crate) fn new(owner: Principal, registered: Registered, snapshot: Snapshot) -> Self {
        Self {
            owner,
            registered,
            snapshot,
            is_unloaded: false,
            ticket: None,
            resumed: None,
            hold: None,
            open_asks: Vec::new(),
            trace: None,
            new_context: None,
            pending_prompt: None,
        }
    }
}

/// A turn that an earlier run of the gateway began, and its ticket in the queue of its session. Recovery enters the queue
/// before any actor runs, so that no waiting task gets ahead of this turn.
#[derive(Debug)]
pub(crate) struct ResumedTurn {
    pub(crate) record: TurnRecord,
    pub(crate) ticket: QueueTicket,
    /// The turn's sub-agents, ended or not, in the form that the agent's driver needs.
    pub(crate) known_children: Vec<ResumedChild>,
    /// The same sub-agents, with their actors.
    pub(crate) children: Children,
}

#[derive(Debug)]
pub(crate) struct Actor {
    ctx: EngineContext,
    owner: Principal,
    registration: Registration,
    inbox: queue::Receiver<ActorRequest>,
    writer: Writer,
    /// The task's ticket in the queue of its context. `None`: the task is not in the queue.
    ticket: Option<QueueTicket>,
    /// The turn to resume, if any. Boxed, because most actors have none.
    resumed: Option<Box<ResumedTurn>>,
    hold: Option<Hold>,
    asks: Asks,
    joins: Joins,
    children: Children,
    trace: Option<TraceContext>,
    /// The span of the turn that runs or is about to run, if spans are recorded. Boxed, because most actors have none.
    span: Option<Box<TurnSpan>>,
    new_context: Option<ContextLocation>,
    /// The native prompt that the agent has not accepted yet. Boxed, because most actors have none.
    pending_prompt: Option<Box<PendingPrompt>>,
    /// Requests that arrived during the turn while the actor waited for other work.
    parked: VecDeque<ActorRequest>,
    /// A turn runs or is about to run. Answers and joining messages that cannot be handled at once are then kept for the turn.
    is_running: bool,
    /// Whether the agent has reported everything that happened to the turn while the gateway was down.
    has_caught_up: bool,
}

/// Why an actor's work stopped before its turn ended by itself.
#[derive(Debug)]
enum StopReason {
    /// The task is over: it failed or ran out of time.
    TaskEnded,
    /// The task is over: a caller canceled it.
    Canceled { since: Instant, trace: Option<Box<TraceContext>> },
    /// The agent lacks credentials and could not begin. The task waits for another message.
    NeedsCredentials,
    /// The gateway stops, or the actor cannot write the log any more. The task does not change.
    Suspended,
}

/// The turn of this task, with its ticket in the session queue and its permit from the turn limiter.
#[derive(Debug)]
struct ActiveTurn {
    record: TurnRecord,
    /// How far the prompt has come: whether the agent may already have received it.
    prompting: Prompting,
    ticket: QueueTicket,
    /// The permit of the turn limiter. Like the ticket, it is kept until the agent is idle.
    permit: TurnPermit,
}

impl Actor {
    pub(crate) fn new(ctx: EngineContext, parts: ActorParts) -> Self {
        let ctx = EngineContext { tasks: ctx.tasks.with_own_signal(), ..ctx };
        let ActorParts { owner, registered, snapshot, ticket, open_asks, .. } = parts;
        let Registered { registration, live, inbox } = registered;
        let mut resumed = parts.resumed.map(Box::new);
        let children = resumed.as_mut().map(|turn| std::mem::take(&mut turn.children)).unwrap_or_default();
        let asks = Asks::new(ctx.config.asks, open_asks, &ctx.live.open_asks);
        let bytes = registration.bytes().unwrap_or_else(|| ctx.live.unfinished.count_bytes(&owner, 0));
        let mut writer = Writer::new(&ctx, live, owner.clone(), snapshot, bytes);
        if parts.is_unloaded {
            writer.set_unloaded();
        }
        Self {
            ctx,
            owner,
            registration,
            inbox,
            writer,
            ticket,
            resumed,
            hold: parts.hold,
            asks,
            joins: Joins::default(),
            children,
            trace: parts.trace,
            span: None,
            new_context: parts.new_context,
            pending_prompt: parts.pending_prompt,
            parked: VecDeque::new(),
            is_running: false,
            has_caught_up: true,
        }
    }

    /// Takes `self` in a box, because the future of an async function would hold a plain argument twice.
    pub(crate) async fn run(mut self: Box<Self>) {
        let mut active = None;
        let stop = match AssertUnwindSafe(self.run_task(&mut active)).catch_unwind().await {
            Ok(Ok(())) => StopReason::TaskEnded,
            Ok(Err(stop)) => stop,
            Err(_) => {
                tracing::error!(task = %self.writer.task().id, "the actor of a task panicked");
                let failure = Failure::new("The gateway failed, and how the turn ended is not known.");
                Box::pin(self.fail_with(failure)).await
            }
        };
        self.end_span();
        Box::pin(self.shut_down(stop, active)).await;
    }

    /// Stops the agent's turn, if it may still run, and ends the tasks of its sub-agents.
    async fn shut_down(self: Box<Self>, stop: StopReason, active: Option<ActiveTurn>) {
        let state = self.writer.task().status.state;
        // An external turn is stopped only if a caller canceled its task.
        let is_adopted = active.as_ref().is_some_and(|active| self.is_adopted(&active.record));
        let may_stop = state == TaskState::Canceled || !is_adopted;
        let ended_at = self.writer.now();
        // From here on the registry has no actor for this task, so operations read the task from the store. The queue
        // tickets and the permit are kept until the agent is idle.
        let Self {
            ctx,
            registration,
            inbox,
            writer,
            ticket,
            children,
            asks,
            joins,
            pending_prompt,
            parked,
            has_caught_up,
            ..
        } = *self;
        drop((inbox, registration, writer, joins, pending_prompt, parked));
        if let StopReason::Suspended = stop {
            return;
        }
        asks.end(ended_at);
        let canceled = match &stop {
            StopReason::Canceled { since, trace } => {
                Some(Canceled { since: *since, trace: trace.as_deref(), ctx: &ctx })
            }
            StopReason::TaskEnded | StopReason::NeedsCredentials | StopReason::Suspended => None,
        };
        let abort = async {
            match &active {
                Some(ActiveTurn { record, prompting, .. }) if prompting.has_begun() && may_stop => {
                    // If the turn failed, or if the agent did not find the turn after a restart, the gateway does not know
                    // whether the turn still runs. An unconditional abort could then stop another client's turn in the session.
                    let is_known_to_run = state == TaskState::Canceled && has_caught_up;
                    abort::abort(&ctx, record, is_known_to_run, canceled).await;
                }
                Some(_) => abort::record_outcome(canceled, AbortOutcome::NoRunningTask),
                None => abort::record_outcome(canceled, AbortOutcome::NoSessionBinding),
            }
        };
        // Both run at the same time, because each may take long: one calls the store, the other the agent.
        tokio::join!(Box::pin(children.end(state)), Box::pin(abort));
        drop((active, ticket));
    }

    /// Runs the task from start to end. Sets `active` to the prompted turn, so that the caller of this function can stop it.
    async fn run_task(&mut self, active: &mut Option<ActiveTurn>) -> Result<(), StopReason> {
        if let Some(hold) = self.hold.take() {
            Box::pin(self.wait_for_release(hold)).await?;
        }
        loop {
            if self.writer.task().status.state == TaskState::AuthRequired {
                Box::pin(self.wait_for_credentials()).await?;
            }
            // The steps before the turn are boxed, so that their futures take no memory during the turn, which may be long.
            Box::pin(self.wait_for_context()).await?;
            self.has_caught_up = self.resumed.is_none();
            let now = self.writer.now();
            self.span = TurnSpan::begin(&self.ctx.ports.spans, self.trace.as_ref(), now).map(Box::new);
            let (mut turn, is_new) = match self.resumed.take() {
                Some(resumed) => (Box::pin(self.resume(*resumed, active)).await?, false),
                None => match Box::pin(self.begin(active)).await {
                    Err(StopReason::NeedsCredentials) => {
                        self.release_session(active);
                        continue;
                    }
                    begun => (begun?, true),
                },
            };
            tracing::debug!(task = %self.writer.task().id, "turn started");
            let refusal = turn.refusal.take();
            if refusal.is_some() {
                self.forget_prompt_key();
            } else {
                self.report_prompt(Ok(()));
                self.pending_prompt = None;
            }
            // `resume` and `begin` have both set `active`.
            let Some(current) = active else { return Ok(()) };
            // The time before the prompt was sent does not count. If an earlier run of the gateway sent the prompt, the time
            // of sending is only in the log.
            let deadline = if is_new {
                self.deadline_from(current.prompting.since())
            } else {
                self.deadline(&current.record)
            };
            let followed = self.follow(turn, deadline, current).await;
            if let Some(refusal) = refusal {
                // Reported only after the log has the end of the task. A sender that repeats the same prompt at once must not find
                // the old task unfinished.
                self.report_prompt(Err(refusal));
            }
            match followed? {
                // The driver may give up a turn without being able to stop it in the agent.
                TurnEnd::ByAgent if self.writer.task().status.state == TaskState::Failed => return Ok(()),
                TurnEnd::ByAgent => {
                    current.prompting = Prompting::default();
                    return Ok(());
                }
                TurnEnd::Unknown => return Ok(()),
                TurnEnd::NeedsCredentials => {}
            }
            self.release_session(active);
        }
    }

    /// Leaves the session queue. No turn runs while the task waits for credentials, so other tasks may use the session.
    fn release_session(&mut self, active: &mut Option<ActiveTurn>) {
        self.end_span();
        self.is_running = false;
        self.parked.clear();
        *active = None;
        self.ticket = None;
    }

    /// Waits after the model provider rejected the agent's credentials. The next message starts another attempt. If no message
    /// comes before the deadline for asks, the task fails.
    async fn wait_for_credentials(&mut self) -> Result<(), StopReason> {
        let since = self.writer.task().status.at;
        let left = self.ctx.config.asks.time_to_live.map(|limit| {
            let waited = self.writer.now().0.saturating_sub(since.0);
            limit.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0)))
        });
        let deadline = left.map(|left| Instant::now() + left);
        loop {
            self.writer.unload();
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping().cancelled() => return Err(StopReason::Suspended),
                request = self.inbox.recv() => match request {
                    Some(ActorRequest::Join(joining)) => {
                        self.load().await?;
                        let (now, room) = (self.writer.snapshot(), self.writer.room());
                        if let Some(joining) = self.joins.check(*joining, &self.ctx.metrics, room, || now) {
                            return self.submit_again(joining).await;
                        }
                    }
                    other => handle_without_turn(&mut self.writer, self.asks.requests(), other).await?,
                },
                () = limit::reached(deadline) => {
                    let text = "The agent was not given its credentials in time.";
                    return Err(self.fail_with(Failure::new(text)).await);
                }
            }
        }
    }

    /// Writes to the log why the task is held, and waits until a message releases the task.
    async fn wait_for_release(&mut self, hold: Hold) -> Result<(), StopReason> {
        if hold == Hold::Released {
            self.load().await?;
            let released = lifecycle::released(self.writer.task(), None);
            self.writer.push(released);
            return self.flush(None).await;
        }
        if !held::is_held(self.writer.task()) {
            self.load().await?;
            let why = lifecycle::held(self.writer.task());
            self.writer.push(why);
            self.flush(None).await?;
        }
        self.writer.unload();
        loop {
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping().cancelled() => return Err(StopReason::Suspended),
                request = self.inbox.recv() => match request {
                    Some(ActorRequest::Join(joining)) => {
                        let Joining { message, key, trace, reply, .. } = *joining;
                        self.trace = trace;
                        self.load().await?;
                        self.enter_context();
                        let released = lifecycle::released(self.writer.task(), Some(message));
                        self.writer.push_join(released, key);
                        self.flush(None).await?;
                        // The caller may have disconnected; the message releases the task anyway.
                        let _ = reply.send(Ok(self.writer.snapshot()));
                        return Ok(());
                    }
                    other => handle_without_turn(&mut self.writer, self.asks.requests(), other).await?,
                },
            }
        }
    }

    /// Enters the queue of the task's context, behind all others.
    fn enter_context(&mut self) {
        let key = QueueKey::Context(self.owner.clone(), self.writer.task().context_id.clone());
        self.ticket = Some(self.ctx.live.queues.enter(key, self.writer.task().id.clone()));
    }

    async fn submit_again(&mut self, joining: Joining) -> Result<(), StopReason> {
        let Joining { message, key: send, options, trace, reply, .. } = joining;
        self.trace = trace;
        self.enter_context();
        let options = options.or(&self.writer.task().options.prompt);
        let again = lifecycle::submitted_again(self.writer.now(), message, options);
        self.writer.push_join(again, send);
        self.flush(None).await?;
        // The caller may have disconnected; the message starts another attempt anyway.
        let _ = reply.send(Ok(self.writer.snapshot()));
        Ok(())
    }

    /// Whether another client of the agent started the turn. Such a turn has no time limit.
    fn is_adopted(&self, turn: &TurnRecord) -> bool {
        let task = self.writer.task();
        task.options.adopted && derived_ids::is_adopted(&task.id, turn)
    }

    /// Waits until the task is first in the queue of its context.
    async fn wait_for_context(&mut self) -> Result<(), StopReason> {
        let Some(mut ticket) = self.ticket.take() else { return Ok(()) };
        if ticket.ready().now_or_never().is_none() {
            if self.resumed.is_some() {
                // The task is first. Its content is needed even if another turn still runs: the agent may be waiting for it.
                self.report_queued();
            } else {
                self.rest();
            }
        }
        let ready = self.unless_stopped(async {
            ticket.ready().await;
            ticket
        });
        self.ticket = Some(ready.await?);
        Ok(())
    }

    /// Marks the task as waiting, and drops its content from memory, because the wait may be long.
    fn rest(&mut self) {
        self.report_queued();
        self.writer.unload();
    }

    /// Reads the content of a task that has waited back from the store. Ends early on a cancel or when the gateway stops.
    async fn load(&mut self) -> Result<(), StopReason> {
        let mut backoff = Backoff::new();
        while let Some(loading) = self.writer.loading() {
            match self.unless_stopped(loading).await? {
                Ok(stored) => {
                    self.writer.loaded(stored).map_err(|error| log_lost(&self.writer, &error))?;
                }
                Err(error) if error.retry() == Retry::Later => {
                    self.writer.note_store_failure(&error);
                    self.unless_stopped(tokio::time::sleep(backoff.next_pause())).await?;
                }
                Err(error) => {
                    let ended = Box::pin(self.writer.end_refused(&error)).await;
                    return Err(match ended {
                        Ok(()) => StopReason::TaskEnded,
                        Err(error) => log_lost(&self.writer, &error),
                    });
                }
            }
        }
        Ok(())
    }

    /// Runs `work`, unless the task is canceled or the gateway stops in the meantime. If a turn runs, answers and joining
    /// messages that arrive meanwhile are kept until the actor follows the turn again.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, StopReason> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.ctx.tasks.stopping().cancelled() => return Err(StopReason::Suspended),
                done = &mut work => return Ok(done),
                request = self.inbox.recv() => match request {
                    Some(request @ (ActorRequest::Answer(_) | ActorRequest::Join(_)))
                        if self.is_running && self.parked.len() < INBOX_CAPACITY =>
                    {
                        self.parked.push_back(request);
                    }
                    other => handle_without_turn(&mut self.writer, self.asks.requests(), other).await?,
                },
            }
        }
    }

    /// Replies to the requests that were kept for the turn as if there were no turn, because nobody knows when the turn will
    /// begin.
    async fn reject_parked(&mut self) -> Result<(), StopReason> {
        self.is_running = false;
        while let Some(parked) = self.parked.pop_front() {
            handle_without_turn(&mut self.writer, self.asks.requests(), Some(parked)).await?;
        }
        Ok(())
    }

    /// Calls the store, and repeats the call while the store cannot be reached. Another error fails the task.
    async fn call_store<T, F>(&mut self, mut call: impl FnMut(&EngineContext) -> F) -> Result<T, StopReason>
    where
        F: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new();
        loop {
            let called = call(&self.ctx);
            match self.unless_stopped(called).await? {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retry() == Retry::Later => {
                    self.unless_stopped(tokio::time::sleep(backoff.next_pause())).await?;
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Handles a turn that cannot begin: the task fails, or waits for the agent's credentials. With a native prompt the task
    /// always fails, because the sender waits for the result.
    async fn cannot_begin(&mut self, error: &Error) -> StopReason {
        if !error.needs_credentials() || self.pending_prompt.is_some() {
            return self.fail(error).await;
        }
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent lacks credentials");
        if let Err(stop) = self.load().await {
            return stop;
        }
        self.writer.take(AgentEvent::Ended(Outcome::AuthRequired(failure_of(error))));
        self.flush(None).await.err().unwrap_or(StopReason::NeedsCredentials)
    }

    async fn fail(&mut self, error: &Error) -> StopReason {
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the turn could not be run");
        // If the agent may have received the prompt, its idempotency key is kept: a repeated send must not start a second
        // turn.
        if !error.is_maybe_applied() {
            self.forget_prompt_key();
        }
        let stop = self.fail_with(failure_of(error)).await;
        self.report_prompt(Err(error.clone()));
        stop
    }

    fn end_span(&mut self) {
        if let Some(span) = self.span.take() {
            span.end(self.writer.task(), self.writer.now());
        }
    }

    async fn fail_with(&mut self, failure: Failure) -> StopReason {
        if let Some(span) = &mut self.span {
            span.failed(failure.metadata.as_ref());
        }
        if let Err(stop) = self.load().await {
            return stop;
        }
        let failed = lifecycle::failed(self.writer.task(), self.writer.now(), failure);
        self.writer.push(failed);
        match self.flush(None).await {
            Ok(()) => StopReason::TaskEnded,
            Err(stop) => stop,
        }
    }

    async fn flush(&mut self, turn: Option<TurnRecord>) -> Result<(), StopReason> {
        self.writer.flush(turn).await.map_err(|error| log_lost(&self.writer, &error))?;
        if self.writer.was_refused() { Err(StopReason::TaskEnded) } else { Ok(()) }
    }
}

fn log_lost(writer: &Writer, error: &Error) -> StopReason {
    tracing::error!(task = %writer.task().id, error = ?error, "the log cannot be written; leaving the task as it is");
    StopReason::Suspended
}

/// The error as the reason of a failure: its text for people, its kind and retry hint for programs.
fn failure_of(error: &Error) -> Failure {
    #[derive(Serialize)]
    struct Reason<'a> {
        longshore: Named<'a>,
    }
    #[derive(Serialize)]
    struct Named<'a> {
        error: Kind<'a>,
    }
    #[derive(Serialize)]
    struct Kind<'a> {
        #[serde(rename = "type")]
        label: &'a str,
        retryable: bool,
    }
    let kind = Kind { label: error.kind().label(), retryable: error.retry() == Retry::Later };
    let reason = Json::from_value(&Reason { longshore: Named { error: kind } });
    Failure { metadata: Metadata::try_from(reason).ok(), ..Failure::new(error.message()) }
}

#[cfg(test)]
mod tests;
