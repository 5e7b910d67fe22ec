//! The only writer of a task's log: folds events into the task, appends them to the log, and only then publishes them to readers.
//!
//! While a task of more than [`KEPT_BYTES`] waits for its turn, its writer keeps only what the wait needs. The rest is in the
//! store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_meter::Metrics;
use longshore_model::{
    AgentEvent, ArtifactId, ArtifactUpdate, BlockKind, Epoch, Error, ErrorKind, Failure, Principal,
    ProgressKind, Result, Retry, Seq, Task, TaskEvent, TaskOptions, TaskState, Timestamp, Usage,
};

use crate::engine_context::EngineContext;
use crate::live::LiveLog;
use crate::log_entry::Events;
use crate::port::{Append, Appended, AskChange, Clock, IdempotencyKey, Store, StoredTask, TurnRecord};
use crate::rare_line::RareLine;
use crate::retry::Backoff;
use crate::simulation::Flaw;
use crate::snapshot::Snapshot;
use crate::tasks::Tasks;
use crate::unfinished::CountedBytes;
use crate::{fail_point, lifecycle, open_tools, states};

/// A snapshot is written after this many events since the last one, or after half as many events as the log holds, whichever is
/// more. So all snapshots of a task together cost only as much as a few of its last ones.
const SNAPSHOT_EVERY: u64 = 256;

/// How many events, and how many bytes of content, one append takes at most. The next append takes the rest. This bounds the
/// tail of a live log, and the time that a reader waits when many events come at once.
const APPEND_EVENTS: usize = 64;
const APPEND_BYTES: usize = 256 * 1024;

/// A task of at most this many bytes stays in memory while it waits, because reading it again from the store would cost more.
const KEPT_BYTES: usize = 1024;

/// The pause before the first repeated attempt of an append while the store cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    store_failures: Arc<RareLine>,
    metrics: Arc<Metrics>,
    live: Arc<LiveLog>,
    owner: Principal,
    task: Task,
    /// Whether the content of `task` is only in the store.
    is_unloaded: bool,
    /// The bytes of the log as far as this writer knows it. Does not include content that was written before a restart and later
    /// replaced.
    bytes: Arc<CountedBytes>,
    max_bytes: u64,
    /// Whether the store permanently refused the log, so that the task was ended.
    was_refused: bool,
    head: Seq,
    /// The epoch in which the newest event was written.
    epoch: Epoch,
    snapshot_at: Seq,
    /// Events that are folded into `task` but not yet in the store.
    pending: Vec<TaskEvent>,
    pending_bytes: usize,
    /// Since when the first pending event has been waiting. Used only for measurements, never for a decision.
    pending_since: Option<Instant>,
    /// The states that the task enters through the pending events.
    pending_states: Vec<TaskState>,
    pending_asks: Vec<AskChange>,
    pending_join: Option<IdempotencyKey>,
    pending_withdrawal: Option<IdempotencyKey>,
    /// The tool calls that have begun and not ended.
    running_tools: Vec<ArtifactId>,
    /// Whether the agent has reported that it waits before it calls its model again.
    is_retrying: bool,
    /// The usage of earlier turns of the task, and the usage of all turns so far, as far as the agent has reported it.
    usage_before: Usage,
    usage: Option<Usage>,
}

impl Writer {
    pub(crate) fn new(
        ctx: &EngineContext,
        live: Arc<LiveLog>,
        owner: Principal,
        from: Snapshot,
        bytes: Arc<CountedBytes>,
    ) -> Self {
        let Snapshot { task, seq: head, epoch } = from;
        let usage_before = task.usage.unwrap_or_default();
        let running_tools = open_tools::ids(&task);
        Self {
            store: Arc::clone(&ctx.ports.store),
            clock: Arc::clone(&ctx.ports.clock),
            tasks: ctx.tasks.clone(),
            store_failures: Arc::clone(&ctx.store_failures),
            metrics: Arc::clone(&ctx.metrics),
            live,
            owner,
            task,
            is_unloaded: false,
            bytes,
            max_bytes: ctx.config.task_bytes,
            was_refused: false,
            head,
            epoch,
            snapshot_at: head,
            pending: Vec::new(),
            pending_bytes: 0,
            pending_since: None,
            pending_states: Vec::new(),
            pending_asks: Vec::new(),
            pending_join: None,
            pending_withdrawal: None,
            running_tools,
            is_retrying: false,
            usage_before,
            usage: None,
        }
    }

    pub(crate) fn task(&self) -> &Task {
        &self.task
    }

    /// The task as of the last event in the log.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { task: self.task.clone(), seq: self.head, epoch: self.epoch }
    }

    /// How many more bytes the task may have, and its limit.
    pub(crate) fn room(&self) -> (u64, u64) {
        (self.max_bytes.saturating_sub(self.bytes.get()), self.max_bytes)
    }

    /// Whether the task exceeds its byte limit.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes.get() > self.max_bytes
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Drops the content of the task if it has more than [`KEPT_BYTES`]. Called when the task begins to wait.
    pub(crate) fn unload(&mut self) {
        if !self.is_unloaded && self.pending.is_empty() && !self.is_over() && unload(&mut self.task) {
            self.is_unloaded = true;
            self.live.forget_content();
        }
    }

    /// Marks the content as dropped, for a task that was unloaded before this writer was created.
    pub(crate) fn set_unloaded(&mut self) {
        self.is_unloaded = true;
    }

    /// Reads the content of the task again, if it was dropped. Repeats this while the store cannot be reached. Fails if the store
    /// no longer has the task as it was, or when the gateway stops.
    pub(crate) async fn load(&mut self) -> Result<()> {
        let mut backoff = Backoff::starting_at(FIRST_PAUSE);
        while let Some(loading) = self.loading() {
            match loading.await {
                Ok(stored) => self.loaded(stored)?,
                Err(error) if error.retry() == Retry::Later => {
                    self.note_store_failure(&error);
                    if !backoff.pause(&self.tasks).await {
                        return Err(Error::new(ErrorKind::Unavailable, "The gateway is shutting down."));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A store call that reads the content of the task. `None`: the writer still has the content.
    pub(crate) fn loading(&self) -> Option<impl Future<Output = Result<Option<StoredTask>>> + Send + use<>> {
        let (store, owner, task) = (Arc::clone(&self.store), self.owner.clone(), self.task.id.clone());
        self.is_unloaded.then_some(async move { store.load(&owner, &task).await })
    }

    /// Takes over the content that was read. Fails if the store no longer has the task as it was.
    pub(crate) fn loaded(&mut self, stored: Option<StoredTask>) -> Result<()> {
        if !self.is_unloaded {
            return Ok(());
        }
        let Some(stored) = stored.filter(|stored| stored.seq == self.head) else {
            return Err(Error::internal(format!("the store has {} no longer as it was", self.task.id)));
        };
        self.task = stored.task;
        for event in &self.pending {
            self.task.apply(event);
        }
        self.is_unloaded = false;
        Ok(())
    }

    pub(crate) fn note_store_failure(&self, error: &Error) {
        if let Some(failures) = self.store_failures.due() {
            tracing::warn!(failures, task = %self.task.id, error = ?error, "the store failed; will try again");
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        // Never before the current status: lists are sorted by the time of the status, and a clock may step back.
        self.clock.now().max(self.task.status.at)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.status.state.is_terminal()
    }

    /// Whether the pending events fill one append.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= APPEND_EVENTS || self.pending_bytes >= APPEND_BYTES
    }

    /// Folds a report of the agent into the task. The event is in the log only after [`Writer::flush`].
    pub(crate) fn take(&mut self, report: AgentEvent) {
        if self.is_over() && !self.has(Flaw::NoTerminalGuard) {
            // The first terminal state counts; later reports of the agent are ignored.
            return;
        }
        if let Some(event) = lifecycle::apply(&self.task, report, || self.now()) {
            self.push(event);
        }
    }

    /// Whether a long time without events is normal: an ask is open, a tool or a sub-agent runs, the agent waits before it tries
    /// again, or no turn runs.
    fn is_silence_expected(&self) -> bool {
        self.task.status.state != TaskState::Working
            || !self.task.open_asks.is_empty()
            || !self.running_tools.is_empty()
            || self.is_retrying
    }

    /// Updates the list of running tools.
    fn note_tool(&mut self, event: &TaskEvent) {
        let TaskEvent::Artifact(ArtifactUpdate { artifact, last_chunk, .. }) = event else { return };
        if artifact.kind != BlockKind::ToolCall {
            return;
        }
        self.metrics.tool_chunks.increment();
        if *last_chunk {
            self.running_tools.retain(|tool| *tool != artifact.id);
        } else if !self.running_tools.contains(&artifact.id) {
            self.running_tools.push(artifact.id.clone());
        }
    }

    /// Updates whether the agent waits before a retry. Withdrawn text or a new session title does not end that wait.
    fn note_retry(&mut self, event: &TaskEvent) {
        match event {
            TaskEvent::Status(update) => {
                if let Some(progress) = &update.notes.progress {
                    self.is_retrying = progress.kind == ProgressKind::Retry;
                }
            }
            TaskEvent::Artifact(_) if event.weight() > 0 => self.is_retrying = false,
            TaskEvent::Artifact(_) | TaskEvent::Submitted { .. } => {}
        }
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.tasks.hooks().has(flaw)
    }

    /// Records the usage of the turn so far. It is reported with the end of the turn.
    pub(crate) fn note_usage(&mut self, usage: Usage) {
        self.usage = Some(self.usage_before.plus(usage));
    }

    /// Resets the state that is tracked per turn, because another turn of the task begins.
    pub(crate) fn begin_turn(&mut self) {
        self.usage_before = self.task.usage.unwrap_or_default();
        self.usage = self.task.usage;
        self.running_tools.clear();
        self.is_retrying = false;
    }

    /// Adds an event that opens or closes asks. The event and the changes to the asks become durable together.
    pub(crate) fn push_ask(&mut self, event: TaskEvent, changes: impl IntoIterator<Item = AskChange>) {
        self.push(event);
        self.pending_asks.extend(changes);
    }

    /// Adds the event of a message that joins. `key` makes repeated sends of the message lead to this task. An append can hold only
    /// one such message.
    pub(crate) fn push_join(&mut self, event: TaskEvent, key: IdempotencyKey) {
        self.push(event);
        self.pending_join = Some(key);
    }

    /// Adds an event that withdraws a joined message. A repeated send of that message then counts as a new one.
    pub(crate) fn push_withdrawal(&mut self, event: TaskEvent, key: IdempotencyKey) {
        self.push(event);
        self.pending_withdrawal = Some(key);
    }

    /// Deletes the idempotency key with the next append. A repeated send then counts as a new one.
    pub(crate) fn forget(&mut self, key: IdempotencyKey) {
        self.pending_withdrawal = Some(key);
    }

    pub(crate) fn push(&mut self, mut event: TaskEvent) {
        if event.is_terminal() {
            // The open asks end with the task, and readers see an event for each.
            for dropped in lifecycle::dropped_asks(&self.task) {
                self.push(dropped);
            }
            if let Some(status) = event.status() {
                for closed in open_tools::closed(&self.task, status.state) {
                    self.push(closed);
                }
            }
        }
        if let TaskEvent::Status(update) = &mut event {
            update.repeats = update.status == self.task.status && update.metadata.is_none();
            if ends_a_turn(update.status.state) {
                update.notes.usage = self.usage;
            }
        }
        let before = self.task.status.state;
        self.task.apply(&event);
        if self.task.status.state != before {
            self.pending_states.push(self.task.status.state);
        }
        self.note_tool(&event);
        self.note_retry(&event);
        if self.pending.is_empty() {
            self.pending_since = Some(Instant::now());
        }
        self.pending_bytes += event.weight();
        if let (Some(TaskEvent::Artifact(last)), TaskEvent::Artifact(next)) =
            (self.pending.last_mut(), &event)
            && last.try_join(next)
        {
            return;
        }
        self.pending.push(event);
    }

    /// Appends the pending events, then publishes them to readers. Repeats the append while the store cannot be reached; the agent
    /// waits meanwhile. Fails if another writer owns the log, or when the gateway stops. If the store permanently refuses the log,
    /// because it is too large or damaged, the task is ended.
    pub(crate) async fn flush(&mut self, turn: Option<TurnRecord>) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.is_unloaded {
            // A snapshot needs the whole task.
            self.load().await?;
        }
        match self.append_pending(turn, true).await {
            Err(AppendError::Refused(error)) => Box::pin(self.end_refused(&error)).await,
            Err(AppendError::Lost(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Ends the task without the pending events, because the store cannot hold them, or cannot hold the whole task in one snapshot,
    /// or can no longer read the task.
    pub(crate) async fn end_refused(&mut self, error: &Error) -> Result<()> {
        tracing::error!(task = %self.task.id, error = ?error, "the store refuses the log of a task; it fails");
        (self.was_refused, self.is_unloaded) = (true, true);
        match self.load().await {
            // Ending the task needs no content, and no snapshot is written.
            Err(unreadable) if unreadable.retry() != Retry::Later => self.is_unloaded = false,
            loaded => loaded?,
        }
        self.push(lifecycle::failed(&self.task, self.now(), Failure::new(error.message())));
        Ok(self.append_pending(None, false).await?)
    }

    async fn append_pending(
        &mut self,
        turn: Option<TurnRecord>,
        may_snapshot: bool,
    ) -> Result<(), AppendError> {
        let epoch = self.store.epoch();
        // Takes the buffer with the events, because nothing is pending during most of a turn.
        let pending = std::mem::take(&mut self.pending);
        let events =
            Events::number(self.head.next(), epoch, pending).waiting_since(self.pending_since.take());
        let bytes = std::mem::take(&mut self.pending_bytes);
        let states = std::mem::take(&mut self.pending_states);
        let head = self.head.plus(events.len());
        let is_snapshot_due = may_snapshot && self.is_snapshot_due(head, &events);
        let snapshot = is_snapshot_due.then(|| Arc::new(self.task.clone()));
        if snapshot.is_some() {
            self.snapshot_at = head;
        }
        let append = Append {
            owner: self.owner.clone(),
            task: self.task.id.clone(),
            expected: self.head,
            at: self.now(),
            events: events.clone(),
            snapshot,
            turn,
            asks: std::mem::take(&mut self.pending_asks),
            joined: self.pending_join.take(),
            forgotten: self.pending_withdrawal.take(),
        };
        let is_silence_expected = self.is_silence_expected();
        let shown = append.snapshot.clone().map(|task| (self.owner.clone(), task));
        if self.has(Flaw::PublishBeforeCommit) {
            self.live.publish(events.clone(), is_silence_expected);
        }
        self.live.forget_snapshot();
        fail_point::hit("append.before");
        self.append(&append).await?;
        fail_point::hit("append.after");
        (self.head, self.epoch) = (head, epoch);
        self.bytes.add(bytes);
        for state in states {
            states::count(&self.metrics, state);
        }
        if !self.has(Flaw::PublishBeforeCommit) {
            self.live.publish_with(events, is_silence_expected, shown);
        }
        fail_point::hit("publish.after");
        Ok(())
    }

    fn is_snapshot_due(&self, head: Seq, events: &Events) -> bool {
        let since = head.0 - self.snapshot_at.0;
        events.iter().any(is_worth_a_snapshot) || since >= SNAPSHOT_EVERY.max(head.0 / 2)
    }

    async fn append(&self, append: &Append) -> Result<(), AppendError> {
        let (mut backoff, mut may_be_there) = (Backoff::starting_at(FIRST_PAUSE), false);
        let written = append.expected.plus(append.events.len());
        let ends_the_task = append.events.iter().next_back().is_some_and(TaskEvent::is_terminal);
        loop {
            match self.store.append(append.clone()).await {
                Ok(Appended::Head(_)) => return Ok(()),
                // An attempt that returned an error had in fact succeeded.
                Ok(Appended::Conflict { head }) if may_be_there && head == written => return Ok(()),
                Ok(Appended::Conflict { head }) => {
                    let text = format!(
                        "the log of {} ends at {head} and not at {}: it has another writer",
                        append.task, append.expected
                    );
                    return Err(AppendError::Lost(Error::internal(text)));
                }
                // An attempt that returned an error had in fact succeeded and ended the task.
                Ok(Appended::Terminal) if may_be_there && ends_the_task => return Ok(()),
                Ok(Appended::Terminal) => {
                    let text = format!("{} is over in the store", append.task);
                    return Err(AppendError::Lost(Error::internal(text)));
                }
                Err(error) if error.retry() == Retry::Later => {
                    self.note_store_failure(&error);
                    may_be_there = true;
                    if !backoff.pause(&self.tasks).await {
                        let stopping = Error::new(ErrorKind::Unavailable, "The gateway is shutting down.");
                        return Err(AppendError::Lost(stopping));
                    }
                }
                Err(error) => return Err(AppendError::Refused(error)),
            }
        }
    }
}

/// The reason why no more events can be appended.
#[derive(Debug)]
enum AppendError {
    /// Another writer owns the log, or the gateway stops.
    Lost(Error),
    /// The store will never accept these events.
    Refused(Error),
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Lost(error) | AppendError::Refused(error) => error,
        }
    }
}

/// Drops the content that a waiting task does not need, if the task has more than [`KEPT_BYTES`]. Returns whether it did.
pub(crate) fn unload(task: &mut Task) -> bool {
    if task.weight() <= KEPT_BYTES {
        return false;
    }
    (task.history, task.artifacts) = (Vec::new(), Vec::new());
    let TaskOptions { native_prompt_session, session_title, .. } = std::mem::take(&mut *task.options);
    *task.options = TaskOptions { native_prompt_session, session_title, ..TaskOptions::default() };
    true
}

/// Whether a task that enters this state has no turn any more, because the turn ended or could not begin. `AUTH_REQUIRED` is such
/// a state, because a task enters it only for lack of credentials.
fn ends_a_turn(state: TaskState) -> bool {
    state.is_terminal() || state == TaskState::AuthRequired
}

/// Whether a snapshot is written after this event. A status that only repeats the state with a note needs none: there may be
/// many, and each snapshot costs as much as the whole task.
fn is_worth_a_snapshot(event: &TaskEvent) -> bool {
    match event {
        TaskEvent::Status(update) => update.notes.progress.is_none() && update.notes.session.is_none(),
        _ => false,
    }
}
