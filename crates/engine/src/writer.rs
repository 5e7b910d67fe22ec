//! The only writer of a task's log: folds events, appends them, and only then publishes them to readers.
//!
//! While a task of more than [`KEPT_BYTES`] waits for its turn, its writer keeps only what the wait needs. The store has the rest.

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

/// A snapshot is written when this many events have come since the last one, or half as many as the log holds,
/// whichever is more: then all snapshots of a task together cost as much as a few of its last ones.
const SNAPSHOT_EVERY: u64 = 256;

/// How many events one append takes, and how many bytes of content; the next append takes the rest. Bounds
/// the tail of a live log, and the time that a reader waits behind a flood.
const APPEND_EVENTS: usize = 64;
const APPEND_BYTES: usize = 256 * 1024;

/// A task of at most this many bytes stays in memory while it waits: reading it again from the store would cost more.
const KEPT_BYTES: usize = 1024;

/// The first pause before an append is tried again while the store cannot be reached.
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
    /// The content of `task` is only in the store.
    is_unloaded: bool,
    /// The bytes of the log, as far as this writer knows it: the whole log, except for what was written before a restart and
    /// replaced.
    bytes: Arc<CountedBytes>,
    max_bytes: u64,
    /// The store refused the log for good, and the task was ended.
    was_refused: bool,
    head: Seq,
    /// The epoch in which the newest event was written.
    epoch: Epoch,
    snapshot_at: Seq,
    /// Events that are folded into `task`, and not yet in the store.
    pending: Vec<TaskEvent>,
    pending_bytes: usize,
    /// Since when the first pending event waits. Used only for measurements, never for a decision.
    pending_since: Option<Instant>,
    /// The states that the task enters with the pending events.
    pending_states: Vec<TaskState>,
    pending_asks: Vec<AskChange>,
    pending_join: Option<IdempotencyKey>,
    pending_withdrawal: Option<IdempotencyKey>,
    /// The tool calls that have begun and not ended.
    running_tools: Vec<ArtifactId>,
    /// The agent waits before it calls its model again, as far as it has reported.
    is_retrying: bool,
    /// What earlier turns of the task used, and what all used so far, as far as the agent has reported.
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

    /// The task as it is in the log.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { task: self.task.clone(), seq: self.head, epoch: self.epoch }
    }

    /// How many more bytes the task may have, and how many in all.
    pub(crate) fn room(&self) -> (u64, u64) {
        (self.max_bytes.saturating_sub(self.bytes.get()), self.max_bytes)
    }

    /// The task has more bytes than it may have.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes.get() > self.max_bytes
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Called when the task waits: drops its content if the task has more than [`KEPT_BYTES`].
    pub(crate) fn unload(&mut self) {
        if !self.is_unloaded && self.pending.is_empty() && !self.is_over() && unload(&mut self.task) {
            self.is_unloaded = true;
            self.live.forget_content();
        }
    }

    /// The task was unloaded before there was a writer.
    pub(crate) fn set_unloaded(&mut self) {
        self.is_unloaded = true;
    }

    /// Reads the content of the task again, if it was dropped. While the store cannot be reached, this function tries again
    /// and again. Fails when the store no longer has the task as it was, or when the gateway stops.
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

    /// The call that reads the content of the task. `None`: the writer has it.
    pub(crate) fn loading(&self) -> Option<impl Future<Output = Result<Option<StoredTask>>> + Send + use<>> {
        let (store, owner, task) = (Arc::clone(&self.store), self.owner.clone(), self.task.id.clone());
        self.is_unloaded.then_some(async move { store.load(&owner, &task).await })
    }

    /// Fails when the store no longer has the task as it was.
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
        // Never before the current status: lists are sorted by it, and a clock may step back.
        self.clock.now().max(self.task.status.at)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.status.state.is_terminal()
    }

    /// Whether there are as many pending events as one append takes.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= APPEND_EVENTS || self.pending_bytes >= APPEND_BYTES
    }

    /// Takes a report of the agent. It is not in the log before [`Writer::flush`].
    pub(crate) fn take(&mut self, report: AgentEvent) {
        if self.is_over() && !self.has(Flaw::NoTerminalGuard) {
            // The first terminal state counts; later reports of the agent are ignored.
            return;
        }
        if let Some(event) = lifecycle::apply(&self.task, report, || self.now()) {
            self.push(event);
        }
    }

    /// Whether there is a reason why no event may come for long: an ask is open, a tool runs (which may
    /// be a sub-agent), the agent waits before it tries again, or no turn runs.
    fn is_silence_expected(&self) -> bool {
        self.task.status.state != TaskState::Working
            || !self.task.open_asks.is_empty()
            || !self.running_tools.is_empty()
            || self.is_retrying
    }

    /// Keeps track of the running tools.
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

    /// Keeps track of the pause before a retry. Withdrawn text or a new session title does not end the pause.
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

    /// Notes what the turn has used so far. This is reported with the end of the turn.
    pub(crate) fn note_usage(&mut self, usage: Usage) {
        self.usage = Some(self.usage_before.plus(usage));
    }

    /// Resets what is tracked per turn, because another turn of the task begins.
    pub(crate) fn begin_turn(&mut self) {
        self.usage_before = self.task.usage.unwrap_or_default();
        self.usage = self.task.usage;
        self.running_tools.clear();
        self.is_retrying = false;
    }

    /// Adds an event that opens or closes an ask, or does both. The event and the changes are durable together.
    pub(crate) fn push_ask(&mut self, event: TaskEvent, changes: impl IntoIterator<Item = AskChange>) {
        self.push(event);
        self.pending_asks.extend(changes);
    }

    /// Adds an event with which a message joins. The same message sent again leads to this task; one append takes one such
    /// message.
    pub(crate) fn push_join(&mut self, event: TaskEvent, key: IdempotencyKey) {
        self.push(event);
        self.pending_join = Some(key);
    }

    /// Adds an event that withdraws a message that had joined. The same message sent again is a new one.
    pub(crate) fn push_withdrawal(&mut self, event: TaskEvent, key: IdempotencyKey) {
        self.push(event);
        self.pending_withdrawal = Some(key);
    }

    /// Forgets the key with the next append. The same send, repeated after that, counts as a new one.
    pub(crate) fn forget(&mut self, key: IdempotencyKey) {
        self.pending_withdrawal = Some(key);
    }

    pub(crate) fn push(&mut self, mut event: TaskEvent) {
        if event.is_terminal() {
            // Open asks end with the task, and readers learn of it.
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

    /// Appends the pending events, then publishes them to readers. While the store cannot be reached, this function tries
    /// again and again, and the agent has to wait. Fails when another writer owns the log, or when the gateway stops. A task
    /// whose log the store refuses for good, because it is too large or damaged, ends.
    pub(crate) async fn flush(&mut self, turn: Option<TurnRecord>) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.is_unloaded {
            // A snapshot must have the whole task.
            self.load().await?;
        }
        match self.append_pending(turn, true).await {
            Err(AppendError::Refused(error)) => Box::pin(self.end_refused(&error)).await,
            Err(AppendError::Lost(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// The store cannot hold the events that are to be written, or the whole task in one snapshot, or has the task only damaged.
    /// Ends the task without the events that are not stored.
    pub(crate) async fn end_refused(&mut self, error: &Error) -> Result<()> {
        tracing::error!(task = %self.task.id, error = ?error, "the store refuses the log of a task; it fails");
        (self.was_refused, self.is_unloaded) = (true, true);
        match self.load().await {
            // The end needs no content, and no snapshot is written.
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
        // Takes the buffer too: for most of a turn's time nothing is pending.
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
                // An attempt that was reported as failed had succeeded.
                Ok(Appended::Conflict { head }) if may_be_there && head == written => return Ok(()),
                Ok(Appended::Conflict { head }) => {
                    let text = format!(
                        "the log of {} ends at {head} and not at {}: it has another writer",
                        append.task, append.expected
                    );
                    return Err(AppendError::Lost(Error::internal(text)));
                }
                // An attempt that was reported as failed had succeeded, and ended the task.
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

/// Why nothing more can be appended.
#[derive(Debug)]
enum AppendError {
    /// Another writer owns the log, or the gateway stops.
    Lost(Error),
    /// The store will never take these events.
    Refused(Error),
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Lost(error) | AppendError::Refused(error) => error,
        }
    }
}

/// Drops what a waiting task does not need, if the task has more than [`KEPT_BYTES`]. Returns whether it did.
pub(crate) fn unload(task: &mut Task) -> bool {
    if task.weight() <= KEPT_BYTES {
        return false;
    }
    (task.history, task.artifacts) = (Vec::new(), Vec::new());
    let TaskOptions { native_prompt_session, session_title, .. } = std::mem::take(&mut *task.options);
    *task.options = TaskOptions { native_prompt_session, session_title, ..TaskOptions::default() };
    true
}

/// Whether a turn has ended, or could not begin, when its task enters this state. A task becomes `AUTH_REQUIRED` only for lack of
/// credentials.
fn ends_a_turn(state: TaskState) -> bool {
    state.is_terminal() || state == TaskState::AuthRequired
}

/// Whether the event is worth a snapshot by itself. A status that only repeats the state with a note is not: there may be
/// many, and each snapshot costs as much as the whole task.
fn is_worth_a_snapshot(event: &TaskEvent) -> bool {
    match event {
        TaskEvent::Status(update) => update.notes.progress.is_none() && update.notes.session.is_none(),
        _ => false,
    }
}
