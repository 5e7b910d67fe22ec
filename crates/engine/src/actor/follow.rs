//! Follows a running turn: writes the agent's reports to the log, and passes the answers and messages of callers to the
//! agent.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use longshore_meter::label;
use longshore_model::approval;
use longshore_model::{
    AgentEvent, AgentFile, Answer, Ask, BlockRef, ChildEvent, Closed, Error, ErrorKind, Failure, Outcome,
    Resolution, Result, Retry, SessionId, TaskId,
};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFuture;

use super::limit::{self, Limit, Overtime};
use super::request::handle_without_turn;
use super::{ActiveTurn, Actor, StopReason};
use crate::actor_request::ActorRequest;
use crate::asks::{ApprovalChange, Delivered, Settled};
use crate::audit;
use crate::children::Root;
use crate::engine_context::EngineContext;
use crate::files::FileKeeper;
use crate::joins::Step;
use crate::lifecycle;
use crate::port::{Session, Turn, TurnRecord};
use crate::queue;
use crate::retry::{Backoff, LONGEST_PAUSE};

/// How a turn ended, if the actor did not stop it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TurnEnd {
    /// The agent reports that the turn is over.
    ByAgent,
    /// The agent reports that it lacks credentials. The task is not over.
    NeedsCredentials,
    /// The driver ended without reporting the end. The agent may still work on the turn.
    Unknown,
}

/// A report that needs more than an event in the task's own log, for example a call to the store.
enum SlowReport {
    File(BlockRef, AgentFile),
    Child(SessionId, ChildEvent),
    /// An ask that a kept approval may cover.
    Asked(Ask),
    /// An ask of a resumed turn, which may already be in the log.
    AskedBefore(Ask),
    /// An ask beyond the limit of open asks, and the answer that the gateway gives by itself.
    TooMany(Ask, Answer),
    /// The turn is about to end. Before that, the actors of its sub-agents must write all events that they have received,
    /// because the agent does not report these events again after the end.
    LastOfChildren,
}

/// The result of a batch of reports.
#[derive(Default)]
struct Batch {
    end: Option<TurnEnd>,
    slow: Option<Box<SlowReport>>,
    /// The end of the turn, if the batch contained it. Handled after the other work of the batch.
    held: Option<Box<AgentEvent>>,
}

/// The next thing that happens to a running turn.
enum Next {
    Stopped,
    Request(Option<ActorRequest>),
    /// The agent has accepted or refused an answer.
    Delivered(Box<Delivered>),
    Joining(Step),
    AskExpired,
    Limit,
    /// The agent has reported the end of the turn, and no answer or message is still on its way.
    MayEnd,
    Report(Option<AgentEvent>),
}

impl Batch {
    fn slow(report: SlowReport) -> Self {
        Self { slow: Some(Box::new(report)), ..Self::default() }
    }

    fn end(end: TurnEnd) -> Self {
        Self { end: Some(end), ..Self::default() }
    }

    fn held(outcome: Outcome) -> Self {
        Self { held: Some(Box::new(AgentEvent::Ended(outcome))), ..Self::default() }
    }
}

impl Actor {
    /// Writes the agent's reports until the turn is over. Each message that joins is added to the record of the turn.
    pub(super) async fn follow(
        &mut self,
        mut turn: Turn,
        deadline: Option<Instant>,
        active: &mut ActiveTurn,
    ) -> Result<TurnEnd, StopReason> {
        let ActiveTurn { record, permit, .. } = active;
        let mut limit = Limit::new(deadline);
        let asks_wait_until = Instant::now() + limit::PATIENCE;
        let session = record.session.clone();
        let mut held: Option<Box<AgentEvent>> = None;
        // Created once, and not for each event, because each pass of the loop waits for it.
        let stopping = self.ctx.tasks.stopping().clone();
        let mut stopped = std::pin::pin!(stopping.cancelled());
        self.is_running = true;
        loop {
            while let Some(parked) = self.parked.pop_front() {
                Box::pin(self.handle(Some(parked), &turn, &session)).await?;
            }
            let is_asking = !self.asks.is_empty();
            limit.pause_while(is_asking);
            permit.pause_while(is_asking);
            let until_ask_expires = self.until_ask_expires(asks_wait_until);
            let next = self.next(&mut turn, stopped.as_mut(), &mut limit, until_ask_expires, held.is_some());
            let mut taken = Batch::default();
            // Boxed, so that the future of the turn holds only what it waits for and not the state of these short steps.
            match next.await {
                Next::Stopped => return Err(StopReason::Suspended),
                Next::Request(message) => Box::pin(self.handle(message, &turn, &session)).await?,
                Next::Delivered(delivered) => Box::pin(self.on_delivered(*delivered, &session)).await?,
                Next::Joining(step) => Box::pin(self.on_join(step, record)).await?,
                Next::AskExpired => Box::pin(self.expire_asks(&session)).await?,
                Next::Limit => {
                    Box::pin(self.on_limit(&mut limit, !turn.events.is_empty(), &session)).await?;
                }
                Next::MayEnd => taken = self.take_reports(held.take().map(|held| *held), &mut turn.events),
                Next::Report(report) => {
                    limit.note_report();
                    taken = self.take_reports(report, &mut turn.events);
                }
            }
            let Batch { end, slow, held: to_hold } = taken;
            held = to_hold.or(held);
            Box::pin(self.flush(None)).await?;
            if self.writer.is_too_large() {
                Box::pin(self.end_too_large()).await?;
            }
            if self.asks.has_child_changes() {
                Box::pin(self.report_asks_to_children()).await;
            }
            if let Some(slow) = slow {
                Box::pin(self.take_slow(*slow, &session)).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Fails the task because it exceeds its byte limit, unless the task is over.
    async fn end_too_large(&mut self) -> Result<(), StopReason> {
        if self.writer.is_over() {
            return Ok(());
        }
        self.ctx.metrics.refused.of(label::Limit::TaskBytes).increment();
        let failure = lifecycle::too_large(self.ctx.config.task_bytes);
        Err(self.fail_with(failure).await)
    }

    /// Waits for the next event of a running turn. Cancel safe. The agent's reports come last: a flood of them must not
    /// delay a cancel, an answer or the limit.
    async fn next(
        &mut self,
        turn: &mut Turn,
        stopped: Pin<&mut WaitForCancellationFuture<'_>>,
        limit: &mut Limit,
        until_ask_expires: Option<Duration>,
        has_end: bool,
    ) -> Next {
        // The end of the turn waits for answers and messages that are on their way, so that the log shows their results.
        let (is_answering, is_joining) = (self.asks.is_answering(), !self.joins.is_empty());
        let may_end = !is_answering && !is_joining;
        // Boxed, because a turn has no open ask most of the time.
        let ask_expires = until_ask_expires.map(|left| Box::pin(tokio::time::sleep(left)));
        tokio::select! {
            biased;
            () = stopped => Next::Stopped,
            message = self.inbox.recv() => Next::Request(message),
            delivered = self.asks.delivered(), if is_answering => Next::Delivered(delivered),
            step = self.joins.next(), if is_joining => Next::Joining(step),
            Some(()) = OptionFuture::from(ask_expires) => Next::AskExpired,
            // Once the end of the turn is known, the time limit no longer applies.
            () = limit.reached(), if !has_end => Next::Limit,
            () = std::future::ready(()), if has_end && may_end => Next::MayEnd,
            report = turn.events.recv(), if !has_end => Next::Report(report),
        }
    }

    /// The time until the next ask expires. An ask of an earlier run may have been answered while the gateway was down.
    /// Therefore no ask expires before `held_until` until the agent has reported what happened (`has_caught_up`).
    fn until_ask_expires(&self, held_until: Instant) -> Option<Duration> {
        if self.asks.is_empty() {
            return None;
        }
        let left = self.asks.until_deadline(self.ctx.ports.clock.now())?;
        if self.has_caught_up {
            return Some(left);
        }
        Some(left.max(held_until.saturating_duration_since(Instant::now())))
    }

    /// Handles a request of a caller.
    async fn handle(
        &mut self,
        message: Option<ActorRequest>,
        turn: &Turn,
        session: &Session,
    ) -> Result<(), StopReason> {
        match message {
            Some(ActorRequest::Answer(given)) => self.asks.answer(&self.ctx.ports, session, *given),
            Some(ActorRequest::Join(joining)) => {
                let (metrics, room) = (&self.ctx.metrics, self.writer.room());
                if let Some(joining) = self.joins.check(*joining, metrics, room, || self.writer.snapshot()) {
                    match &turn.steering {
                        Some(steering) => self.joins.begin(steering, self.ctx.new_prompt(), joining),
                        // The caller may have disconnected.
                        None => drop(joining.reply.send(Err(self.takes_no_message()))),
                    }
                }
            }
            other => handle_without_turn(&mut self.writer, self.asks.requests(), other).await?,
        }
        Ok(())
    }

    fn takes_no_message(&self) -> Error {
        let (agent, task) = (self.ctx.ports.agent.describe().name, self.writer.task());
        let text = format!(
            "{agent} takes no message while it works. Send this one without taskId and delivery, with its contextId, and it \
             is taken up when the task is over; or cancel the task first."
        );
        Error::new(ErrorKind::UnsupportedOperation, text)
            .detail("taskId", task.id.as_str())
            .detail("state", task.status.state.as_str())
    }

    /// Writes changes to the asks of sub-agents also to the child tasks, before the caller who answered gets the result.
    async fn report_asks_to_children(&mut self) {
        for change in self.asks.take_child_changes() {
            self.children.report_ask(change).await;
        }
    }

    /// Writes this report together with all others that wait: one event at a time when idle, many in one batch under load.
    fn take_reports(&mut self, first: Option<AgentEvent>, more: &mut queue::Receiver<AgentEvent>) -> Batch {
        let Some(mut report) = first else {
            // A driver must report the end of its turn. If it ends without one, the task fails instead of hanging.
            let failure =
                Failure::new("The connection to the agent was lost, and how the turn ended is not known.");
            self.writer.take(AgentEvent::Ended(Outcome::Failed(failure)));
            return Batch::end(TurnEnd::Unknown);
        };
        loop {
            match report {
                AgentEvent::Usage(usage) => {
                    self.writer.note_usage(usage);
                    if let Some(span) = &mut self.span {
                        span.has_used(usage);
                    }
                }
                AgentEvent::CaughtUp => self.has_caught_up = true,
                AgentEvent::Asked(ask) if !self.has_caught_up => {
                    return Batch::slow(SlowReport::AskedBefore(*ask));
                }
                AgentEvent::Asked(ask) if self.asks.may_be_approved(&ask, true).is_some() => {
                    return Batch::slow(SlowReport::Asked(*ask));
                }
                AgentEvent::Asked(ask) => {
                    if let Some((ask, answer)) = self.asks.opened(&mut self.writer, &self.owner, *ask) {
                        return Batch::slow(SlowReport::TooMany(ask, answer));
                    }
                }
                AgentEvent::AskClosed { request_id, resolution } => {
                    self.asks.closed(&mut self.writer, &request_id, resolution);
                }
                AgentEvent::File { block, file } => {
                    return Batch::slow(SlowReport::File(block, file));
                }
                AgentEvent::Child { session, event } => {
                    if let Some(span) = &mut self.span {
                        let (task, now) = (self.writer.task(), self.writer.now());
                        span.sub_agent(task, &session, &event, now, self.has_caught_up);
                    }
                    return Batch::slow(SlowReport::Child(session, *event));
                }
                AgentEvent::Ended(outcome) if self.asks.is_answering() || !self.joins.is_empty() => {
                    return Batch::held(outcome);
                }
                AgentEvent::Ended(outcome) if self.children.are_behind() => {
                    return Batch {
                        held: Batch::held(outcome).held,
                        ..Batch::slow(SlowReport::LastOfChildren)
                    };
                }
                AgentEvent::Ended(outcome) => {
                    let needs_credentials = matches!(outcome, Outcome::AuthRequired(_));
                    if let Some(span) = &mut self.span {
                        span.ended_with(&outcome);
                    }
                    self.writer.take(AgentEvent::Ended(outcome));
                    let end = if needs_credentials { TurnEnd::NeedsCredentials } else { TurnEnd::ByAgent };
                    return Batch::end(end);
                }
                output => {
                    if let AgentEvent::Tool { call, .. } = &output
                        && let Some(span) = &mut self.span
                    {
                        span.tool(self.writer.task(), call, self.writer.now(), self.has_caught_up);
                    }
                    self.writer.take(output);
                }
            }
            if self.writer.is_full() {
                return Batch::default();
            }
            match more.try_recv() {
                Ok(next) => report = next,
                Err(_) => return Batch::default(),
            }
        }
    }

    async fn take_slow(&mut self, slow: SlowReport, session: &Session) -> Result<(), StopReason> {
        match slow {
            SlowReport::File(block, file) => {
                let keeper = FileKeeper::new(&self.owner, self.writer.task());
                let kept = keeper.keep(self.ctx.clone(), block, file);
                if let Some(event) = self.unless_stopped(kept).await? {
                    self.writer.push(event);
                    self.flush(None).await?;
                }
                Ok(())
            }
            SlowReport::Child(child, event) => self.take_child(child, event, session).await,
            SlowReport::LastOfChildren => {
                let caught_up = self.children.caught_up();
                self.unless_stopped(caught_up).await
            }
            SlowReport::Asked(ask) => self.take_ask(ask, session).await,
            SlowReport::AskedBefore(ask) => self.reopen_ask(ask, session).await,
            SlowReport::TooMany(ask, answer) => {
                self.spawn_policy_answer(session, ask, answer);
                Ok(())
            }
        }
    }

    /// Handles an ask that the agent reports for a resumed turn. If the log already has the ask as expired, the earlier run of
    /// the gateway ended before the agent got the policy's answer, and this run sends it.
    async fn reopen_ask(&mut self, ask: Ask, session: &Session) -> Result<(), StopReason> {
        let owner = self.owner.clone();
        let known = self
            .call_store(|ctx| {
                let (store, request) = (Arc::clone(&ctx.ports.store), ask.request_id.clone());
                let owner = owner.clone();
                async move { store.interrupt(&owner, &request).await }
            })
            .await?;
        let has_expired = |closed: Closed| closed.resolution == Resolution::Expired;
        if known.and_then(|known| known.closed).is_some_and(has_expired) {
            let answer = self.asks.policy_answer(&ask);
            self.spawn_policy_answer(session, ask, answer);
            return Ok(());
        }
        self.take_ask(ask, session).await
    }

    /// Handles an ask of the agent: answers it with a kept approval, or opens it for the owner.
    async fn take_ask(&mut self, ask: Ask, session: &Session) -> Result<(), StopReason> {
        if self.approve(std::slice::from_ref(&ask), true, session).await? {
            return Ok(());
        }
        if let Some((ask, answer)) = self.asks.opened(&mut self.writer, &self.owner, ask) {
            self.spawn_policy_answer(session, ask, answer);
        }
        self.flush(None).await?;
        self.report_asks_to_children().await;
        Ok(())
    }

    /// Answers the asks that a kept approval covers, and returns whether there were any. The answer is in the log before the
    /// agent gets it.
    async fn approve(&mut self, asks: &[Ask], are_new: bool, session: &Session) -> Result<bool, StopReason> {
        if asks.iter().all(|ask| self.asks.may_be_approved(ask, are_new).is_none()) {
            return Ok(false);
        }
        let (owner, root) = (self.owner.clone(), session.id.clone());
        let kept = self
            .call_store(|ctx| {
                let (store, owner, root) = (Arc::clone(&ctx.ports.store), owner.clone(), root.clone());
                async move { store.approvals(&owner, Some(&root)).await }
            })
            .await?;
        let mut covered = Vec::new();
        for ask in asks {
            let request = self.asks.may_be_approved(ask, are_new);
            let Some(by) = request.and_then(|request| approval::covering(&kept, request, &session.directory))
            else {
                continue;
            };
            self.asks.approved(&mut self.writer, &self.owner, ask);
            audit::approval_used(&self.owner, ask, &by, &root);
            covered.push(ask.clone());
        }
        self.flush(None).await?;
        self.report_asks_to_children().await;
        let is_any = !covered.is_empty();
        for ask in covered {
            self.asks.send_approval(&self.ctx.ports.agent, session, ask);
        }
        Ok(is_any)
    }

    /// Handles the agent's response to an answer: accepted or not.
    async fn on_delivered(&mut self, delivered: Delivered, session: &Session) -> Result<(), StopReason> {
        let Settled { result, approval, too_many } =
            self.asks.settle(&mut self.writer, &self.owner, delivered);
        self.flush(None).await?;
        self.report_asks_to_children().await;
        if let Some(ApprovalChange::Withdrawn(request)) = &approval {
            let owner = self.owner.clone();
            self.call_store(|ctx| {
                let (store, owner, request) = (Arc::clone(&ctx.ports.store), owner.clone(), request.clone());
                async move { store.revoke_approval(&owner, &request).await }
            })
            .await?;
        }
        if let Some(result) = result {
            result.send(&self.writer);
        }
        if let Some((ask, answer)) = too_many {
            self.spawn_policy_answer(session, ask, answer);
        }
        if let Some(ApprovalChange::Kept) = approval {
            let open = self.asks.open();
            self.approve(&open, false, session).await?;
        }
        Ok(())
    }

    /// Passes an event of a sub-agent to its child task, with retries while the store cannot be reached. Further reports of the
    /// agent wait meanwhile.
    async fn take_child(
        &mut self,
        child: SessionId,
        event: ChildEvent,
        session: &Session,
    ) -> Result<(), StopReason> {
        let mut backoff = Backoff::new();
        loop {
            let root = Root { owner: &self.owner, task: self.writer.task(), session };
            match self.children.take(&self.ctx, root, child.clone(), event.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.retry() == Retry::Later => {
                    self.unless_stopped(tokio::time::sleep(backoff.next_pause())).await?;
                }
                // The turn continues without a child task for this sub-agent.
                Err(error) => {
                    tracing::error!(task = %self.writer.task().id, error = ?error, "a sub-agent has no task");
                    return Ok(());
                }
            }
        }
    }

    async fn on_join(&mut self, step: Step, record: &mut TurnRecord) -> Result<(), StopReason> {
        match step {
            Step::TooLate(prompt) => drop(self.joins.complete(&prompt)),
            Step::Expected(expected) => {
                let Some((message, key)) = self.joins.message_of(&expected.prompt) else { return Ok(()) };
                let joined = lifecycle::joined(self.writer.task(), message);
                record.joined.push(expected.prompt.clone());
                self.writer.push_join(joined, key);
                self.flush(Some(record.clone())).await?;
                self.joins.send_prompt(expected);
            }
            Step::Sent(prompt, outcome) => {
                let Some(completed) = self.joins.complete(&prompt) else { return Ok(()) };
                let outcome = match outcome {
                    Ok(()) => Ok(self.writer.snapshot()),
                    Err(error) => {
                        let withdrawn =
                            lifecycle::withdrawn(self.writer.task(), completed.message.id.clone());
                        record.joined.retain(|joined| *joined != prompt);
                        self.writer.push_withdrawal(withdrawn, completed.key.clone());
                        self.flush(Some(record.clone())).await?;
                        Err(error)
                    }
                };
                completed.send(&outcome);
            }
        }
        Ok(())
    }

    /// Closes the asks that were not answered in time: records the policy's answer, then sends it to the agent.
    async fn expire_asks(&mut self, session: &Session) -> Result<(), StopReason> {
        let answers = self.asks.expire(&mut self.writer, self.ctx.ports.clock.now());
        self.flush(None).await?;
        for (ask, answer) in answers {
            self.spawn_policy_answer(session, ask, answer);
        }
        Ok(())
    }

    fn spawn_policy_answer(&self, session: &Session, ask: Ask, answer: Answer) {
        let (ctx, session) = (self.ctx.clone(), session.clone());
        let task = self.writer.task().id.clone();
        self.ctx.tasks.spawn("expired-ask", async move {
            send_policy_answer(&ctx, &task, &session, &ask, &answer).await;
        });
    }

    /// Called when the time limit of the turn has passed. The gateway, its store or the agent may have been down, so the turn
    /// may already be over. The turn fails only if the agent still works on it ([`Limit::judge`]).
    async fn on_limit(
        &mut self,
        limit: &mut Limit,
        has_reports: bool,
        session: &Session,
    ) -> Result<(), StopReason> {
        if has_reports && limit.takes_reports_first() {
            return Ok(());
        }
        let (agent, session) = (Arc::clone(&self.ctx.ports.agent), session.clone());
        let asked = self
            .unless_stopped(async move {
                // For an agent without external turns, the driver reports the end of every turn.
                let Some(turns) = agent.unfollowed_turns() else { return Some(true) };
                tokio::time::timeout(LONGEST_PAUSE, turns.is_busy(&session)).await.ok()?.ok()
            })
            .await?;
        if has_reports {
            limit.note_report();
        }
        let allowed = self.ctx.config.turn_timeout.unwrap_or_default();
        let failure = match limit.judge(asked, self.has_caught_up) {
            Overtime::Wait => return Ok(()),
            Overtime::TooLong => too_long(allowed),
            Overtime::Unknown => unknown_end(allowed),
        };
        Err(self.fail_with(failure).await)
    }

    /// The deadline of a turn whose prompt was sent at `prompted`.
    pub(super) fn deadline_from(&self, prompted: Option<Instant>) -> Option<Instant> {
        Some(prompted.unwrap_or_else(Instant::now) + self.ctx.config.turn_timeout?)
    }

    /// The deadline of a turn that an earlier run began. A restart of the gateway does not extend it.
    pub(super) fn deadline(&self, turn: &TurnRecord) -> Option<Instant> {
        if self.is_adopted(turn) {
            return None;
        }
        let limit = self.ctx.config.turn_timeout?;
        if !self.asks.is_empty() {
            // The log says since when the turn waits for an answer, but not how long it worked before. So the turn gets the
            // full time again.
            return Some(Instant::now() + limit);
        }
        let worked = self.writer.now().0.saturating_sub(self.writer.task().status.at.0);
        let worked = Duration::from_millis(u64::try_from(worked).unwrap_or(0));
        Some(Instant::now() + limit.saturating_sub(worked))
    }
}

/// Sends the policy's answer to the agent. Repeats this while the agent cannot be reached, until the actor ends: the turn
/// still waits for an answer, and a caller can no longer give one.
async fn send_policy_answer(
    ctx: &EngineContext,
    task: &TaskId,
    session: &Session,
    ask: &Ask,
    answer: &Answer,
) {
    let mut backoff = Backoff::new();
    while ctx.live.registry.inbox(task).is_some() {
        match ctx.ports.agent.reply(session, ask, answer).await {
            Ok(()) => return,
            Err(error) if error.retry() == Retry::Later => {
                if !backoff.pause(&ctx.tasks).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(request = %ask.request_id, error = ?error, "an expired ask could not be answered");
                return;
            }
        }
    }
}

fn too_long(limit: Duration) -> Failure {
    Failure::new(format!(
        "The turn took longer than the {} s that this gateway allows, and was aborted.",
        limit.as_secs()
    ))
}

fn unknown_end(limit: Duration) -> Failure {
    Failure::new(format!(
        "The {} s that this gateway allows a turn are over, and the agent does not say how the turn ended.",
        limit.as_secs()
    ))
}
