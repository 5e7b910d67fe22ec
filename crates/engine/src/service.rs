//! One function per operation: authorise, find or make the task, read.

mod answering;
mod following;
mod listing;
mod ordering;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use longshore_meter::Metrics;
use longshore_meter::label::AbortOutcome;
use longshore_model::{
    Answer, AskKind, Closed, Epoch, Error, ErrorKind, EventId, FileId, Interrupt, Principal, RequestId,
    Resolution, Result, Seq, Task, TaskEvent, TaskId, Timestamp, TraceContext,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::actor::{Actor, INBOX, Inbox, Ownership, Surroundings};
use crate::asks::{self, Given, Send};
use crate::config::EngineConfig;
use crate::control::claims::Claims;
use crate::control::of_upstream;
use crate::gate::{Bounds, Gate};
use crate::live::LiveLog;
use crate::open_asks::OpenAsks;
use crate::port::{Agent, Clock, Control, FileFacts, Head, NoSpans, Spans, Store, trace_of_caller};
use crate::queue;
use crate::reader::TaskReader;
use crate::registry::{Registration, Registry};
use crate::tasks::Tasks;
use crate::unfinished::{Reserved, Unfinished};

/// How long a cancel waits for the owner of the task, who answers at once unless the store is away.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// The engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    around: Surroundings,
}

/// What an engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    pub store: Arc<dyn Store>,
    pub agent: Arc<dyn Agent>,
    /// The agent's control surface, if it has one.
    pub control: Option<Arc<dyn Control>>,
    pub clock: Arc<dyn Clock>,
    pub tasks: Tasks,
    /// Where the engine counts.
    pub metrics: Arc<Metrics>,
    pub config: EngineConfig,
}

/// The task that a message made or went to, and a reader of its log.
#[derive(Debug)]
pub struct Sent {
    pub task: TaskId,
    /// `Tail` for a task that this message made, now or before: the reader gives all of it, if all of it is kept.
    pub opening: Opening,
    pub reader: TaskReader,
}

/// A task as of an event.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    pub task: Task,
    pub seq: Seq,
    /// Under which that event was written.
    pub epoch: Epoch,
}

impl Snapshot {
    /// The name of the event.
    pub fn id(&self) -> EventId {
        EventId::new(self.seq, self.epoch)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    pub tasks: Vec<Task>,
    /// On all pages together.
    pub total: u64,
    pub page_size: u32,
    /// Empty on the last page.
    pub next_page_token: String,
}

#[derive(Debug)]
pub struct Subscription {
    pub opening: Opening,
    pub reader: TaskReader,
    /// The reader has something to give at once: events that were missed, or the end of a task that is over.
    pub is_behind: bool,
}

/// How a subscription begins.
#[derive(Debug)]
pub enum Opening {
    /// With the task as it is; the reader stands behind it.
    Snapshot(Snapshot),
    /// With nothing: the reader gives exactly the events that were missed.
    Tail,
    /// The event at the cursor is not in the log: it is no longer kept, or a loss of power took it, and another may have
    /// its number. Here is the task as it is; the reader stands behind it. The caller must be told that there is a gap.
    Gap(Snapshot, GapBounds),
}

/// Which cursors could have been served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapBounds {
    pub requested: EventId,
    pub first: Seq,
    pub head: EventId,
}

impl Engine {
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts { store, agent, control, clock, tasks, metrics, config } = parts;
        let config = Arc::new(config);
        let registry = Arc::new(Registry::new(tasks.stopping().clone()));
        let bounds = Bounds { in_all: config.turns, per_principal: config.turns_per_principal };
        let gate = Arc::new(Gate::new(bounds, Arc::clone(&metrics)));
        let unfinished = Arc::new(Unfinished::new(&config));
        let asks = Arc::new(OpenAsks::new(Arc::clone(&metrics)));
        let lanes = Arc::default();
        let claims = Arc::new(Claims::new(config.control.claim_ttl));
        Self {
            around: Surroundings {
                store,
                agent,
                control,
                clock,
                tasks,
                registry,
                lanes,
                gate,
                asks,
                unfinished,
                claims,
                removals: Arc::default(),
                offers: Arc::default(),
                metrics,
                spans: Arc::new(NoSpans),
                config,
            },
        }
    }

    /// Tells of its turns there.
    #[must_use]
    pub fn with_spans(mut self, spans: Arc<dyn Spans>) -> Self {
        self.around.spans = spans;
        self
    }

    /// Sets what is known at a moment only, for the page of metrics that is about to be written.
    pub fn note_gauges(&self) {
        let Surroundings { metrics, asks, unfinished, clock, .. } = &self.around;
        metrics.interrupt_oldest_age.set(asks.oldest_age(clock.now()));
        metrics.tasks_unfinished.set(i64::try_from(unfinished.len()).unwrap_or(i64::MAX));
    }

    /// What the engine's clock says.
    pub fn now(&self) -> Timestamp {
        self.around.clock.now()
    }

    /// Whether the agent can be looked at and changed beside turns.
    pub fn has_control(&self) -> bool {
        self.around.control.is_some()
    }

    /// Whether the agent could work now.
    pub async fn check_agent(&self) -> Result<()> {
        self.around.agent.check().await
    }

    /// Whether tasks could be kept now.
    pub async fn check_store(&self) -> Result<()> {
        self.around.store.check().await
    }

    pub async fn get(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        // What the owner of the task has made durable last need not be read again.
        if let Some(now) = self.around.registry.log(task).and_then(|live| live.snapshot(caller)) {
            return Ok(now);
        }
        let stored = self.around.store.get(caller, task).await?;
        let stored = stored.ok_or_else(|| Error::task_not_found(task))?;
        Ok(Snapshot { task: stored.task, seq: stored.seq, epoch: stored.epoch })
    }

    /// Ends the task, then tells the agent. The conversation stays bound to its session.
    pub async fn cancel(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        let (metrics, since) = (&self.around.metrics, Instant::now());
        metrics.cancel_requests.increment();
        let canceled = self.try_cancel(caller, task, since).await;
        let outcome = match &canceled {
            // The owner of the task tells what becomes of the turn.
            Ok(_) => return canceled,
            Err(error) if matches!(error.kind(), ErrorKind::TaskNotFound | ErrorKind::TaskNotCancelable) => {
                AbortOutcome::NoRunningTask
            }
            Err(_) => {
                metrics.cancel_errors.increment();
                AbortOutcome::CancelError
            }
        };
        metrics.cancel_duration.of(outcome).set(since.elapsed());
        canceled
    }

    async fn try_cancel(&self, caller: &Principal, task: &TaskId, since: Instant) -> Result<Snapshot> {
        self.head(caller, task).await?;
        if let Some(inbox) = self.around.registry.inbox(task) {
            let (reply, answer) = oneshot::channel();
            let asked = async {
                let trace = self.trace_of_caller().map(Box::new);
                inbox.send(Inbox::Cancel { reply, since, trace }).await.ok()?;
                answer.await.ok()
            };
            match tokio::time::timeout(CANCEL_PATIENCE, asked).await {
                Ok(Some(answer)) => return answer,
                // The task ended by itself before it could be canceled, or its owner stopped.
                Ok(None) => {}
                Err(_) => {
                    let text = "The store does not take the cancel now. It stands, and is done when the store is back.";
                    return Err(Error::new(ErrorKind::Unavailable, text));
                }
            }
        }
        let state = self.head(caller, task).await?.state;
        if !state.is_terminal() {
            return Err(self.around.registry.no_owner());
        }
        let text = format!("The task is already {state} and cannot be canceled.");
        Err(Error::new(ErrorKind::TaskNotCancelable, text)
            .detail("taskId", task.as_str())
            .detail("state", state.as_str()))
    }

    /// A reader from where the caller left off, or from now on.
    pub async fn subscribe(
        &self,
        caller: &Principal,
        task: &TaskId,
        after: Option<EventId>,
    ) -> Result<Subscription> {
        let head = self.head(caller, task).await?;
        let Some(cursor) = after else {
            let snapshot = self.get(caller, task).await?;
            if snapshot.task.status.state.is_terminal() {
                let text = format!(
                    "The task is {}: there is nothing to subscribe to. Get the task, or send Last-Event-ID to read \
                     the events that you missed.",
                    snapshot.task.status.state
                );
                return Err(Error::new(ErrorKind::UnsupportedOperation, text).detail("taskId", task.as_str()));
            }
            let reader = self.reader(caller, task.clone(), &head, snapshot.seq);
            return Ok(Subscription { opening: Opening::Snapshot(snapshot), reader, is_behind: false });
        };
        if !self.goes_on_behind(caller, task, &head, cursor).await? {
            let snapshot = self.get(caller, task).await?;
            let bounds = GapBounds { requested: cursor, first: head.first, head: snapshot.id() };
            let reader = self.reader(caller, task.clone(), &head, snapshot.seq);
            return Ok(Subscription { opening: Opening::Gap(snapshot, bounds), reader, is_behind: false });
        }
        let is_behind = cursor.seq < head.seq || head.state.is_terminal();
        let reader = self.reader(caller, task.clone(), &head, cursor.seq);
        Ok(Subscription { opening: Opening::Tail, reader, is_behind })
    }

    /// Whether the log has everything that a reader with this cursor has not seen, and had what it has seen.
    async fn goes_on_behind(
        &self,
        caller: &Principal,
        task: &TaskId,
        head: &Head,
        cursor: EventId,
    ) -> Result<bool> {
        let EventId { seq, epoch } = cursor;
        if seq > head.seq || seq.next() < head.first {
            return Ok(false);
        }
        // Epochs only grow along a log, so that nothing before an event was written anew since that event's epoch.
        let Some(epoch) = epoch.filter(|epoch| seq > Seq::START && *epoch != head.epoch) else {
            return Ok(true);
        };
        let found = self.around.store.read(caller, task, Seq(seq.0 - 1), 1).await?;
        Ok(found.first().is_some_and(|entry| entry.seq == seq && entry.epoch == epoch))
    }

    /// The task as it was before an event of its log, as far as its artifacts go: what was sent to it, which may be large, and
    /// its status are left out. `None`: the log is no longer kept from its start.
    pub async fn task_before(&self, caller: &Principal, task: &TaskId, seq: Seq) -> Result<Option<Task>> {
        // As many as one read of the log gives a reader.
        const BATCH: usize = 128;
        if self.head(caller, task).await?.first > Seq::START.next() {
            return Ok(None);
        }
        let (mut folded, mut cursor): (Option<Task>, _) = (None, Seq::START);
        while cursor.next() < seq {
            let entries = self.around.store.read(caller, task, cursor, BATCH).await?;
            let Some(last) = entries.last().map(|entry| entry.seq) else { break };
            for entry in entries.iter().filter(|entry| entry.seq < seq) {
                match (&mut folded, &entry.event) {
                    (Some(folded), event @ TaskEvent::Artifact(_)) => folded.apply(event),
                    (Some(_), TaskEvent::Submitted { .. } | TaskEvent::Status(_)) => {}
                    (None, event) => {
                        let begun = Task::begin(task.clone(), event);
                        folded = begun.map(|task| Task { history: Vec::new(), ..task });
                    }
                }
            }
            cursor = last;
        }
        Ok(folded)
    }

    /// Waits until the task is over or asks something, and gives it as it is then.
    pub async fn settled(&self, caller: &Principal, mut reader: TaskReader) -> Result<Snapshot> {
        if reader.cursor() > Seq::START {
            // Behind a message that answered one of several asks: the task still waits for the others.
            let snapshot = self.get(caller, reader.task_id()).await?;
            if snapshot.task.status.state.is_settled() {
                return Ok(snapshot);
            }
        }
        while let Some(entries) = reader.next().await? {
            let newest = entries.iter().rev().find_map(|entry| entry.entry.event.status());
            if newest.is_some_and(|status| status.state.is_settled()) {
                // What was asked in the middle of a log may have been answered long ago.
                let snapshot = match reader.snapshot(caller) {
                    Some(now) => now,
                    None => self.get(caller, reader.task_id()).await?,
                };
                if snapshot.task.status.state.is_settled() {
                    return Ok(snapshot);
                }
            }
        }
        self.get(caller, reader.task_id()).await
    }

    pub(crate) fn around(&self) -> &Surroundings {
        &self.around
    }

    pub(crate) fn own(&self, ownership: Ownership) {
        let actor = Actor::new(self.around.clone(), ownership);
        self.around.tasks.spawn("task", Box::new(actor).run());
    }

    pub(crate) fn register(
        &self,
        counted: Reserved,
        task: TaskId,
        head: Seq,
    ) -> (Registration, Arc<LiveLog>, queue::Receiver<Inbox>) {
        let live = Arc::new(LiveLog::new(task, head));
        let (sender, inbox) = queue::channel(INBOX);
        let registration = self.around.registry.insert(Some(counted), Arc::clone(&live), sender);
        (registration, live, inbox)
    }

    pub(crate) async fn head(&self, caller: &Principal, task: &TaskId) -> Result<Head> {
        let head = self.around.store.head(caller, task).await?;
        head.ok_or_else(|| Error::task_not_found(task))
    }

    fn reader(&self, caller: &Principal, task: TaskId, head: &Head, cursor: Seq) -> TaskReader {
        let (store, registry) = (Arc::clone(&self.around.store), Arc::clone(&self.around.registry));
        TaskReader::new(
            store,
            registry,
            caller.clone(),
            task,
            head.context.clone(),
            head.output.clone(),
            cursor,
        )
    }

    /// A reader of a task that is at hand.
    fn reader_of(&self, caller: &Principal, task: &Task, cursor: Seq) -> TaskReader {
        let (store, registry) = (Arc::clone(&self.around.store), Arc::clone(&self.around.registry));
        let (context, output) = (task.context_id.clone(), task.terms.output.clone());
        TaskReader::new(store, registry, caller.clone(), task.id.clone(), context, output, cursor)
    }

    /// What is known of a file that the gateway keeps.
    pub async fn file(&self, caller: &Principal, id: &FileId) -> Result<FileFacts> {
        // Another's file and one that never was look the same from outside.
        let file = self.around.store.file(caller, id).await?;
        file.ok_or_else(|| {
            Error::new(ErrorKind::RouteNotFound, format!("There is no file {id} that you may see."))
        })
    }

    /// A piece of a file. Ask [`Engine::file`] first: this does not look at whose it is.
    pub async fn read_file(
        &self,
        caller: &Principal,
        id: &FileId,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let bytes = self.around.store.read_file(caller, id, offset, length).await?;
        bytes.ok_or_else(|| Error::internal("a file went away while it was read"))
    }

    /// Answers an ask by its name. What the agent fails at is told in the words of control calls.
    pub async fn answer(&self, caller: &Principal, request: &RequestId, answer: Answer) -> Result<()> {
        let known = self.around.store.interrupt(caller, request).await?;
        // Another's ask and one that never was look the same from outside.
        let known = known.filter(|known| known.owner == *caller).ok_or_else(|| asks::not_open(request))?;
        if let Some(closed) = &known.closed {
            return Err(self.too_late(request, closed));
        }
        if known.ask.kind != answer.kind() {
            return Err(asks::type_mismatch(&known.ask, &answer));
        }
        let given = self.deliver(caller, &known.task, request.clone(), answer, None).await;
        given.map(drop).map_err(of_upstream)
    }

    /// The open asks of a caller, soonest deadline first.
    pub async fn open_asks(&self, caller: &Principal, kind: AskKind) -> Result<Vec<Interrupt>> {
        self.around.store.open_interrupts(caller, kind).await
    }

    /// Hands an answer to the owner of the task, and waits until the agent has it and the log says so.
    pub(crate) async fn deliver(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: RequestId,
        answer: Answer,
        send: Option<Send>,
    ) -> Result<Snapshot> {
        let (reply, told) = oneshot::channel();
        let (by, trace) = (caller.clone(), self.trace_of_caller());
        let given = Given { request: request.clone(), answer, by, trace, send, reply };
        if let Some(inbox) = self.around.registry.inbox(task)
            && inbox.send(Inbox::Answer(Box::new(given))).await.is_ok()
            && let Ok(told) = told.await
        {
            return told;
        }
        // The owner went away: with the turn, and nobody asks any more, or with the gateway, and the ask stays open.
        if self.head(caller, task).await?.state.is_terminal() {
            return Err(asks::not_open(&request));
        }
        Err(self.around.registry.no_owner())
    }

    pub(crate) fn trace_of_caller(&self) -> Option<TraceContext> {
        trace_of_caller().map(|trace| self.around.spans.decided(trace))
    }

    fn too_late(&self, request: &RequestId, closed: &Closed) -> Error {
        let tombstone = i64::try_from(self.around.config.asks.tombstone.as_millis()).unwrap_or(i64::MAX);
        let is_told = closed.at.0.saturating_add(tombstone) > self.around.clock.now().0;
        if closed.resolution != Resolution::Expired || !is_told {
            return asks::not_open(request);
        }
        let text = format!("The ask {request} was not answered in time.");
        Error::new(ErrorKind::InterruptExpired, text).detail("requestId", request.as_str())
    }
}
