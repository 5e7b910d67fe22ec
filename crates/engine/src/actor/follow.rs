//! A turn that runs: what the agent reports goes to the log, what callers say goes to the agent.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use longshore_model::{
    AgentEvent, AgentFile, Answer, Ask, BlockRef, ChildEvent, Closed, Failure, Outcome, Resolution, Result,
    Retry, SessionId, TaskId,
};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFuture;

use super::limit::{self, Limit, Overtime};
use super::{Actor, Inbox, Prompted, RETRY_FIRST, RETRY_LONGEST, Stop, Surroundings, on_inbox};
use crate::asks::Delivered;
use crate::children::Root;
use crate::files::Keeper;
use crate::joins::Step;
use crate::lifecycle;
use crate::port::{Session, Turn, TurnRecord};
use crate::queue;

/// How a turn ended that nobody stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The agent says that it is over.
    ByAgent,
    /// The agent says that it lacks credentials. The task is not over.
    NeedsCredentials,
    /// The driver went away. The agent may still be at work.
    WithoutAWord,
}

/// A report that takes more than a line in the log of the task itself.
enum Aside {
    File(BlockRef, AgentFile),
    Child(SessionId, ChildEvent),
    /// An ask of a turn that is taken up again, which the log may know.
    AskedBefore(Ask),
    /// One ask too many, and its answer.
    TooMany(Ask, Answer),
    /// The turn is about to end, and what its sub-agents' owners were told comes first: once the turn is over, nobody
    /// would tell them again.
    LastOfChildren,
}

/// What a batch of reports came to.
#[derive(Default)]
struct Taken {
    end: Option<End>,
    aside: Option<Box<Aside>>,
    /// The end of the turn, for later.
    held: Option<Box<AgentEvent>>,
}

/// What a turn that runs waits for.
enum Next {
    Stopped,
    Said(Option<Inbox>),
    /// The agent has taken an answer, or not.
    Delivered(Box<Delivered>),
    Joining(Step),
    AskExpired,
    Limit,
    /// The turn's end is known, and nothing stands in its way any more.
    MayEnd,
    Report(Option<AgentEvent>),
}

impl Actor {
    /// Writes what the agent reports until the turn is over. The record of the turn grows with each message that joins.
    pub(super) async fn follow(
        &mut self,
        mut turn: Turn,
        deadline: Option<Instant>,
        at_work: &mut Prompted,
    ) -> Result<End, Stop> {
        let Prompted { record, pass, .. } = at_work;
        let mut limit = Limit::new(deadline);
        let asks_wait_until = Instant::now() + limit::PATIENCE;
        let session = record.session.clone();
        let mut held: Option<Box<AgentEvent>> = None;
        // Waited for with each event, so it is made once.
        let stopping = self.around.tasks.stopping().clone();
        let mut stopped = std::pin::pin!(stopping.cancelled());
        self.is_running = true;
        loop {
            while let Some(parked) = self.parked.pop_front() {
                Box::pin(self.hear(Some(parked), &turn, &session)).await?;
            }
            let is_asking = !self.asks.is_empty();
            limit.pause_while(is_asking);
            pass.pause_while(is_asking);
            let until_ask_expires = self.until_ask_expires(asks_wait_until);
            let next = self.next(&mut turn, stopped.as_mut(), &mut limit, until_ask_expires, held.is_some());
            let mut taken = Taken::default();
            // Boxed is what is soon over: all the time a turn has room only for what it waits for.
            match next.await {
                Next::Stopped => return Err(Stop::Left),
                Next::Said(message) => Box::pin(self.hear(message, &turn, &session)).await?,
                Next::Delivered(delivered) => {
                    let verdict = self.asks.settle(&mut self.writer, *delivered);
                    Box::pin(async {
                        self.flush(None).await?;
                        self.tell_children().await;
                        Ok::<(), Stop>(())
                    })
                    .await?;
                    verdict.tell(&self.writer);
                }
                Next::Joining(step) => Box::pin(self.on_join(step, record)).await?,
                Next::AskExpired => Box::pin(self.expire_asks(&session)).await?,
                Next::Limit => {
                    Box::pin(self.on_limit(&mut limit, !turn.events.is_empty(), &session)).await?;
                }
                Next::MayEnd => taken = self.take_reports(held.take().map(|held| *held), &mut turn.events),
                Next::Report(report) => {
                    limit.heard();
                    taken = self.take_reports(report, &mut turn.events);
                }
            }
            let Taken { end, aside, held: to_hold } = taken;
            held = to_hold.or(held);
            Box::pin(self.flush(None)).await?;
            if self.asks.has_news() {
                Box::pin(self.tell_children()).await;
            }
            if let Some(aside) = aside {
                Box::pin(self.take_aside(*aside, &session)).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Waits for the next thing that a turn is about. Cancel safe. The reports come last: a flood of them must not keep a
    /// cancel, an answer or the limit from being seen.
    async fn next(
        &mut self,
        turn: &mut Turn,
        stopped: Pin<&mut WaitForCancellationFuture<'_>>,
        limit: &mut Limit,
        until_ask_expires: Option<Duration>,
        has_end: bool,
    ) -> Next {
        // The end waits for answers and messages that are on their way, so that the record says what became of them.
        let (is_answering, is_joining) = (self.asks.is_answering(), !self.joins.is_empty());
        let may_end = !is_answering && !is_joining;
        // In a box, because most of the time nothing is asked.
        let ask_expires = until_ask_expires.map(|left| Box::pin(tokio::time::sleep(left)));
        tokio::select! {
            biased;
            () = stopped => Next::Stopped,
            message = self.inbox.recv() => Next::Said(message),
            delivered = self.asks.delivered(), if is_answering => Next::Delivered(delivered),
            step = self.joins.next(), if is_joining => Next::Joining(step),
            Some(()) = OptionFuture::from(ask_expires) => Next::AskExpired,
            // An end that is known is not overtaken by the limit.
            () = limit.reached(), if !has_end => Next::Limit,
            () = std::future::ready(()), if has_end && may_end => Next::MayEnd,
            report = turn.events.recv(), if !has_end => Next::Report(report),
        }
    }

    /// How long it is until an ask expires. `held_until`: none that an earlier run left open expires before, unless it is
    /// known by then that nobody answered it while the gateway was away.
    fn until_ask_expires(&self, held_until: Instant) -> Option<Duration> {
        if self.asks.is_empty() {
            return None;
        }
        let left = self.asks.until_deadline(self.around.clock.now())?;
        if self.has_caught_up {
            return Some(left);
        }
        Some(left.max(held_until.saturating_duration_since(Instant::now())))
    }

    /// Takes what a caller says.
    async fn hear(&mut self, message: Option<Inbox>, turn: &Turn, session: &Session) -> Result<(), Stop> {
        match message {
            Some(Inbox::Answer(given)) => self.asks.answer(&self.around.agent, session, *given),
            Some(Inbox::Join(joining)) => {
                let metrics = &self.around.metrics;
                if let Some(joining) = self.joins.look_at(*joining, metrics, || self.writer.snapshot()) {
                    self.joins.begin(&turn.steering, self.around.agent.new_prompt(), joining);
                }
            }
            other => on_inbox(&mut self.writer, self.asks.requests(), other).await?,
        }
        Ok(())
    }

    /// What a sub-agent asks is told in its own task too, before whoever answered is told that it is answered.
    async fn tell_children(&mut self) {
        for news in self.asks.take_news() {
            self.children.tell_of_ask(news).await;
        }
    }

    /// Takes a report and whatever else waits: at rest one event goes at once, under load many go together.
    fn take_reports(&mut self, first: Option<AgentEvent>, more: &mut queue::Receiver<AgentEvent>) -> Taken {
        let Some(mut report) = first else {
            // The driver ended without a word, which it must not; the task says so instead of hanging.
            let failure =
                Failure::new("The connection to the agent was lost, and how the turn ended is not known.");
            self.writer.take(AgentEvent::Ended(Outcome::Failed(failure)));
            return Taken { end: Some(End::WithoutAWord), ..Taken::default() };
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
                    return Taken { aside: Some(Box::new(Aside::AskedBefore(ask))), ..Taken::default() };
                }
                AgentEvent::Asked(ask) => {
                    if let Some((ask, answer)) = self.asks.opened(&mut self.writer, &self.owner, ask) {
                        return Taken {
                            aside: Some(Box::new(Aside::TooMany(ask, answer))),
                            ..Taken::default()
                        };
                    }
                }
                AgentEvent::AskClosed { request_id, resolution } => {
                    self.asks.closed(&mut self.writer, &request_id, resolution);
                }
                AgentEvent::File { block, file } => {
                    return Taken { aside: Some(Box::new(Aside::File(block, file))), ..Taken::default() };
                }
                AgentEvent::Child { session, event } => {
                    if let Some(span) = &mut self.span {
                        let (task, now) = (self.writer.task(), self.writer.now());
                        span.sub_agent(task, &session, &event, now, self.has_caught_up);
                    }
                    return Taken {
                        aside: Some(Box::new(Aside::Child(session, *event))),
                        ..Taken::default()
                    };
                }
                AgentEvent::Ended(outcome) if self.asks.is_answering() || !self.joins.is_empty() => {
                    return Taken { held: Some(Box::new(AgentEvent::Ended(outcome))), ..Taken::default() };
                }
                AgentEvent::Ended(outcome) if self.children.are_behind() => {
                    let held = Some(Box::new(AgentEvent::Ended(outcome)));
                    return Taken { held, aside: Some(Box::new(Aside::LastOfChildren)), ..Taken::default() };
                }
                AgentEvent::Ended(outcome) => {
                    let needs_credentials = matches!(outcome, Outcome::AuthRequired(_));
                    if let Some(span) = &mut self.span {
                        span.is_told_to_end(&outcome);
                    }
                    self.writer.take(AgentEvent::Ended(outcome));
                    let end = if needs_credentials { End::NeedsCredentials } else { End::ByAgent };
                    return Taken { end: Some(end), ..Taken::default() };
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
                return Taken::default();
            }
            match more.try_recv() {
                Ok(next) => report = next,
                Err(_) => return Taken::default(),
            }
        }
    }

    async fn take_aside(&mut self, aside: Aside, session: &Session) -> Result<(), Stop> {
        match aside {
            Aside::File(block, file) => {
                let keeper = Keeper::new(&self.owner, self.writer.task());
                let kept = keeper.keep(self.around.clone(), block, file);
                if let Some(event) = self.unless_stopped(kept).await? {
                    self.writer.push(event);
                    self.flush(None).await?;
                }
                Ok(())
            }
            Aside::Child(child, event) => self.take_child(child, event, session).await,
            Aside::LastOfChildren => {
                let caught_up = self.children.caught_up();
                self.unless_stopped(caught_up).await
            }
            Aside::AskedBefore(ask) => self.ask_again(ask, session).await,
            Aside::TooMany(ask, answer) => {
                self.answer_for_nobody(session, ask, answer);
                Ok(())
            }
        }
    }

    /// An ask that expired stays so: the gateway ended before the agent had its answer, which it is given now.
    async fn ask_again(&mut self, ask: Ask, session: &Session) -> Result<(), Stop> {
        let owner = self.owner.clone();
        let known = self
            .ask_store(|around| {
                let (store, request) = (Arc::clone(&around.store), ask.request_id.clone());
                let owner = owner.clone();
                async move { store.interrupt(&owner, &request).await }
            })
            .await?;
        let has_expired = |closed: Closed| closed.resolution == Resolution::Expired;
        if known.and_then(|known| known.closed).is_some_and(has_expired) {
            let answer = self.asks.answer_of_nobody(ask.kind);
            self.answer_for_nobody(session, ask, answer);
            return Ok(());
        }
        if let Some((ask, answer)) = self.asks.opened(&mut self.writer, &self.owner, ask) {
            self.answer_for_nobody(session, ask, answer);
        }
        self.flush(None).await?;
        self.tell_children().await;
        Ok(())
    }

    /// A store that is away is waited for, as everywhere; the agent waits meanwhile.
    async fn take_child(
        &mut self,
        child: SessionId,
        event: ChildEvent,
        session: &Session,
    ) -> Result<(), Stop> {
        let mut pause = RETRY_FIRST;
        loop {
            let root = Root { owner: &self.owner, task: self.writer.task(), session };
            match self.children.take(&self.around, root, child.clone(), event.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.retry() == Retry::Later => {
                    self.unless_stopped(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                // The turn itself goes on without a task for this sub-agent.
                Err(error) => {
                    tracing::error!(task = %self.writer.task().id, error = ?error, "a sub-agent has no task");
                    return Ok(());
                }
            }
        }
    }

    async fn on_join(&mut self, step: Step, record: &mut TurnRecord) -> Result<(), Stop> {
        match step {
            Step::TooLate(prompt) => drop(self.joins.arrived(&prompt)),
            Step::Expected(expected) => {
                let Some((message, key)) = self.joins.message_of(&expected.prompt) else { return Ok(()) };
                let joined = lifecycle::joined(self.writer.task(), message);
                record.joined.push(expected.prompt.clone());
                self.writer.push_join(joined, key);
                self.flush(Some(record.clone())).await?;
                self.joins.go(expected);
            }
            Step::Sent(prompt, outcome) => {
                let Some(arrived) = self.joins.arrived(&prompt) else { return Ok(()) };
                let outcome = match outcome {
                    Ok(()) => Ok(self.writer.snapshot()),
                    Err(error) => {
                        let withdrawn = lifecycle::withdrawn(self.writer.task(), arrived.message.id.clone());
                        record.joined.retain(|joined| *joined != prompt);
                        self.writer.push_withdrawal(withdrawn, arrived.key.clone());
                        self.flush(Some(record.clone())).await?;
                        Err(error)
                    }
                };
                arrived.tell(&outcome);
            }
        }
        Ok(())
    }

    /// Nobody answered in time: the policy does, and the record says so before the agent hears of it.
    async fn expire_asks(&mut self, session: &Session) -> Result<(), Stop> {
        let answers = self.asks.expire(&mut self.writer, self.around.clock.now());
        self.flush(None).await?;
        for (ask, answer) in answers {
            self.answer_for_nobody(session, ask, answer);
        }
        Ok(())
    }

    fn answer_for_nobody(&self, session: &Session, ask: Ask, answer: Answer) {
        let (around, session) = (self.around.clone(), session.clone());
        let task = self.writer.task().id.clone();
        self.around.tasks.spawn("expired-ask", async move {
            answer_for_nobody(&around, &task, &session, &ask, &answer).await;
        });
    }

    /// The time of the turn is over. Somebody may have been away meanwhile, the gateway, its store or the agent, and the turn
    /// be done: only one that is at work, by the agent's word or its reports, has taken too long.
    async fn on_limit(
        &mut self,
        limit: &mut Limit,
        has_reports: bool,
        session: &Session,
    ) -> Result<(), Stop> {
        if has_reports && limit.hears_reports_first() {
            return Ok(());
        }
        let (agent, session) = (Arc::clone(&self.around.agent), session.clone());
        let asked = self
            .unless_stopped(async move {
                tokio::time::timeout(RETRY_LONGEST, agent.is_busy(&session)).await.ok()?.ok()
            })
            .await?;
        if has_reports {
            limit.heard();
        }
        let allowed = self.around.config.turn_timeout.unwrap_or_default();
        let failure = match limit.judge(asked, self.has_caught_up) {
            Overtime::Wait => return Ok(()),
            Overtime::TooLong => too_long(allowed),
            Overtime::NoWord => without_an_end(allowed),
        };
        Err(self.fail_with(failure).await)
    }

    /// When a turn has taken too long whose prompt left then.
    pub(super) fn deadline_from(&self, prompted: Option<Instant>) -> Option<Instant> {
        Some(prompted.unwrap_or_else(Instant::now) + self.around.config.turn_timeout?)
    }

    /// When a turn has taken too long that an earlier run began. A restart of the gateway does not begin it anew.
    pub(super) fn deadline(&self, turn: &TurnRecord) -> Option<Instant> {
        if self.is_adopted(turn) {
            return None;
        }
        let limit = self.around.config.turn_timeout?;
        if !self.asks.is_empty() {
            // Since when the turn waits is known, but not how long it had worked before.
            return Some(Instant::now() + limit);
        }
        let worked = self.writer.now().0.saturating_sub(self.writer.task().status.at.0);
        let worked = Duration::from_millis(u64::try_from(worked).unwrap_or(0));
        Some(Instant::now() + limit.saturating_sub(worked))
    }
}

/// Gives the agent the answer of the policy. While it is away it is asked again, for as long as the task has an owner: it
/// still waits, and nobody else can answer any more.
async fn answer_for_nobody(
    around: &Surroundings,
    task: &TaskId,
    session: &Session,
    ask: &Ask,
    answer: &Answer,
) {
    let mut pause = RETRY_FIRST;
    while around.registry.inbox(task).is_some() {
        match around.agent.reply(session, ask, answer).await {
            Ok(()) => return,
            Err(error) if error.retry() == Retry::Later => {
                tokio::select! {
                    biased;
                    () = around.tasks.stopping().cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(RETRY_LONGEST),
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

fn without_an_end(limit: Duration) -> Failure {
    Failure::new(format!(
        "The {} s that this gateway allows a turn are over, and the agent does not say how the turn ended.",
        limit.as_secs()
    ))
}
