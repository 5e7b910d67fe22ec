//! A store whose appends a test can hold back or break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_engine::port::{
    Append, Appended, Binding, BoxFuture, Create, Created, Head, ListQuery, OwnedSession, Session, Store,
    StoredTask, TaskPage,
};
use longshore_model::{ContextId, Entry, Error, ErrorKind, Principal, Result, Seq, SessionId, TaskId};
use tokio::sync::Semaphore;

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// One permit for each append that may go through.
    gate: Semaphore,
    /// How many of the next appends fail.
    failures: AtomicUsize,
}

impl FaultyStore {
    pub(crate) fn new() -> Arc<Self> {
        let gate = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { inner: Arc::new(longshore_store::memory()), gate, failures: AtomicUsize::new(0) })
    }

    /// From now on appends wait.
    pub(crate) fn hold(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets so many appends through.
    pub(crate) fn release(&self, appends: usize) {
        self.gate.add_permits(appends);
    }

    pub(crate) fn fail_next(&self, appends: usize) {
        self.failures.store(appends, Ordering::SeqCst);
    }
}

impl Store for FaultyStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move {
            self.gate.acquire().await.expect("the gate is never closed").forget();
            let failing =
                self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if failing.is_ok() {
                return Err(Error::new(ErrorKind::Unavailable, "The disk is full."));
            }
            self.inner.append(append).await
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        self.inner.create(create)
    }

    fn read<'a>(&'a self, task: &'a TaskId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.inner.read(task, after, limit)
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        self.inner.get(owner, task)
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        self.inner.head(owner, task)
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        self.inner.list(query)
    }

    fn binding<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        self.inner.binding(owner, context)
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<()>> {
        self.inner.bind(binding)
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<Option<OwnedSession>>> {
        self.inner.session(session)
    }

    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>> {
        self.inner.unfinished()
    }
}
