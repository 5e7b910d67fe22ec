//! A store in memory, for tests and for `--store memory`.

mod approvals;
mod asks;
mod calls;
mod files;
mod keys;
mod list;
mod push;
mod retain;
mod sessions;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Claim, Claimed, ContextLocation, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, NewFile, OwnedSession, RecordedSends, Retention,
    RetentionStep, Session, Store, StoredBytes, StoredTask, TaskPage, UnfinishedPage,
};
use longshore_model::{
    Approval, AskKind, ContextId, Entry, Epoch, FileId, Interrupt, Principal, PromptId, RequestId, Result,
    Seq, SessionId, TaskId, Timestamp,
};

use self::state::State;
use crate::rules;

/// The only epoch, because a store in memory is opened only once.
const EPOCH: Epoch = Epoch(1);

/// A store in memory. All its state is behind one mutex, which is never held across an await.
///
/// Each task is kept folded, so the snapshots of appends are not used. A query bounds its result only by its limit and not by a
/// number of bytes, because the result is in memory anyway.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// A store with a deliberate defect: it accepts events after a terminal event. It proves that the simulation finds such a
    /// defect.
    #[cfg(feature = "simulation")]
    pub fn without_terminal_guard() -> Self {
        Self { state: Mutex::new(State::without_terminal_guard()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held is a defect of this file. The state after it is still the best that there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the content, because log lines must not contain what callers wrote.
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

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<RetentionStep>> {
        Box::pin(async move { Ok(self.state().retain(&retention)) })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(async move { self.state().create(create) })
    }

    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.state().record_sends(noted) })
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(async move { Ok(self.state().task_of_key(owner, key).cloned()) })
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move { Ok(self.state().session(owner, id)) })
    }

    fn owner_of<'a>(
        &'a self,
        _caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>> {
        Box::pin(async move { Ok(self.state().sessions.get(id).cloned()) })
    }

    fn owners<'a>(
        &'a self,
        _caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>> {
        Box::pin(async move {
            rules::check_owners(&ids)?;
            Ok(self.state().sessions.owners(ids))
        })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>> {
        Box::pin(async move { Ok(self.state().claim(&claim)) })
    }

    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>> {
        Box::pin(async move { Ok(self.state().sessions.contexts_of(owner, id)) })
    }

    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        Box::pin(async move { Ok(self.state().turn_of(session, prompt)) })
    }

    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>> {
        Box::pin(async move { Ok(self.state().sessions.used_since(since, limit)) })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move { self.state().append(append) })
    }

    fn read<'a>(
        &'a self,
        _caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async move { self.state().read(task, after, limit) })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        Box::pin(async move { Ok(self.state().get(owner, task)) })
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        Box::pin(async move { Ok(self.state().head(owner, task)) })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        Box::pin(async move { Ok(self.state().list(&query)) })
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        Box::pin(async move { Ok(self.state().children(root)) })
    }

    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>> {
        Box::pin(async move { Ok(self.state().location(owner, context)) })
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        Box::pin(async move { self.state().bind(binding) })
    }

    fn interrupt<'a>(
        &'a self,
        _caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        Box::pin(async move { Ok(self.state().asks.get(request).cloned()) })
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        Box::pin(async move { Ok(self.state().asks.open_of_owner(owner, kind)) })
    }

    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.state().approvals.keep(approval);
            Ok(())
        })
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>> {
        Box::pin(async move { Ok(self.state().approvals.list(owner, session)) })
    }

    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Ok(self.state().approvals.revoke(owner, request)) })
    }

    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>> {
        Box::pin(async move { Ok(self.state().unfinished_after(cursor)) })
    }

    fn stored_bytes(&self, owner: &Principal) -> StoredBytes {
        self.state().bytes.get(owner)
    }

    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>> {
        Box::pin(async move { Ok(self.state().ended_turns(since)) })
    }

    /// Tasks in memory are never damaged.
    fn end_damaged(&self, _: Timestamp, _: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.state().put_file(file) })
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        Box::pin(async move { Ok(self.state().files.facts(owner, id)) })
    }

    fn read_file<'a>(
        &'a self,
        _caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            // Copy the range only after the lock is released.
            let content = self.state().files.content(id);
            Ok(content.map(|bytes| files::range(&bytes, offset, length)))
        })
    }
}
