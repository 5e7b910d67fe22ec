//! One function for each operation: checks the permission of the caller, and finds, creates or reads the task.

mod answering;
mod following;
mod listing;
mod push;
pub(crate) mod sending;

use std::sync::Arc;
use std::time::Duration;

use longshore_meter::label::AbortOutcome;
use longshore_model::{
    Answer, Approval, AskKind, Choices, Closed, Error, ErrorKind, EventId, FileId, Interrupt, Principal,
    RequestId, Resolution, Result, Seq, Task, TaskEvent, TaskId, Timestamp, TraceContext,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use self::push::PushListing;
use crate::actor::{Actor, ActorParts};
use crate::actor_request::{ActorRequest, AnswerMessage, GivenAnswer, Reply};
use crate::engine_context::{EngineContext, EngineParts, PushParts};
use crate::port::{FileFacts, Head, Spans, StoredTask, caller_trace};
use crate::reader::TaskReader;
use crate::snapshot::Snapshot;
use crate::upstream_error::to_control_error;
use crate::{answer, asks, lifecycle};

/// How long a cancel waits for the actor of the task. The actor answers at once unless the store cannot be reached.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// The engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine {
    ctx: EngineContext,
}

/// The task that a message created or joined, and a reader of its log.
#[derive(Debug)]
pub struct Sent {
    pub task: TaskId,
    /// How a stream of this task begins. `Tail` if this message created the task, now or in an earlier send: the reader then
    /// returns the whole log, if it is still kept.
    pub opening: SubscriptionStart,
    pub reader: TaskReader,
    /// Whether this call created the task. `false` for a repeated send and for a message to an existing task.
    pub is_new: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Listing {
    pub tasks: Vec<Task>,
    /// The number of tasks on all pages together.
    pub total: u64,
    pub page_size: u32,
    /// The token of the next page. Empty on the last page.
    pub next_page_token: String,
}

#[derive(Debug)]
pub struct Subscription {
    pub opening: SubscriptionStart,
    pub reader: TaskReader,
    /// Whether the reader returns something at once: missed events, or the end of the task.
    pub is_behind: bool,
}

/// How a subscription begins.
#[derive(Debug)]
pub enum SubscriptionStart {
    /// The stream begins with the current task, and the reader continues after it.
    Snapshot(Snapshot),
    /// The stream begins with the events after the cursor, and no task is sent first.
    Tail,
    /// The event at the cursor is not in the log: it is no longer kept, or a power failure destroyed it and another event may
    /// have its number. The stream begins with the current task, and the reader continues after it. The caller must learn that
    /// there is a gap.
    Gap(Snapshot, GapBounds),
}

/// The cursor that was requested, and the cursors that the log can serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapBounds {
    pub requested: EventId,
    pub first: Seq,
    pub head: EventId,
}

impl Engine {
    pub fn new(parts: EngineParts) -> Self {
        Self { ctx: EngineContext::new(parts) }
    }

    /// Makes the engine report the spans of turns to `spans`.
    #[must_use]
    pub fn with_spans(mut self, spans: Arc<dyn Spans>) -> Self {
        self.ctx.ports.spans = spans;
        self
    }

    /// Enables push notifications.
    #[must_use]
    pub fn with_push(mut self, push: PushParts) -> Self {
        self.ctx.ports.push = Some(Arc::new(push));
        self
    }

    /// Sets the gauges that are computed on demand. Called just before the metrics are written.
    pub fn update_gauges(&self) {
        let EngineContext { metrics, live, .. } = &self.ctx;
        metrics.interrupt_oldest_age.set(live.open_asks.oldest_age(self.now()));
        metrics.tasks_unfinished.set(i64::try_from(live.unfinished.len()).unwrap_or(i64::MAX));
    }

    /// The time of the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.ctx.ports.clock.now()
    }

    /// Whether the agent has a control surface.
    pub fn has_control(&self) -> bool {
        self.ctx.ports.control.is_some()
    }

    /// Fails if the agent could not work now.
    pub async fn check_agent(&self) -> Result<()> {
        self.ctx.ports.agent.check().await
    }

    /// Starts the store's check of its data. Reads wait until the check is done. Must be called after [`Engine::recover`].
    pub fn begin_store_check(&self) {
        self.ctx.ports.store.begin_check();
    }

    /// Describes the damage in the store, as text for callers. `None`: no damage is known.
    pub fn store_damage(&self) -> Option<String> {
        self.ctx.ports.store.damage()
    }

    /// Fails if tasks could not be stored now.
    pub async fn check_store(&self) -> Result<()> {
        self.ctx.ports.store.check().await
    }

    pub async fn get(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        // If the live log has the newest durable task, the store need not be read.
        if let Some(now) = self.ctx.live.registry.log(task).and_then(|live| live.snapshot(caller))
            && self.ctx.ports.store.may_show(task)
        {
            return Ok(now);
        }
        self.stored(caller, task).await.map(Snapshot::from)
    }

    /// Ends the task, and then stops the agent's turn. The context stays bound to its session.
    pub async fn cancel(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        let (metrics, since) = (&self.ctx.metrics, Instant::now());
        metrics.cancel_requests.increment();
        let canceled = self.try_cancel(caller, task, since).await;
        let outcome = match &canceled {
            // The actor of the task records the outcome of the abort.
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
        let trace = self.caller_trace().map(Box::new);
        let asked = self.send_to_actor(task, |reply| ActorRequest::Cancel { reply, since, trace });
        match tokio::time::timeout(CANCEL_PATIENCE, asked).await {
            Ok(Some(answer)) => return answer,
            // The task ended by itself before the cancel reached it, or its actor stopped.
            Ok(None) => {}
            Err(_) => {
                let text = "The store cannot be written now. The cancel is kept, and is carried out when the store is back.";
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
        let state = self.head(caller, task).await?.state;
        if !state.is_terminal() {
            return Err(self.ctx.live.registry.no_actor());
        }
        let text = format!("The task is already {state} and cannot be canceled.");
        Err(Error::new(ErrorKind::TaskNotCancelable, text)
            .detail("taskId", task.as_str())
            .detail("state", state.as_str()))
    }

    /// A reader of the log from the caller's cursor on. Without a cursor, from now on.
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
            return Ok(Subscription {
                opening: SubscriptionStart::Snapshot(snapshot),
                reader,
                is_behind: false,
            });
        };
        if !self.can_serve(caller, task, &head, cursor).await? {
            let snapshot = self.get(caller, task).await?;
            let bounds = GapBounds { requested: cursor, first: head.first, head: snapshot.id() };
            let reader = self.reader(caller, task.clone(), &head, snapshot.seq);
            return Ok(Subscription {
                opening: SubscriptionStart::Gap(snapshot, bounds),
                reader,
                is_behind: false,
            });
        }
        let is_behind = cursor.seq < head.seq || head.state.is_terminal();
        let reader = self.reader(caller, task.clone(), &head, cursor.seq);
        Ok(Subscription { opening: SubscriptionStart::Tail, reader, is_behind })
    }

    /// Whether a reader can continue after this cursor. The log must have all later events, and the event at the cursor must
    /// be the event that the reader has seen, and not a later one with the same number.
    async fn can_serve(
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
        // Epochs only grow along a log. So if the cursor has the epoch of the head, no other event has replaced the event
        // at the cursor.
        let Some(epoch) = epoch.filter(|epoch| seq > Seq::START && *epoch != head.epoch) else {
            return Ok(true);
        };
        let found = self.ctx.ports.store.read(caller, task, Seq(seq.0 - 1), 1).await?;
        Ok(found.first().is_some_and(|entry| entry.seq == seq && entry.epoch == epoch))
    }

    /// The task with its artifacts as they were before the event `seq`. Replays only the artifacts: the status is still that of
    /// the first event of the log, and the messages, which may be large, are left out. `None`: the beginning of the log is no
    /// longer kept.
    pub async fn task_before(&self, caller: &Principal, task: &TaskId, seq: Seq) -> Result<Option<Task>> {
        // The size of the batches in which a reader reads the log.
        const BATCH: usize = 128;
        if self.head(caller, task).await?.first > Seq::START.next() {
            return Ok(None);
        }
        let (mut folded, mut cursor): (Option<Task>, _) = (None, Seq::START);
        while cursor.next() < seq {
            let entries = self.ctx.ports.store.read(caller, task, cursor, BATCH).await?;
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

    /// Waits until the task is over or has an open ask, and returns the task as of that moment.
    pub async fn settled(&self, caller: &Principal, mut reader: TaskReader) -> Result<Snapshot> {
        if reader.cursor() > Seq::START {
            // After a message that answered one of several asks, the task still waits for the others.
            let snapshot = self.get(caller, reader.task_id()).await?;
            if lifecycle::is_settled(&snapshot.task.status) {
                return Ok(snapshot);
            }
        }
        while let Some(entries) = reader.next().await? {
            let newest = entries.iter().rev().find_map(|entry| entry.entry.event.status());
            if newest.is_some_and(lifecycle::is_settled) {
                // An ask in the log may have been answered since, so the current task decides.
                let snapshot = match reader.snapshot(caller) {
                    Some(now) => now,
                    None => self.get(caller, reader.task_id()).await?,
                };
                if lifecycle::is_settled(&snapshot.task.status) {
                    return Ok(snapshot);
                }
            }
        }
        self.get(caller, reader.task_id()).await
    }

    /// The modes, models and commands of the agent that a message can choose. `None`: none are known yet, or the agent has none.
    pub fn choices(&self) -> Option<Choices> {
        self.ctx.ports.agent.session_choices()?.known()
    }

    pub(crate) fn ctx(&self) -> &EngineContext {
        &self.ctx
    }

    pub(crate) fn start_actor(&self, parts: ActorParts) {
        let actor = Actor::new(self.ctx.clone(), parts);
        self.ctx.tasks.spawn("task", Box::new(actor).run());
    }

    pub(crate) async fn stored(&self, caller: &Principal, task: &TaskId) -> Result<StoredTask> {
        let stored = self.ctx.ports.store.get(caller, task).await?;
        stored.ok_or_else(|| Error::task_not_found(task))
    }

    pub(crate) async fn head(&self, caller: &Principal, task: &TaskId) -> Result<Head> {
        let head = self.ctx.ports.store.head(caller, task).await?;
        head.ok_or_else(|| Error::task_not_found(task))
    }

    fn reader(&self, caller: &Principal, task: TaskId, head: &Head, cursor: Seq) -> TaskReader {
        TaskReader::new(&self.ctx, caller.clone(), task, head.context.clone(), head.output.clone(), cursor)
    }

    /// A reader of the log, for a calling function that has already read the task.
    pub(crate) fn reader_of(&self, caller: &Principal, task: &Task, cursor: Seq) -> TaskReader {
        let (context, output) = (task.context_id.clone(), task.options.output.clone());
        TaskReader::new(&self.ctx, caller.clone(), task.id.clone(), context, output, cursor)
    }

    /// The metadata of a stored file.
    pub async fn file(&self, caller: &Principal, id: &FileId) -> Result<FileFacts> {
        // A caller cannot tell another caller's file from a file that does not exist.
        let file = self.ctx.ports.store.file(caller, id).await?;
        file.ok_or_else(|| {
            Error::new(ErrorKind::RouteNotFound, format!("There is no file {id} that you may see."))
        })
    }

    /// Reads a piece of a file. [`Engine::file`] must be called first, because this function does not check the owner.
    pub async fn read_file(
        &self,
        caller: &Principal,
        id: &FileId,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>> {
        let bytes = self.ctx.ports.store.read_file(caller, id, offset, length).await?;
        bytes.ok_or_else(|| Error::internal("a file was deleted while it was read"))
    }

    /// Answers an ask by its id. Failures of the agent are reported as errors of control calls.
    pub async fn answer(&self, caller: &Principal, request: &RequestId, answer: Answer) -> Result<()> {
        let known = self.ctx.ports.store.interrupt(caller, request).await?;
        // A caller cannot tell another caller's ask from an ask that does not exist.
        let known = known.filter(|known| known.owner == *caller).ok_or_else(|| asks::not_open(request))?;
        if let Some(closed) = &known.closed {
            return Err(self.too_late(request, closed));
        }
        if known.ask.kind != answer.kind() {
            return Err(asks::type_mismatch(&known.ask, &answer));
        }
        let answer = answer::fit(&known.ask, answer, self.ctx.config.asks.always)
            .map_err(|text| Error::invalid("reply", text))?;
        let given = self.deliver(caller, &known.task, request.clone(), answer, None).await;
        given.map(drop).map_err(to_control_error)
    }

    /// The open asks of a caller, soonest deadline first.
    pub async fn open_asks(&self, caller: &Principal, kind: AskKind) -> Result<Vec<Interrupt>> {
        self.ctx.ports.store.open_interrupts(caller, kind).await
    }

    /// The approvals that the gateway keeps for a caller, the newest first.
    pub async fn approvals(&self, caller: &Principal) -> Result<Vec<Approval>> {
        self.ctx.ports.store.approvals(caller, None).await
    }

    /// Deletes the approval that the caller gave with the answer to this ask. The next ask that it would have covered reaches the
    /// caller again.
    pub async fn revoke_approval(&self, caller: &Principal, request: &RequestId) -> Result<()> {
        if self.ctx.ports.store.revoke_approval(caller, request).await? {
            return Ok(());
        }
        let text = format!("No approval {request} of yours is kept; list the approvals to see which are.");
        Err(Error::new(ErrorKind::InterruptNotFound, text).detail("requestId", request.as_str()))
    }

    /// Sends an answer to the actor of the task, and waits until the agent has accepted it and the log says so.
    pub(crate) async fn deliver(
        &self,
        caller: &Principal,
        task: &TaskId,
        request: RequestId,
        answer: Answer,
        send: Option<AnswerMessage>,
    ) -> Result<Snapshot> {
        let (by, trace, name) = (caller.clone(), self.caller_trace(), request.clone());
        let given = |reply| {
            ActorRequest::Answer(Box::new(GivenAnswer { request: name, answer, by, trace, send, reply }))
        };
        let refusal = match self.send_to_actor(task, given).await {
            Some(Err(error)) if error.kind() == ErrorKind::InterruptNotFound => error,
            Some(answered) => return answered,
            // The actor has ended. If it ended because the turn ended, the ask is closed. If it ended because the gateway stops,
            // the ask stays open.
            None if self.head(caller, task).await?.state.is_terminal() => asks::not_open(&request),
            None => return Err(self.ctx.live.registry.no_actor()),
        };
        // Something else closed the ask after the caller saw it open.
        Err(self.too_late_for(caller, &request).await?.unwrap_or(refusal))
    }

    /// Sends a request to the actor of a task, and waits for the reply. `None`: the task has no actor, or its actor ended
    /// without a reply.
    async fn send_to_actor(
        &self,
        task: &TaskId,
        request: impl FnOnce(Reply) -> ActorRequest,
    ) -> Option<Result<Snapshot>> {
        let inbox = self.ctx.live.registry.inbox(task)?;
        let (reply, answer) = oneshot::channel();
        inbox.send(request(reply)).await.ok()?;
        answer.await.ok()
    }

    pub(crate) fn caller_trace(&self) -> Option<TraceContext> {
        caller_trace().map(|trace| self.ctx.ports.spans.decided(trace))
    }

    /// The error for an answer to an ask that is already closed.
    pub(crate) fn too_late(&self, request: &RequestId, closed: &Closed) -> Error {
        let tombstone = i64::try_from(self.ctx.config.asks.tombstone.as_millis()).unwrap_or(i64::MAX);
        let is_remembered = closed.at.0.saturating_add(tombstone) > self.ctx.ports.clock.now().0;
        let has_expired = closed.resolution == Resolution::Expired && is_remembered;
        let kind = if has_expired { ErrorKind::InterruptExpired } else { ErrorKind::InterruptNotFound };
        asks::too_late(request, closed, kind)
    }

    /// Like [`Engine::too_late`], with a lookup of the ask. `None`: the store has no such closed ask of this caller.
    pub(crate) async fn too_late_for(
        &self,
        caller: &Principal,
        request: &RequestId,
    ) -> Result<Option<Error>> {
        let known = self.ctx.ports.store.interrupt(caller, request).await?;
        let closed = known.filter(|known| known.owner == *caller).and_then(|known| known.closed);
        Ok(closed.map(|closed| self.too_late(request, &closed)))
    }
}
