//! A store in memory whose logs a test can make unreadable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Create, Created, Head, ListQuery, Store, StoredTask,
    TaskPage,
};
use longshore_model::{
    AskKind, ContextId, Entry, Error, ErrorKind, Interrupt, Principal, RequestId, Result, Seq, TaskId,
};
use longshore_store::MemoryStore;

#[derive(Debug)]
pub(crate) struct BreakableStore {
    inner: MemoryStore,
    is_broken: AtomicBool,
}

impl BreakableStore {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { inner: longshore_store::memory(), is_broken: AtomicBool::new(false) })
    }

    /// From now on no log can be read. Everything else goes on.
    pub(crate) fn break_reads(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }
}

impl Store for BreakableStore {
    fn read<'a>(&'a self, task: &'a TaskId, after: Seq, limit: usize) -> BoxFuture<'a, Result<Vec<Entry>>> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "The store is away.")) });
        }
        self.inner.read(task, after, limit)
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        self.inner.create(create)
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        self.inner.append(append)
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
