//! A memory store that is slow, sometimes away, and sometimes reports a failure for work that it has done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Claim, Claimed, ContextLocation, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, NewFile, OwnedSession, RecordedSends, Retention,
    RetentionStep, Session, Store, StoredTask, TaskPage, UnfinishedPage,
};
use longshore_engine::simulation::Flaw;
use longshore_model::{
    Approval, AskKind, ContextId, Entry, Epoch, ErrorKind, FileId, Interrupt, InterruptPhase, Principal,
    PromptId, RequestId, Result, Seq, SessionId, Task, TaskEvent, TaskId, Timestamp,
};
use longshore_store::MemoryStore;

use crate::stage::{Stage, away};

#[derive(Debug)]
pub(crate) struct SimStore {
    stage: Arc<Stage>,
    inner: MemoryStore,
    /// Every created task, oldest first.
    made: Mutex<Vec<(Principal, TaskId)>>,
}

impl SimStore {
    pub(crate) fn new(stage: &Arc<Stage>) -> Arc<Self> {
        let inner = match stage.flaw() {
            Some(Flaw::NoTerminalGuard) => MemoryStore::without_terminal_guard(),
            _ => longshore_store::memory(),
        };
        Arc::new(Self { stage: Arc::clone(stage), inner, made: Mutex::default() })
    }

    /// A query, which may be slow or fail.
    async fn ask<T>(&self, question: impl Future<Output = Result<T>>) -> Result<T> {
        self.slow_down().await;
        if self.stage.strikes(|fault_rates| fault_rates.store_fails) || self.stage.is_store_away() {
            return away(ErrorKind::Unavailable, "The store is away.");
        }
        let answer = question.await;
        self.slow_down().await;
        answer
    }

    /// A change, whose response may be lost.
    async fn change<T>(&self, what: &str, change: impl Future<Output = Result<T>>) -> Result<T> {
        let done = self.ask(change).await?;
        if self.stage.strikes(|fault_rates| fault_rates.answer_is_lost) {
            self.stage.note(format_args!("store: the answer to {what} is lost"));
            return away(ErrorKind::Unavailable, "The store is away.");
        }
        Ok(done)
    }

    async fn slow_down(&self) {
        if self.stage.strikes(|fault_rates| fault_rates.store_is_slow) {
            self.stage.pause().await;
        }
    }

    /// The current log, read at once.
    pub(crate) fn log(&self, task: &TaskId) -> Vec<Entry> {
        let log = self.inner.read(&nobody(), task, Seq::START, usize::MAX).now_or_never();
        log.expect("a memory store answers at once").unwrap_or_default()
    }

    /// One event of the log, if it exists.
    pub(crate) fn entry(&self, task: &TaskId, seq: Seq) -> Option<Entry> {
        let before = Seq(seq.0.saturating_sub(1));
        let found = self
            .inner
            .read(&nobody(), task, before, 1)
            .now_or_never()
            .expect("a memory store answers at once");
        found.ok()?.pop()
    }

    pub(crate) fn task(&self, owner: &Principal, task: &TaskId) -> Option<StoredTask> {
        let found = self.inner.get(owner, task).now_or_never().expect("a memory store answers at once");
        found.ok().flatten()
    }

    /// Whether the session has an owner.
    pub(crate) fn is_owned(&self, session: &SessionId) -> bool {
        let owner =
            self.inner.owner_of(None, session).now_or_never().expect("a memory store answers at once");
        owner.ok().flatten().is_some()
    }

    pub(crate) fn unfinished(&self) -> Vec<TaskId> {
        let found = self.inner.unfinished().now_or_never().expect("a memory store answers at once");
        found.unwrap_or_default().into_iter().map(|stored| stored.task.id).collect()
    }

    pub(crate) fn children_of(&self, root: &TaskId) -> Vec<TaskId> {
        let found = self.inner.children(root).now_or_never().expect("a memory store answers at once");
        found.unwrap_or_default().into_iter().map(|stored| stored.task.id).collect()
    }

    pub(crate) fn interrupt_of(&self, request: &RequestId) -> Option<Interrupt> {
        let found =
            self.inner.interrupt(&nobody(), request).now_or_never().expect("a memory store answers at once");
        found.ok().flatten()
    }

    pub(crate) fn made(&self) -> Vec<(Principal, TaskId)> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The task folded from the events up to `upto`.
pub(crate) fn folded(task: &TaskId, log: &[Entry], upto: Seq) -> Option<Task> {
    let (first, rest) = log.split_first()?;
    let mut folded = Task::begin(task.clone(), &first.event)?;
    for entry in rest.iter().filter(|entry| entry.seq <= upto) {
        folded.apply(&entry.event);
    }
    Some(folded)
}

/// A short form of an append for the trace: the number of events, the resulting state, and the ask changes.
fn outline(append: &Append) -> String {
    let statuses = append.events.iter().filter_map(|event| match event {
        TaskEvent::Status(update) => Some(update),
        _ => None,
    });
    let state = statuses.clone().next_back().map_or("output", |update| update.status.state.as_str());
    let closed = statuses.filter_map(|update| match &update.notes.interrupt.as_ref()?.phase {
        InterruptPhase::Resolved(resolution) => Some(format!(" {}", resolution.as_str())),
        InterruptPhase::Asked => None,
    });
    format!("+{} {state}{}", append.events.len(), closed.collect::<String>())
}

impl Store for SimStore {
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    /// Folds and removes nothing: the oracle compares what was seen with the whole log.
    fn retain(&self, _: Retention) -> BoxFuture<'_, Result<RetentionStep>> {
        Box::pin(async { Ok(RetentionStep::default()) })
    }

    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>> {
        self.inner.end_damaged(at, end)
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(self.change("create", async move {
            let (owner, task) = (create.owner.clone(), create.task.clone());
            let created = self.inner.create(create).await?;
            if created == Created::New {
                self.stage.note(format_args!("store: {task} is made"));
                self.made.lock().unwrap_or_else(PoisonError::into_inner).push((owner, task));
            }
            Ok(created)
        }))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(self.change("append", async move {
            let (task, from, what) = (append.task.clone(), append.expected, outline(&append));
            let appended = self.inner.append(append).await?;
            self.stage.note(format_args!("store: {task} {from}{what}: {appended:?}"));
            Ok(appended)
        }))
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        Box::pin(self.change("bind", self.inner.bind(binding)))
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.change("put_file", self.inner.put_file(file)))
    }

    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.change("note sends", self.inner.record_sends(noted)))
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(self.ask(self.inner.earlier_send(owner, key)))
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(self.ask(self.inner.session(owner, id)))
    }

    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>> {
        Box::pin(self.ask(self.inner.owner_of(caller, id)))
    }

    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>> {
        Box::pin(self.ask(self.inner.owners(caller, ids)))
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>> {
        Box::pin(self.change("claim", self.inner.claim(claim)))
    }

    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>> {
        Box::pin(self.ask(self.inner.contexts_of(owner, id)))
    }

    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(self.ask(self.inner.turn_of(session, prompt)))
    }

    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>> {
        Box::pin(self.ask(self.inner.recent_sessions(since, limit)))
    }

    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(self.ask(self.inner.read(caller, task, after, limit)))
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        Box::pin(self.ask(self.inner.get(owner, task)))
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        Box::pin(self.ask(self.inner.head(owner, task)))
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        Box::pin(self.ask(self.inner.list(query)))
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        Box::pin(self.ask(self.inner.children(root)))
    }

    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>> {
        Box::pin(self.ask(self.inner.context_location(owner, context)))
    }

    fn interrupt<'a>(
        &'a self,
        caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        Box::pin(self.ask(self.inner.interrupt(caller, request)))
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        Box::pin(self.ask(self.inner.open_interrupts(owner, kind)))
    }

    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.change("keep_approval", self.inner.keep_approval(approval)))
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>> {
        Box::pin(self.ask(self.inner.approvals(owner, session)))
    }

    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.change("revoke_approval", self.inner.revoke_approval(owner, request)))
    }

    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>> {
        Box::pin(self.ask(self.inner.unfinished_after(cursor)))
    }

    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>> {
        Box::pin(self.ask(self.inner.ended_turns(since)))
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        Box::pin(self.ask(self.inner.file(owner, id)))
    }

    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        Box::pin(self.ask(self.inner.read_file(caller, id, offset, length)))
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.ask(self.inner.check()))
    }
}

/// An observer outside of the simulated world.
fn nobody() -> Principal {
    Principal::new("nobody")
}
