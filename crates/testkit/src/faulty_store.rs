//! A store that a test can delay or break.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Claim, Claimed, ContextLocation, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, NewFile, OwnedSession, RecordedSends, Retention,
    RetentionStep, Session, Store, StoredBytes, StoredTask, TaskPage, UnfinishedPage,
};
use longshore_model::{
    Approval, AskKind, ContextId, Entry, Epoch, Error, ErrorKind, FileId, Interrupt, Principal, PromptId,
    RequestId, Result, Seq, SessionId, TaskEvent, TaskId, Timestamp,
};

use crate::scripted_agent::Gate;

#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    /// A gate for appends.
    pub appends: Gate,
    /// A gate for reads of files.
    pub file_reads: Gate,
    /// How many of the next appends fail.
    failures: AtomicUsize,
    /// How many of the next appends are executed and reported as failed.
    denials: AtomicUsize,
    /// How many of the next appends report a conflict with another writer.
    conflicts: AtomicUsize,
    /// How many of the next appends are too large for the store.
    outgrown: AtomicUsize,
    /// Whether tasks can neither be read nor continued, only ended.
    tasks_are_damaged: AtomicBool,
    /// How many of the next tasks a limit refuses.
    refusals: AtomicUsize,
    /// A gate for writes of files.
    pub puts: Gate,
    /// How many of the next writes of files fail.
    put_failures: AtomicUsize,
    /// How many of the next tasks are created and reported as failed.
    create_failures: AtomicUsize,
    /// The oldest event that the store reports.
    first: AtomicU64,
    logs_are_broken: AtomicBool,
    files_are_broken: AtomicBool,
    asks_are_damaged: AtomicBool,
    /// How many events were read from logs.
    events_read: AtomicUsize,
    /// The calls about tasks, in order.
    calls: Mutex<Vec<&'static str>>,
}

impl FaultyStore {
    /// Passes all calls on to `inner` until the test arranges something else.
    pub fn over(inner: impl Store + 'static) -> Arc<Self> {
        Self::around(Arc::new(inner))
    }

    /// The same around a store that the test uses directly too.
    pub fn around(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            appends: Gate::default(),
            file_reads: Gate::default(),
            failures: AtomicUsize::new(0),
            denials: AtomicUsize::new(0),
            conflicts: AtomicUsize::new(0),
            outgrown: AtomicUsize::new(0),
            tasks_are_damaged: AtomicBool::new(false),
            refusals: AtomicUsize::new(0),
            put_failures: AtomicUsize::new(0),
            puts: Gate::default(),
            create_failures: AtomicUsize::new(0),
            first: AtomicU64::new(1),
            logs_are_broken: AtomicBool::new(false),
            files_are_broken: AtomicBool::new(false),
            asks_are_damaged: AtomicBool::new(false),
            events_read: AtomicUsize::new(0),
            calls: Mutex::default(),
        })
    }

    pub fn fail_next(&self, appends: usize) {
        self.failures.store(appends, Ordering::SeqCst);
    }

    /// Executes the next appends and reports them as failed.
    pub fn lose_next_append_results(&self, appends: usize) {
        self.denials.store(appends, Ordering::SeqCst);
    }

    pub fn fail_next_files(&self, files: usize) {
        self.put_failures.store(files, Ordering::SeqCst);
    }

    /// Creates the next tasks and reports them as failed.
    pub fn lose_next_create_results(&self, tasks: usize) {
        self.create_failures.store(tasks, Ordering::SeqCst);
    }

    pub fn conflict_next(&self, appends: usize) {
        self.conflicts.store(appends, Ordering::SeqCst);
    }

    /// The store cannot hold what the next appends add.
    pub fn outgrow_next(&self, appends: usize) {
        self.outgrown.store(appends, Ordering::SeqCst);
    }

    /// Acts as if a check had found every task damaged.
    pub fn damage_tasks(&self) {
        self.tasks_are_damaged.store(true, Ordering::SeqCst);
    }

    /// A limit of the store refuses the next tasks.
    pub fn refuse_next_creates(&self, tasks: usize) {
        self.refusals.store(tasks, Ordering::SeqCst);
    }

    /// Acts as if retention had removed all events before this one.
    pub fn forget_before(&self, first: u64) {
        self.first.store(first, Ordering::SeqCst);
    }

    /// Makes reading logs fail from now on. Everything else works.
    pub fn break_logs(&self) {
        self.logs_are_broken.store(true, Ordering::SeqCst);
    }

    /// Makes reading files fail from now on. Their facts can still be read.
    pub fn break_files(&self) {
        self.files_are_broken.store(true, Ordering::SeqCst);
    }

    /// Makes reading an ask by its id fail from now on.
    pub fn damage_asks(&self) {
        self.asks_are_damaged.store(true, Ordering::SeqCst);
    }

    /// How many events were read from logs, since the start.
    pub fn events_read(&self) -> usize {
        self.events_read.load(Ordering::SeqCst)
    }

    /// The calls since the last `take_calls`, in order.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, call: &'static str) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    fn check_damage(&self) -> Result<()> {
        if self.tasks_are_damaged.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Internal, "The stored task is damaged."));
        }
        Ok(())
    }

    fn first(&self) -> Seq {
        Seq(self.first.load(Ordering::SeqCst))
    }
}

/// Decrements the counter. False: it was zero.
fn takes_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn check(is_broken: &AtomicBool) -> Result<()> {
    if is_broken.load(Ordering::SeqCst) {
        return Err(Error::new(ErrorKind::Unavailable, "The store is away."));
    }
    Ok(())
}

impl Store for FaultyStore {
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check(&self.logs_are_broken)?;
            self.inner.check().await
        })
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<RetentionStep>> {
        self.inner.retain(retention)
    }

    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>> {
        self.inner.end_damaged(at, end)
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        self.note("append");
        Box::pin(async move {
            self.appends.pass().await;
            if takes_one(&self.failures) {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            if takes_one(&self.outgrown) {
                return Err(Error::new(
                    ErrorKind::BodyTooLarge,
                    "The task is larger than the store can hold.",
                ));
            }
            if !append.events.iter().next_back().is_some_and(TaskEvent::is_terminal) {
                self.check_damage()?;
            }
            if takes_one(&self.conflicts) {
                return Ok(Appended::Conflict { head: append.expected.plus(7) });
            }
            let appended = self.inner.append(append).await;
            if takes_one(&self.denials) {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            appended
        })
    }

    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.note("read");
        Box::pin(async move {
            check(&self.logs_are_broken)?;
            let first = self.first();
            let mut entries = self.inner.read(caller, task, after, limit).await?;
            entries.retain(|entry| entry.seq >= first);
            self.events_read.fetch_add(entries.len(), Ordering::SeqCst);
            Ok(entries)
        })
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        self.note("head");
        Box::pin(async move {
            let head = self.inner.head(owner, task).await?;
            Ok(head.map(|head| Head { first: head.first.max(self.first()), ..head }))
        })
    }

    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            self.file_reads.pass().await;
            check(&self.files_are_broken)?;
            self.inner.read_file(caller, id, offset, length).await
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        self.note("create");
        Box::pin(async move {
            if takes_one(&self.refusals) {
                let full = Error::new(ErrorKind::Unavailable, "The disk is nearly full.");
                return Err(full.detail("limit", "min_free_disk"));
            }
            let made = self.inner.create(create).await;
            if takes_one(&self.create_failures) {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            made
        })
    }

    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>> {
        self.inner.record_sends(noted)
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        self.note("earlier_send");
        self.inner.earlier_send(owner, key)
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        self.note("session");
        self.inner.session(owner, id)
    }

    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>> {
        self.note("owner_of");
        self.inner.owner_of(caller, id)
    }

    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>> {
        self.inner.owners(caller, ids)
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>> {
        self.note("claim");
        self.inner.claim(claim)
    }

    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>> {
        self.note("contexts_of");
        self.inner.contexts_of(owner, id)
    }

    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        self.inner.turn_of(session, prompt)
    }

    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>> {
        self.inner.recent_sessions(since, limit)
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        self.note("get");
        Box::pin(async move {
            self.check_damage()?;
            self.inner.get(owner, task).await
        })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        self.inner.list(query)
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        self.inner.children(root)
    }

    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>> {
        self.note("place");
        self.inner.context_location(owner, context)
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        self.note("bind");
        self.inner.bind(binding)
    }

    fn interrupt<'a>(
        &'a self,
        caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        Box::pin(async move {
            if self.asks_are_damaged.load(Ordering::SeqCst) {
                return Err(Error::internal("the row of an ask is damaged"));
            }
            self.inner.interrupt(caller, request).await
        })
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        self.inner.open_interrupts(owner, kind)
    }

    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>> {
        self.inner.keep_approval(approval)
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>> {
        self.inner.approvals(owner, session)
    }

    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>> {
        self.inner.revoke_approval(owner, request)
    }

    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>> {
        self.inner.unfinished_after(cursor)
    }

    fn stored_bytes(&self, owner: &Principal) -> StoredBytes {
        self.inner.stored_bytes(owner)
    }

    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>> {
        self.inner.ended_turns(since)
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.puts.pass().await;
            if takes_one(&self.put_failures) {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            self.inner.put_file(file).await
        })
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        self.inner.file(owner, id)
    }
}
