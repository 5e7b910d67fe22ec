//! The owner of one live task: waits for its turn, drives the agent, and writes the log.
//!
//! An actor ends when its task is over. When the gateway stops it leaves the task as it is, for the next start
//! to take up. Every wait here looks at the stop signal first: the actor that stops frees its place in the lane,
//! and the next one must not begin a turn with it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use longshore_model::{
    AgentEvent, Answer, Ask, Error, ErrorKind, Failure, Interrupt, Json, Metadata, Outcome, Part, Principal,
    RequestId, Result, Retry, Seq, SessionId, Task, TaskId,
};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::asks::{self, Asks, Given};
use crate::config::EngineConfig;
use crate::lanes::{LaneKey, Lanes, Ticket};
use crate::lifecycle;
use crate::live::LiveLog;
use crate::port::{
    Agent, Binding, Bound, Clock, NewSession, Prompting, Resume, Session, Store, Turn, TurnRecord,
    TurnRequest,
};
use crate::registry::{Registration, Registry};
use crate::service::Snapshot;
use crate::tasks::Tasks;
use crate::writer::Writer;

/// What others may tell an actor.
#[derive(Debug)]
pub(crate) enum Inbox {
    Cancel { reply: oneshot::Sender<Result<Snapshot>> },
    Answer(Box<Given>),
}

/// How many of these may wait. A caller who finds the inbox full waits, as for any slow task.
pub(crate) const INBOX: usize = 8;

/// First and longest pause before an agent or a store that is away is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// What every actor of an engine shares.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Tasks,
    pub(crate) registry: Arc<Registry>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) config: EngineConfig,
}

/// What makes an actor the owner of a task.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) owner: Principal,
    pub(crate) registration: Registration,
    pub(crate) inbox: mpsc::Receiver<Inbox>,
    pub(crate) live: Arc<LiveLog>,
    pub(crate) task: Task,
    /// The event that `task` reflects.
    pub(crate) head: Seq,
    /// Its place among the messages of the context.
    pub(crate) place: Ticket,
    /// Set when the gateway was restarted during the turn.
    pub(crate) begun: Option<Begun>,
    /// The asks that were open then.
    pub(crate) open_asks: Vec<Interrupt>,
}

/// A turn that an earlier run of the gateway began, and its place in the lane of its session. The place is taken before
/// any actor runs, so that no waiting task goes first.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) record: TurnRecord,
    pub(crate) place: Ticket,
}

#[derive(Debug)]
pub(crate) struct Actor {
    around: Surroundings,
    owner: Principal,
    registration: Registration,
    inbox: mpsc::Receiver<Inbox>,
    writer: Writer,
    place: Ticket,
    begun: Option<Begun>,
    asks: Asks,
}

/// Why an actor's work stopped before its turn ended by itself.
#[derive(Debug)]
enum Stop {
    /// The task is over: canceled, failed or past its time.
    Over,
    /// The gateway stops, or lost the log. The task stays as it is.
    Left,
}

impl Actor {
    pub(crate) fn new(around: Surroundings, ownership: Ownership) -> Self {
        let Ownership { owner, registration, inbox, live, task, head, place, begun, open_asks } = ownership;
        let asks = Asks::new(around.config.asks, open_asks);
        let writer = Writer::new(
            Arc::clone(&around.store),
            Arc::clone(&around.clock),
            around.tasks.clone(),
            live,
            task,
            head,
        );
        Self { around, owner, registration, inbox, writer, place, begun, asks }
    }

    pub(crate) async fn run(mut self) {
        let mut prompted = None;
        let lived = AssertUnwindSafe(self.live(&mut prompted)).catch_unwind().await;
        let stop = match lived {
            Ok(Ok(())) => Stop::Over,
            Ok(Err(stop)) => stop,
            Err(_) => {
                tracing::error!(task = %self.writer.task().id, "the owner of a task panicked");
                self.fail_with(Failure::new("The gateway failed, and how the turn ended is not known.")).await
            }
        };
        // From here on the store answers for this task, and whoever asks its owner for something is told so. Its places
        // in the lanes are kept until the agent is quiet.
        let Self { around, registration, inbox, place, .. } = self;
        drop((inbox, registration));
        if let (Stop::Over, Some(Prompted { session, running, .. })) = (stop, &prompted)
            && running.has_begun()
        {
            abort(&around, session).await;
        }
        drop((prompted, place));
    }

    /// The whole life of the task. Leaves behind which session was prompted, and whether its turn may still run.
    async fn live(&mut self, prompted: &mut Option<Prompted>) -> Result<(), Stop> {
        self.wait_for_place().await?;
        let turn = match self.begun.take() {
            Some(begun) => self.resume(begun, prompted).await?,
            None => self.begin(prompted).await?,
        };
        tracing::debug!(task = %self.writer.task().id, "turn started");
        // Both ways to a turn leave behind which session it runs in.
        let Some(prompted) = prompted else { return Ok(()) };
        if self.follow(turn, &prompted.session).await? {
            prompted.running = Prompting::default();
        }
        Ok(())
    }

    async fn wait_for_place(&mut self) -> Result<(), Stop> {
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                () = self.place.ready() => return Ok(()),
                message = self.inbox.recv() => on_inbox(&mut self.writer, self.asks.requests(), message).await?,
            }
        }
    }

    async fn wait_for_session(&mut self, session: &Session) -> Result<Ticket, Stop> {
        let mut place = self.around.lanes.enter(LaneKey::Session(session.id.clone()));
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                () = place.ready() => return Ok(place),
                message = self.inbox.recv() => on_inbox(&mut self.writer, self.asks.requests(), message).await?,
            }
        }
    }

    /// Takes up a turn that an earlier run began. An agent that is away is waited for: its turn may still run.
    async fn resume(&mut self, begun: Begun, prompted: &mut Option<Prompted>) -> Result<Turn, Stop> {
        let Begun { record, mut place } = begun;
        let running = Prompting::default();
        running.mark();
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                () = place.ready() => break,
                message = self.inbox.recv() => on_inbox(&mut self.writer, self.asks.requests(), message).await?,
            }
        }
        *prompted =
            Some(Prompted { session: record.session.clone(), running: running.clone(), _place: place });
        let (mut pause, deadline) = (RETRY_FIRST, self.deadline());
        loop {
            let resume =
                Resume {
                    artifacts: self.writer.task().artifacts.clone(),
                    open_asks: self.asks.requests(),
                    ..Resume::default()
                };
            match self.start_turn(&record, Some(resume), running.clone()).await? {
                Ok(turn) => return Ok(turn),
                Err(error) if error.retry() == Retry::Later => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(self.fail(&error).await);
                    }
                    tracing::warn!(task = %self.writer.task().id, error = ?error, "the agent is away; will ask again");
                    self.unless_stopped(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Finds or makes the session and prompts it, durably. A session that the agent forgot is replaced once, unless
    /// the caller named it.
    async fn begin(&mut self, prompted: &mut Option<Prompted>) -> Result<Turn, Stop> {
        let mut bound = match self.bound_session().await? {
            Some(bound) => bound,
            None => self.open_session(None).await?,
        };
        let mut may_replace = true;
        loop {
            let session = bound.session.clone();
            let place = self.wait_for_session(&session).await?;
            let record = TurnRecord {
                session: session.clone(),
                prompt: self.around.agent.new_prompt(),
                joined: Vec::new(),
            };
            // The record of the turn goes with this event: both are durable before the agent is prompted.
            let working = lifecycle::working(self.writer.now());
            self.writer.push(working);
            self.flush(Some(record.clone())).await?;
            let running = Prompting::default();
            *prompted = Some(Prompted { session, running: running.clone(), _place: place });
            match self.start_turn(&record, None, running).await? {
                Ok(turn) => return Ok(turn),
                Err(error) if error.kind() == ErrorKind::SessionGone && may_replace && !bound.named => {
                    let forgotten = record.session.id;
                    tracing::warn!(session = %forgotten, "the agent forgot the session; making a new one");
                    may_replace = false;
                    *prompted = None;
                    bound = self.open_session(Some(forgotten)).await?;
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    async fn bound_session(&mut self) -> Result<Option<Bound>, Stop> {
        let (owner, context) = (self.owner.clone(), self.writer.task().context_id.clone());
        let mut pause = RETRY_FIRST;
        loop {
            let store = Arc::clone(&self.around.store);
            let bound = self.unless_stopped(async { store.place(&owner, &context).await.map(|place| place.bound) }).await?;
            match bound {
                Ok(bound) => return Ok(bound),
                Err(error) if error.retry() == Retry::Later => {
                    self.unless_stopped(tokio::time::sleep(pause)).await?;
                    pause = (pause * 2).min(RETRY_LONGEST);
                }
                Err(error) => return Err(self.fail(&error).await),
            }
        }
    }

    /// Makes a session and binds the context to it. When the context was bound meanwhile, that binding stands.
    async fn open_session(&mut self, replaces: Option<SessionId>) -> Result<Bound, Stop> {
        let around = self.around.clone();
        let (owner, context) = (self.owner.clone(), self.writer.task().context_id.clone());
        let at = self.writer.now();
        let opened = self
            .unless_stopped(async move {
                let session = around.agent.open_session(NewSession { directory: String::new() }).await?;
                around.store.bind(Binding { owner, context, session, replaces, at }).await
            })
            .await?;
        match opened {
            Ok(bound) => Ok(bound),
            Err(error) => Err(self.fail(&error).await),
        }
    }

    async fn start_turn(
        &mut self,
        record: &TurnRecord,
        resume: Option<Resume>,
        prompting: Prompting,
    ) -> Result<Result<Turn>, Stop> {
        let request = TurnRequest {
            task: self.writer.task().id.clone(),
            session: record.session.clone(),
            prompt: record.prompt.clone(),
            input: Vec::new(),
            options: self.writer.task().terms.prompt.clone(),
            resume,
            prompting,
        };
        let agent = Arc::clone(&self.around.agent);
        self.unless_stopped(async move { agent.start_turn(request).await }).await
    }

    fn prompt_parts(&self) -> Vec<Part> {
        self.writer.task().history.first().map(|message| message.parts.clone()).unwrap_or_default()
    }

    /// Writes what the agent reports until the turn is over. Says whether the agent itself ended it.
    async fn follow(&mut self, mut turn: Turn, session: &Session) -> Result<bool, Stop> {
        let mut limit = Limit::new(self.deadline());
        loop {
            limit.pause_while(!self.asks.is_empty());
            let until_ask_expires = self.asks.until_deadline(self.around.clock.now());
            // The reports come last: a flood of them must not keep a cancel, an answer or the limit from being seen.
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                message = self.inbox.recv() => match message {
                    Some(Inbox::Answer(given)) => self.asks.answer(&self.around.agent, session, *given),
                    other => on_inbox(&mut self.writer, self.asks.requests(), other).await?,
                },
                delivered = self.asks.delivered() => {
                    let verdict = self.asks.settle(&mut self.writer, delivered);
                    self.flush(None).await?;
                    verdict.tell(&self.writer);
                }
                () = passed(until_ask_expires) => self.expire_asks(session).await?,
                () = limit.reached() => {
                    let limit = self.around.config.turn_timeout.unwrap_or_default();
                    return Err(self.fail_with(too_long(limit)).await);
                }
                report = turn.events.recv() => {
                    let ended_by_agent = self.take_reports(report, &mut turn.events);
                    self.flush(None).await?;
                    if self.writer.is_over() {
                        return Ok(ended_by_agent);
                    }
                }
            }
        }
    }

    /// Nobody answered in time: the policy does, and the record says so before the agent hears of it.
    async fn expire_asks(&mut self, session: &Session) -> Result<(), Stop> {
        let answers = self.asks.expire(&mut self.writer, self.around.clock.now());
        self.flush(None).await?;
        for (ask, answer) in answers {
            let (around, session) = (self.around.clone(), session.clone());
            let task = self.writer.task().id.clone();
            self.around.tasks.spawn("expired-ask", async move {
                answer_for_nobody(&around, &task, &session, &ask, &answer).await;
            });
        }
        Ok(())
    }

    /// When the turn has taken too long. A restart of the gateway does not begin it anew.
    fn deadline(&self) -> Option<Instant> {
        let limit = self.around.config.turn_timeout?;
        if !self.asks.is_empty() {
            // Since when the turn waits is known, but not how long it had worked before.
            return Some(Instant::now() + limit);
        }
        let worked = self.writer.now().0.saturating_sub(self.writer.task().status.at.0);
        let worked = Duration::from_millis(u64::try_from(worked).unwrap_or(0));
        Some(Instant::now() + limit.saturating_sub(worked))
    }

    /// Takes a report and whatever else waits: at rest one event goes at once, under load many go together.
    /// Says whether the agent ended the turn.
    fn take_reports(&mut self, first: Option<AgentEvent>, more: &mut mpsc::Receiver<AgentEvent>) -> bool {
        let Some(mut report) = first else {
            // The driver ended without a word, which it must not; the task says so instead of hanging.
            let failure =
                Failure::new("The connection to the agent was lost, and how the turn ended is not known.");
            self.writer.take(AgentEvent::Ended(Outcome::Failed(failure)));
            return false;
        };
        loop {
            let ended = matches!(report, AgentEvent::Ended(_));
            match report {
                AgentEvent::Usage(usage) => self.writer.note_usage(usage),
                AgentEvent::Asked(ask) => self.asks.opened(&mut self.writer, &self.owner, ask),
                AgentEvent::AskClosed { request_id, resolution } => {
                    self.asks.closed(&mut self.writer, &request_id, resolution);
                }
                output => self.writer.take(output),
            }
            if ended || self.writer.is_over() || self.writer.is_full() {
                return ended;
            }
            match more.try_recv() {
                Ok(next) => report = next,
                Err(_) => return false,
            }
        }
    }

    /// Runs `work`, unless the task is canceled or the gateway stops in the meantime.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.around.tasks.stopping().cancelled() => return Err(Stop::Left),
                done = &mut work => return Ok(done),
                message = self.inbox.recv() => on_inbox(&mut self.writer, self.asks.requests(), message).await?,
            }
        }
    }

    async fn fail(&mut self, error: &Error) -> Stop {
        tracing::warn!(task = %self.writer.task().id, error = ?error, "the turn could not be run");
        self.fail_with(failure_of(error)).await
    }

    async fn fail_with(&mut self, failure: Failure) -> Stop {
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

/// Stops the agent. Best effort: the task is over either way, and the next turn waits for an idle session.
async fn abort(around: &Surroundings, session: &Session) {
    let limit = around.config.cancel_abort_timeout;
    match tokio::time::timeout(limit, around.agent.abort(session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(session = %session.id, error = ?error, "abort failed"),
        // Whoever allows no time does not want to hear of it.
        Err(_) if limit.is_zero() => {}
        Err(_) => tracing::warn!(session = %session.id, ?limit, "abort took too long"),
    }
}

/// A session whose turn this task is, with the right to be.
#[derive(Debug)]
struct Prompted {
    session: Session,
    /// Whether the agent may be at work on it.
    running: Prompting,
    _place: Ticket,
}

/// Answers one message to the actor. A free function, so that it can run beside a borrow of the actor's work.
async fn on_inbox(
    writer: &mut Writer,
    open_asks: Vec<RequestId>,
    message: Option<Inbox>,
) -> Result<(), Stop> {
    let reply = match message {
        Some(Inbox::Cancel { reply }) => reply,
        Some(Inbox::Answer(given)) => {
            // The turn does not run yet. After a restart it may have asked before, and its agent is not back.
            let error = asks::not_now(&open_asks, &given.request);
            let _ = given.reply.send(Err(error));
            return Ok(());
        }
        // The registry holds a sender until the actor has ended.
        None => return Ok(()),
    };
    let canceled = lifecycle::canceled(writer.now());
    writer.push(canceled);
    match writer.flush(None).await {
        Ok(()) => {
            let snapshot = Snapshot { task: writer.task().clone(), seq: writer.head() };
            // The caller may have gone; the task is canceled all the same.
            let _ = reply.send(Ok(snapshot));
            Err(Stop::Over)
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

fn too_long(limit: Duration) -> Failure {
    Failure::new(format!(
        "The turn took longer than the {} s that this gateway allows, and was aborted.",
        limit.as_secs()
    ))
}

async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The time that is left for a turn. Waiting for an answer does not count.
struct Limit {
    deadline: Option<Instant>,
    paused: Option<Duration>,
}

impl Limit {
    fn new(deadline: Option<Instant>) -> Self {
        Self { deadline, paused: None }
    }

    fn pause_while(&mut self, paused: bool) {
        let now = Instant::now();
        match (paused, self.deadline, self.paused) {
            (true, Some(deadline), None) => {
                self.paused = Some(deadline.saturating_duration_since(now));
                self.deadline = None;
            }
            (false, None, Some(left)) => {
                self.deadline = Some(now + left);
                self.paused = None;
            }
            _ => {}
        }
    }

    async fn reached(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}
