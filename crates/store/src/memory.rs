//! A store that lives as long as the process: for tests and for `--store memory`.

mod asks;
mod files;
mod kept;
mod keys;
mod list;
mod retain;
mod sessions;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Claim, Claimed, ContextPlace, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, NewFile, NotedSends, Owned, Retained, Retention,
    Session, Store, StoredTask, TaskPage,
};
use longshore_model::{
    AskKind, ContextId, Entry, Epoch, FileId, Interrupt, Principal, PromptId, RequestId, Result, Seq,
    SessionId, TaskId, Timestamp,
};

use self::kept::Kept;
use crate::rules;

/// It is opened once.
const EPOCH: Epoch = Epoch(1);

/// Everything behind one mutex, which is never held across an await.
///
/// It keeps each task folded, so it has no use for the snapshots that it is given. What it gives is in memory anyway,
/// so that only the limits of a question bound its answer, not bytes.
#[derive(Default)]
pub struct MemoryStore {
    kept: Mutex<Kept>,
}

impl MemoryStore {
    /// A store that lets a task that is over go on: to show that simulations would find one.
    #[cfg(feature = "simulation")]
    pub fn without_terminal_guard() -> Self {
        Self { kept: Mutex::new(Kept::without_terminal_guard()) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock is held is a defect of this file; what was kept is still the best there is.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the content: a log line must not hold what callers wrote.
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn epoch(&self) -> Epoch {
        EPOCH
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<Retained>> {
        Box::pin(async move { Ok(self.kept().retain(&retention)) })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(async move { self.kept().create(create) })
    }

    fn note_sends(&self, noted: NotedSends) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.kept().note_sends(noted) })
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(async move { Ok(self.kept().task_of_key(owner, key).cloned()) })
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move { Ok(self.kept().session(owner, id)) })
    }

    fn owner_of<'a>(
        &'a self,
        _caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Owned>>> {
        Box::pin(async move { Ok(self.kept().sessions.get(id).cloned()) })
    }

    fn owners<'a>(
        &'a self,
        _caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>> {
        Box::pin(async move {
            rules::check_owners(&ids)?;
            Ok(self.kept().sessions.owners(ids))
        })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>> {
        Box::pin(async move { Ok(self.kept().claim(&claim)) })
    }

    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>> {
        Box::pin(async move { Ok(self.kept().sessions.contexts_of(owner, id)) })
    }

    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(async move { Ok(self.kept().turn_of(session, prompt)) })
    }

    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>> {
        Box::pin(async move { Ok(self.kept().sessions.used_since(since, limit)) })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move { self.kept().append(append) })
    }

    fn read<'a>(
        &'a self,
        _caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move { self.kept().read(task, after, limit) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().get(owner, task)) })
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        Box::pin(async move { Ok(self.kept().head(owner, task)) })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        Box::pin(async move { Ok(self.kept().list(&query)) })
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().children(root)) })
    }

    fn place<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextPlace>> {
        Box::pin(async move { Ok(self.kept().place(owner, context)) })
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        Box::pin(async move { self.kept().bind(binding) })
    }

    fn interrupt<'a>(
        &'a self,
        _caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        Box::pin(async move { Ok(self.kept().asks.get(request).cloned()) })
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        Box::pin(async move { Ok(self.kept().asks.open_of_owner(owner, kind)) })
    }

    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>> {
        Box::pin(async move { Ok(self.kept().unfinished()) })
    }

    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>> {
        Box::pin(async move { Ok(self.kept().ended_turns(since)) })
    }

    /// There is none: what it keeps cannot be damaged.
    fn end_damaged(&self, _: Timestamp, _: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.kept().put_file(file) })
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        Box::pin(async move { Ok(self.kept().files.facts(owner, id)) })
    }

    fn read_file<'a>(
        &'a self,
        _caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            // Copied after the lock is gone.
            let content = self.kept().files.content(id);
            Ok(content.map(|bytes| files::range(&bytes, offset, length)))
        })
    }
}
