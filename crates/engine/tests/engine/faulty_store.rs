//! A store whose appends a test can hold back or break.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Create, Created, Head, ListQuery, Store, StoredTask,
    TaskPage,
};
use longshore_model::{
    AskKind, ContextId, Entry, Error, ErrorKind, Interrupt, Principal, RequestId, Result, Seq, TaskId,
};
use longshore_testkit::scripted_agent::Gate;

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Where appends wait while the test holds them.
    pub(crate) appends: Gate,
    /// How many of the next appends fail.
    failures: AtomicUsize,
    /// How many of the next appends find that somebody else wrote.
    conflicts: AtomicUsize,
    /// The oldest event that the store says it has.
    first: AtomicU64,
}

impl FaultyStore {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(longshore_store::memory()),
            appends: Gate::default(),
            failures: AtomicUsize::new(0),
            conflicts: AtomicUsize::new(0),
            first: AtomicU64::new(1),
        })
    }

    pub(crate) fn fail_next(&self, appends: usize) {
        self.failures.store(appends, Ordering::SeqCst);
    }
}

impl FaultyStore {
    pub(crate) fn conflict_next(&self, appends: usize) {
        self.conflicts.store(appends, Ordering::SeqCst);
    }

    /// As if retention had folded everything before this event away.
    pub(crate) fn forget_before(&self, first: u64) {
        self.first.store(first, Ordering::SeqCst);
    }

    fn first(&self) -> Seq {
        Seq(self.first.load(Ordering::SeqCst))
    }
}

impl Store for FaultyStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move {
            self.appends.pass().await;
            let failing =
                self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if failing.is_ok() {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            let foreign =
                self.conflicts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if foreign.is_ok() {
                return Ok(Appended::Conflict { head: append.expected.plus(7) });
            }
            self.inner.append(append).await
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        self.inner.create(create)
    }

    fn read<'a>(&'a self, task: &'a TaskId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move {
            let first = self.first();
            let mut entries = self.inner.read(task, after, limit).await?;
            entries.retain(|entry| entry.seq >= first);
            Ok(entries)
        })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        self.inner.get(owner, task)
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        Box::pin(async move {
            let head = self.inner.head(owner, task).await?;
            Ok(head.map(|head| Head { first: self.first(), ..head }))
        })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        self.inner.list(query)
    }

    fn binding<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<Option<Bound>>> {
        self.inner.binding(owner, context)
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        self.inner.bind(binding)
    }

    fn interrupt<'a>(&'a self, request: &'a RequestId) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        self.inner.interrupt(request)
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        self.inner.open_interrupts(owner, kind)
    }

    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>> {
        self.inner.unfinished()
    }
}
