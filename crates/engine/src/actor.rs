//! The owner of one live task: waits for its turn, drives the agent, and writes the log.
//!
//! An actor ends when its task is over. When the gateway stops it leaves the task as it is, for the next start
//! to take up. Every wait here looks at the stop signal first: the actor that stops frees its place in the lane,
//! and the next one must not begin a turn with it.

mod abort;
mod begin;
mod follow;
mod limit;

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_meter::Metrics;
use longshore_meter::label::AbortOutcome;
use longshore_model::{
    Epoch, Error, Failure, Interrupt, Json, Metadata, Principal, RequestId, Result, Retry, Seq, Task,
    TaskState, TraceContext,
};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::abort::Canceled;
pub(crate) use self::abort::try_abort;
use self::follow::End;
use crate::asks::{self, Asks, Given};
use crate::children::Children;
use crate::config::EngineConfig;
use crate::control::claims::Claims;
use crate::control::offers::KnownOffers;
use crate::control::removals::Removals;
use crate::gate::{Gate, Pass};
use crate::joins::{Joining, Joins};
use crate::lanes::{LaneKey, Lanes, Ticket};
use crate::live::LiveLog;
use crate::open_asks::OpenAsks;
use crate::port::{
    Agent, Clock, ContextPlace, Control, IdempotencyKey, Prompting, ResumedChild, Spans, Store, TurnRecord,
};
use crate::queue;
use crate::registry::{Registration, Registry};
use crate::service::Snapshot;
use crate::simulation::Flaw;
use crate::tasks::Tasks;
use crate::turn_span::TurnSpan;
use crate::unfinished::Unfinished;
use crate::writer::Writer;
use crate::{lifecycle, names};

/// What others may tell an actor.
#[derive(Debug)]
pub(crate) enum Inbox {
    /// `trace`: where the cancel stands in its caller's.
    Cancel {
        reply: oneshot::Sender<Result<Snapshot>>,
        since: Instant,
        trace: Option<Box<TraceContext>>,
    },
    Answer(Box<Given>),
    Join(Box<Joining>),
}

/// How many of these may wait. A caller who finds the inbox full waits, as for any slow task.
pub(crate) const INBOX: usize = 8;

/// First and longest pause before an agent or a store that is away is asked again.
pub(crate) const RETRY_FIRST: Duration = Duration::from_millis(100);
pub(crate) const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// What every actor of an engine shares.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agent: Arc<dyn Agent>,
    /// `None`: the agent lets nobody look at it or change it.
    pub(crate) control: Option<Arc<dyn Control>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
    pub(crate) registry: Arc<Registry>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) asks: Arc<OpenAsks>,
    pub(crate) unfinished: Arc<Unfinished>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) removals: Arc<Removals>,
    pub(crate) offers: Arc<KnownOffers>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) spans: Arc<dyn Spans>,
    pub(crate) config: Arc<EngineConfig>,
}

/// What makes an actor the owner of a task.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) owner: Principal,
    pub(crate) registration: Registration,
    pub(crate) inbox: queue::Receiver<Inbox>,
    pub(crate) live: Arc<LiveLog>,
    pub(crate) task: Task,
    /// The event that `task` reflects.
    pub(crate) head: Seq,
    /// Under which that event was written.
    pub(crate) epoch: Epoch,
    /// Its place among the messages of the context. `None` for a task that waits for credentials.
    pub(crate) place: Option<Ticket>,
    /// Set when the gateway was restarted during the turn.
    pub(crate) begun: Option<Begun>,
    /// The asks that were open then.
    pub(crate) open_asks: Vec<Interrupt>,
    /// Where the send that the turn is for stands in its caller's trace. Lost with a restart.
    pub(crate) trace: Option<TraceContext>,
    /// Where the context works, if it was made with the task: then the store need not be asked.
    pub(crate) new_context: Option<ContextPlace>,
    /// The order that the turn is for, until the agent took it. Lost with a restart.
    pub(crate) ordered: Option<Box<Ordered>>,
}

/// An order that the agent has not taken yet.
#[derive(Debug)]
pub(crate) struct Ordered {
    /// Under which the same order is found again.
    pub(crate) key: IdempotencyKey,
    /// Told once: that the agent took the order, or why it did not.
    pub(crate) orderer: Option<oneshot::Sender<Result<()>>>,
    /// It is told so as well when the order has to wait for its turn.
    pub(crate) is_impatient: bool,
}

/// A turn that an earlier run of the gateway began, and its place in the lane of its session. The place is taken before
/// any actor runs, so that no waiting task goes first.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) record: TurnRecord,
    pub(crate) place: Ticket,
    /// Its sub-agents, over or not, as the driver has to know them.
    pub(crate) resumed: Vec<ResumedChild>,
    /// The same, with their owners.
    pub(crate) children: Children,
}

#[derive(Debug)]
pub(crate) struct Actor {
    around: Surroundings,
    owner: Principal,
    registration: Registration,
    inbox: queue::Receiver<Inbox>,
    writer: Writer,
    place: Option<Ticket>,
    /// In a box: most have none.
    begun: Option<Box<Begun>>,
    asks: Asks,
    joins: Joins,
    children: Children,
    trace: Option<TraceContext>,
    /// Of the turn that runs or is about to, if somebody wants to hear of it. In a box: most have none.
    span: Option<Box<TurnSpan>>,
    new_context: Option<ContextPlace>,
    /// In a box: most have none.
    ordered: Option<Box<Ordered>>,
    /// What came while the turn ran and its owner was busy with something else.
    parked: VecDeque<Inbox>,
    /// A turn runs, or is about to: whoever answers it or joins it is heard, if not at once.
    is_running: bool,
    /// What happened to the turn while nobody listened is known.
    has_caught_up: bool,
}

/// Why an actor's work stopped before its turn ended by itself.
#[derive(Debug)]
enum Stop {
    /// The task is over: failed or past its time.
    Over,
    /// The task is over: somebody wanted it canceled, since then.
    Canceled { since: Instant, trace: Option<Box<TraceContext>> },
    /// The gateway stops, or lost the log. The task stays as it is.
    Left,
}

/// A session whose turn this task is, with the right to be.
#[derive(Debug)]
struct Prompted {
    record: TurnRecord,
    /// Whether the agent may be at work on it.
    running: Prompting,
    place: Ticket,
    /// Kept until the agent is quiet, as the place is.
    pass: Pass,
}

impl Actor {
    pub(crate) fn new(around: Surroundings, ownership: Ownership) -> Self {
        let around = Surroundings { tasks: around.tasks.with_own_signal(), ..around };
        let Ownership {
            owner,
            registration,
            inbox,
            live,
            task,
            head,
            epoch,
            place,
            open_asks,
            trace,
            new_context,
            ordered,
            ..
        } = ownership;
        let mut begun = ownership.begun.map(Box::new);
        let children = begun.as_mut().map(|begun| std::mem::take(&mut begun.children)).unwrap_or_default();
        let asks = Asks::new(around.config.asks, open_asks, &around.asks);
        let writer = Writer::new(
            Arc::clone(&around.store),
            Arc::clone(&around.clock),
            around.tasks.clone(),
            Arc::clone(&around.metrics),
            live,
            owner.clone(),
            Snapshot { task, seq: head, epoch },
        );
        Self {
            around,
            owner,
            registration,
            inbox,
            writer,
            place,
            begun,
            asks,
            joins: Joins::default(),
            children,
            trace,
            span: None,
            new_context,
            ordered,
            parked: VecDeque::new(),
            is_running: false,
            has_caught_up: true,
        }
    }

    /// Boxed, for an async function holds what it is given twice.
    pub(crate) async fn run(mut self: Box<Self>) {
        let mut prompted = None;
        let lived = AssertUnwindSafe(self.live(&mut prompted)).catch_unwind().await;
        let stop = match lived {
            Ok(Ok(())) => Stop::Over,
            Ok(Err(stop)) => stop,
            Err(_) => {
                tracing::error!(task = %self.writer.task().id, "the owner of a task panicked");
                let failure = Failure::new("The gateway failed, and how the turn ended is not known.");
                Box::pin(self.fail_with(failure)).await
            }
        };
        self.end_span();
        let state = self.writer.task().status.state;
        // What somebody else began is stopped only for somebody who wants it canceled.
        let is_adopted = prompted.as_ref().is_some_and(|prompted| self.is_adopted(&prompted.record));
        let may_stop = state == TaskState::Canceled || !is_adopted;
        let ended_at = self.writer.now();
        // From here on the store answers for this task, and whoever asks its owner for something is told so. Its places
        // in the lanes and its pass are kept until the agent is quiet.
        let Self {
            around,
            registration,
            inbox,
            place,
            children,
            asks,
            joins,
            ordered,
            parked,
            has_caught_up,
            ..
        } = *self;
        drop((inbox, registration, joins, ordered, parked));
        if let Stop::Left = stop {
            return;
        }
        asks.end(ended_at);
        let canceled = match &stop {
            Stop::Canceled { since, trace } => {
                Some(Canceled { since: *since, trace: trace.as_deref(), around: &around })
            }
            Stop::Over | Stop::Left => None,
        };
        let abort = async {
            match &prompted {
                Some(Prompted { record, running, .. }) if running.has_begun() && may_stop => {
                    // Of one that failed, or that was not found again yet, it is not known whether it runs: somebody else
                    // may have the session.
                    let is_known_to_run = state == TaskState::Canceled && has_caught_up;
                    abort::abort(&around, record, is_known_to_run, canceled).await;
                }
                Some(_) => abort::note(canceled, AbortOutcome::NoRunningTask),
                None => abort::note(canceled, AbortOutcome::NoSessionBinding),
            }
        };
        // Neither waits for the other: both may have to wait for somebody who is away.
        tokio::join!(Box::pin(children.end(state)), Box::pin(abort));
        drop((prompted, place));
    }

    /// The whole life of the task. Leaves behind which session was prompted, and whether its turn may still run.
    async fn live(&mut self, prompted: &mut Option<Prompted>) -> Result<(), Stop> {
        loop {
            if self.writer.task().status.state == TaskState::AuthRequired {
                Box::pin(self.wait_for_credentials()).await?;
            }
            // Boxed, as all that is over when the turn begins, which may last for long.
            Box::pin(self.wait_for_place()).await?;
            self.has_caught_up = self.begun.is_none();
            let now = self.writer.now();
            self.span = TurnSpan::begin(&self.around.spans, self.trace.as_ref(), now).map(Box::new);
            let (mut turn, is_new) = match self.begun.take() {
                // Boxed, for it is over when the turn begins, which may last for long.
                Some(begun) => (Box::pin(self.resume(*begun, prompted)).await?, false),
                None => (Box::pin(self.begin(prompted)).await?, true),
            };
            tracing::debug!(task = %self.writer.task().id, "turn started");
            let refusal = turn.refusal.take();
            if refusal.is_some() {
                self.forget_order();
            } else {
                self.tell_orderer(Ok(()));
                self.ordered = None;
            }
            // Both ways to a turn leave behind which session it runs in.
            let Some(at_work) = prompted else { return Ok(()) };
            // What was waited for before its prompt left does not count. Of an earlier run's, only the log knows when that was.
            let deadline = if is_new {
                self.deadline_from(at_work.running.since())
            } else {
                self.deadline(&at_work.record)
            };
            let followed = self.follow(turn, deadline, at_work).await;
            if let Some(refusal) = refusal {
                // Not before its end is in the log: whoever orders the same again at once is heard.
                self.tell_orderer(Err(refusal));
            }
            match followed? {
                // The driver may have given it up, and not have been able to stop it.
                End::ByAgent if self.writer.task().status.state == TaskState::Failed => return Ok(()),
                End::ByAgent => {
                    at_work.running = Prompting::default();
                    return Ok(());
                }
                End::WithoutAWord => return Ok(()),
                End::NeedsCredentials => {}
            }
            self.end_span();
            // Nothing runs, and nobody has to wait for this task: others may have the session meanwhile.
            self.is_running = false;
            self.parked.clear();
            *prompted = None;
            self.place = None;
        }
    }

    /// The provider refused the agent's credentials. A message prompts again; the deadline of asks ends the waiting.
    async fn wait_for_credentials(&mut self) -> Result<(), Stop> {
        let since = self.writer.task().status.at;
        let left = self.around.config.asks.time_to_live.map(|limit| {
            let waited = self.writer.now().0.saturating_sub(since.0);
            limit.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0)))
        });
        let deadline = left.map(|left| Instant::now() + left);
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                message = self.inbox.recv() => match message {
                    Some(Inbox::Join(joining)) => {
                        let now = self.writer.snapshot();
                        if let Some(joining) = self.joins.look_at(*joining, &self.around.metrics, || now) {
                            return self.submit_again(joining).await;
                        }
                    }
                    other => on_inbox(&mut self.writer, self.asks.requests(), other).await?,
                },
                () = limit::reached(deadline) => {
                    let text = "Nobody gave the agent its credentials in time.";
                    return Err(self.fail_with(Failure::new(text)).await);
                }
            }
        }
    }

    async fn submit_again(&mut self, joining: Joining) -> Result<(), Stop> {
        let Joining { message, key: send, options, trace, reply, .. } = joining;
        self.trace = trace;
        let key = LaneKey::Context(self.owner.clone(), self.writer.task().context_id.clone());
        self.place = Some(self.around.lanes.enter(key, self.writer.task().id.clone()));
        let options = options.or(&self.writer.task().terms.prompt);
        let again = lifecycle::submitted_again(self.writer.now(), message, options);
        self.writer.push_join(again, send);
        self.flush(None).await?;
        // The giver may have gone; the message stands.
        let _ = reply.send(Ok(self.writer.snapshot()));
        Ok(())
    }

    /// Somebody else began the turn, and may let it run for as long as they like.
    fn is_adopted(&self, turn: &TurnRecord) -> bool {
        let task = self.writer.task();
        task.terms.adopted && names::is_adopted(&task.id, turn)
    }

    /// Waits for the task's place among the messages of its context.
    async fn wait_for_place(&mut self) -> Result<(), Stop> {
        let Some(mut place) = self.place.take() else { return Ok(()) };
        if place.ready().now_or_never().is_none() {
            self.tell_waiting();
        }
        let ready = self.unless_stopped(async {
            place.ready().await;
            place
        });
        self.place = Some(ready.await?);
        Ok(())
    }

    /// Runs `work`, unless the task is canceled or the gateway stops in the meantime. What else comes is heard once the
    /// turn is followed again, if one runs.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                done = &mut work => return Ok(done),
                message = self.inbox.recv() => match message {
                    Some(message @ (Inbox::Answer(_) | Inbox::Join(_)))
                        if self.is_running && self.parked.len() < INBOX =>
                    {
                        self.parked.push_back(message);
                    }
                    other => on_inbox(&mut self.writer, self.asks.requests(), other).await?,
                },
            }
        }
    }

    /// The turn does not begin yet, and nobody knows when. What was kept for it is answered like what comes from now on.
    async fn turn_away_parked(&mut self) -> Result<(), Stop> {
        self.is_running = false;
        while let Some(parked) = self.parked.pop_front() {
            on_inbox(&mut self.writer, self.asks.requests(), Some(parked)).await?;
        }
        Ok(())
    }

    /// Asks the store for something, again and again while it is away. Another failure ends the task.
    async fn ask_store<T, F>(&mut self, mut ask: impl FnMut(&Surroundings) -> F) -> Result<T, Stop>
    where
        F: Future<Output = Result<T>>,
    {
        let mut pause = RETRY_FIRST;
        loop {
            let asked = ask(&self.around);
            match self.unless_stopped(asked).await? {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retry() == Retry::Later => {
                    self.unless_stopped(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    async fn fail(&mut self, error: &Error) -> Stop {
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the turn could not be run");
        // One that the agent may have is not given again.
        if !error.may_be_done() {
            self.forget_order();
        }
        let stop = self.fail_with(failure_of(error)).await;
        self.tell_orderer(Err(error.clone()));
        stop
    }

    /// Tells whoever ordered the turn, if somebody did and was not told.
    fn tell_orderer(&mut self, taken: Result<()>) {
        if let Some(orderer) = self.ordered.as_mut().and_then(|ordered| ordered.orderer.take()) {
            // It may have gone; the task goes on.
            let _ = orderer.send(taken);
        }
    }

    /// The turn has to wait. Nobody knows for how long.
    fn tell_waiting(&mut self) {
        if self.ordered.as_ref().is_some_and(|ordered| ordered.is_impatient) {
            self.tell_orderer(Ok(()));
        }
    }

    /// The agent did not take the order, so that the same order again is another try: from the next event on, which says that the
    /// task failed.
    fn forget_order(&mut self) {
        if let Some(ordered) = &self.ordered {
            self.writer.forget(ordered.key.clone());
        }
    }

    fn end_span(&mut self) {
        if let Some(span) = self.span.take() {
            span.end(self.writer.task(), self.writer.now());
        }
    }

    async fn fail_with(&mut self, failure: Failure) -> Stop {
        if let Some(span) = &mut self.span {
            span.failed(failure.metadata.as_ref());
        }
        let failed = lifecycle::failed(self.writer.task(), self.writer.now(), failure);
        self.writer.push(failed);
        match self.flush(None).await {
            Ok(()) => Stop::Over,
            Err(stop) => stop,
        }
    }

    async fn flush(&mut self, turn: Option<TurnRecord>) -> Result<(), Stop> {
        self.writer.flush(turn).await.map_err(|error| left(&self.writer, &error))
    }
}

/// Answers one message to the actor. A free function, so that it can run beside a borrow of the actor's work.
async fn on_inbox(
    writer: &mut Writer,
    open_asks: Vec<RequestId>,
    message: Option<Inbox>,
) -> Result<(), Stop> {
    let (reply, since, trace) = match message {
        Some(Inbox::Cancel { reply, since, trace }) => (reply, since, trace),
        Some(Inbox::Answer(given)) => {
            // The turn does not run yet. After a restart it may have asked before, and its agent is not back.
            let error = asks::not_now(&open_asks, &given.request);
            let _ = given.reply.send(Err(error));
            return Ok(());
        }
        // Nothing runs that it could join. Dropping it says so. The registry holds a sender until the actor has ended.
        Some(Inbox::Join(_)) | None => return Ok(()),
    };
    let canceled = lifecycle::canceled(writer.now());
    writer.push(canceled);
    match writer.flush(None).await {
        Ok(()) => {
            // The caller may have gone; the task is canceled all the same.
            let _ = reply.send(Ok(writer.snapshot()));
            if writer.has(Flaw::NoTerminalGuard) { Ok(()) } else { Err(Stop::Canceled { since, trace }) }
        }
        Err(error) => {
            let stop = left(writer, &error);
            let _ = reply.send(Err(error));
            Err(stop)
        }
    }
}

fn left(writer: &Writer, error: &Error) -> Stop {
    tracing::error!(task = %writer.task().id, error = ?error, "the log cannot be written; leaving the task");
    Stop::Left
}

/// The error as the reason of a failure: its words for people, its kind and retry hint for programs.
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
    let reason = Json::of(&Reason { longshore: Named { error: kind } });
    Failure { message: error.message().to_owned(), metadata: Metadata::try_from(reason).ok() }
}

#[cfg(test)]
mod tests;
