//! Storage for tasks, logs and bindings.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use longshore_model::{
    Approval, AskKind, Closed, ContextId, Entry, Epoch, FileId, Interrupt, OutputModes, Principal, PromptId,
    RequestId, Result, Seq, SessionId, Task, TaskEvent, TaskId, TaskState, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::BoxFuture;
use super::agent::Session;
use super::push::{NewPushConfig, PushLimit};
use crate::log_entry::Events;

/// A read stops after the event that brings it to this many bytes. This bounds the memory of a reader with large events, such
/// as the output of tools. A store that has all events in memory may ignore the limit.
pub const READ_BYTES: usize = 256 * 1024;

/// The largest size of a page of unfinished tasks. When the gateway starts, it holds one page in memory.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
pub const PAGE_TASKS: usize = 256;

/// How many ended turns are checked when the gateway starts: the newest ones.
pub const MAX_ENDED: usize = 1_000;

/// The largest number of sessions in one call of [`Store::owners`].
pub const MAX_OWNERS: usize = 10_000;

/// The most contexts that [`Store::contexts_of`] returns: the newest ones.
pub const MAX_CONTEXTS: usize = 1_000;

/// The most approvals that are kept for one owner and session, and that [`Store::approvals`] returns.
pub const MAX_APPROVALS: usize = 1_000;

/// The durable storage of the engine.
///
/// Every write is atomic and durable when its future returns. A store that cannot be reached returns `Unavailable`.
pub trait Store: Send + Sync + Debug {
    /// The epoch of everything that is written from now on. It is greater than the epoch of every event that was written before
    /// this store was opened, even of lost events, and does not change while the store is open.
    fn epoch(&self) -> Epoch;

    /// The last epoch before the backup, if the store was restored from a backup. Tasks without a newer event may have been
    /// prompted by the original gateway since the backup. `None`: the store was not restored.
    fn restored(&self) -> BoxFuture<'_, Result<Option<Epoch>>> {
        Box::pin(async { Ok(None) })
    }

    /// Makes [`Store::restored`] return `None` from now on.
    fn forget_restored(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Creates a task with its first event, unless the same send already created one. The same step binds the context to the
    /// session that the caller named, and stores a turn that already runs ([`Create::begun`]).
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>>;

    /// Records that these sends went to this task, before the engine acts on them.
    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>>;

    /// The task that an earlier send with the same key created or joined, or for which that send was recorded.
    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>>;

    /// The session with this id. `None`: it does not exist, or does not belong to this owner.
    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>>;

    /// The owner of a session, even if the owner is not the caller. `None`: the session is unowned. `caller` names for whom the
    /// store reads, as in [`Store::read`]. If `caller` is `None`, the gateway reads for itself.
    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>>;

    /// The owners of these sessions at one point in time, without the unowned sessions. At most [`MAX_OWNERS`] ids. `caller` as in
    /// [`Store::read`].
    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>>;

    /// Makes this principal the permanent owner of an unowned session. Does not change a session that has an owner.
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>>;

    /// The contexts of this owner that are bound to a session, the latest binding first, ties by id descending, at most
    /// [`MAX_CONTEXTS`].
    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>>;

    /// The task, of any owner, whose turn this prompt started or joined. If there are several, the one that was created last.
    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>>;

    /// The sessions of all owners that were bound, claimed or prompted at `since` or later, the newest first, ties by id
    /// descending, at most `limit`.
    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>>;

    /// Appends to a task's log. Writes nothing if the head of the log is not `expected`, or if the task is over; if both apply,
    /// the result is `Terminal`. Dropping the future does not undo the append. Of two concurrent appends, either may come
    /// first.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>>;

    /// The events after the cursor, in order: at most `limit`, and fewer if they are large ([`READ_BYTES`]), but at least one if
    /// there is one. Empty if the cursor is at the head of the log. Fails with `TaskNotFound` if the task does not exist. Does not
    /// check who owns the task: `caller` only names the principal for whom the store reads, so that the store can share its
    /// capacity fairly among principals.
    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// The task as of the head of its log. `None`: it does not exist, or does not belong to `owner`.
    fn get<'a>(&'a self, owner: &'a Principal, task: &'a TaskId)
    -> BoxFuture<'a, Result<Option<StoredTask>>>;

    /// Like [`Store::get`], for the actor of a task. Does not wait for the check that [`Store::begin_check`] starts.
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        self.get(owner, task)
    }

    /// The head of the task's log. `None`: the task does not exist, or belongs to another principal.
    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>>;

    /// The tasks of one owner, the newest status first, ties by id descending.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>>;

    /// The child tasks of a root task, finished or not, in the order of their creation.
    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>>;

    /// The directory of a context, and the session that the context is bound to.
    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>>;

    /// Binds a context to a session and returns the binding. If the context is already bound to a session other than `replaces`,
    /// that binding stays and is returned. The session then belongs to the owner of the context. Fails with `PermissionDenied` if
    /// the session belongs to another principal.
    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>>;

    /// An ask, open or closed, of any owner. `caller` as in [`Store::read`].
    fn interrupt<'a>(
        &'a self,
        caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>>;

    /// The open asks of one owner, soonest deadline first (none last), ties by request id.
    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>>;

    /// Stores an approval. Replaces an approval of the same owner for the same ask. If an owner has more than [`MAX_APPROVALS`] in
    /// a session, the oldest are deleted, and the asks that they covered reach the owner again.
    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>>;

    /// The approvals of an owner, in one session or in all, the newest first, ties by request id, at most [`MAX_APPROVALS`].
    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>>;

    /// Deletes the approval that this owner gave with the answer to this ask. `false`: there is none.
    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>>;

    /// One page of the tasks that are not terminal, with child tasks, in the order of their creation. `cursor`: the page begins
    /// after this position; 0 for the first page. The page ends after the task that brings it to [`PAGE_BYTES`], or after
    /// [`PAGE_TASKS`]. Used when the gateway starts.
    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>>;

    /// The tasks of all pages of [`Store::unfinished_after`].
    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>> {
        Box::pin(async {
            let (mut tasks, mut next) = (Vec::new(), Some(0));
            while let Some(cursor) = next {
                let page = self.unfinished_after(cursor).await?;
                tasks.extend(page.tasks);
                next = page.next;
            }
            Ok(tasks)
        })
    }

    /// Ends every task that [`Store::unfinished_after`] leaves out because it is damaged, and returns the ids of these tasks. `end`
    /// makes the last event from the readable rest of a task. A task that cannot be ended does not change. Used when the gateway
    /// starts.
    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>>;

    /// The turns on which the agent may still work although their task has ended: the task was canceled or failed, or messages
    /// had joined it. Returns the turns of root tasks that ended at `since` or later, the newest first, at most [`MAX_ENDED`].
    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>>;

    /// Stores a file of a task. Changes nothing if a file with the same id is stored, because the content is then the same.
    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>>;

    /// The metadata of a file. `None`: the file does not exist, or belongs to another principal.
    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>>;

    /// Reads `length` bytes of a file from `offset` on, and fewer at its end. `None`: the file does not exist. `caller` as in
    /// [`Store::read`].
    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>>;

    /// Folds and deletes some old data, little enough that no concurrent writer waits for it. Does not touch unfinished tasks.
    /// Called in the background.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<RetentionStep>>;

    /// Starts a check in the background that the stored data is undamaged. Reads of tasks and events wait until the check is
    /// done. Must be called once, after the gateway has started.
    fn begin_check(&self) {}

    /// About how many bytes are stored, for a principal and in total. After it was opened, the store needs a while to count its
    /// data, and returns less until then.
    fn stored_bytes(&self, _owner: &Principal) -> StoredBytes {
        StoredBytes::default()
    }

    /// Describes the damage to the stored data, as text for callers. `None`: no damage is known.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Whether callers may see the engine's copy in memory of an unfinished task. `false`: the check has found the task damaged or
    /// is not done yet, so callers must read the task from the store.
    fn may_show(&self, _task: &TaskId) -> bool {
        true
    }

    /// Fails if the store cannot be read and written now. Makes a real write that leaves nothing behind.
    fn check(&self) -> BoxFuture<'_, Result<()>>;
}

/// One page of the unfinished tasks.
#[derive(Clone, PartialEq, Debug)]
pub struct UnfinishedPage {
    pub tasks: Vec<StoredTask>,
    /// Whether a task was left out of the page because it is damaged.
    pub has_damage: bool,
    /// The cursor of the next page. `None`: this is the last page.
    pub next: Option<u64>,
}

/// How many bytes are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredBytes {
    pub of_owner: u64,
    pub in_all: u64,
}

/// Which data is old enough to be folded or deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    pub now: Timestamp,
    /// The log of each task that ended before this time is folded to its last event. [`Store::get`] returns the same as before,
    /// and [`Head::first`] shows that events are missing. `None`: no log is folded.
    pub fold_before: Option<Timestamp>,
    /// Each task that ended before this time is deleted, with its asks, files and keys. A task with sub-agents is deleted together
    /// with their tasks, once the last of them ended before this time. A context without tasks is deleted, with its binding and its
    /// approvals, but the owner of its session stays known. `None`: no task is deleted.
    pub drop_before: Option<Timestamp>,
    /// Idempotency keys of sends before this time no longer count.
    pub keys_before: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionStep {
    /// How many logs were folded.
    pub folded: usize,
    /// How many tasks were deleted.
    pub dropped: usize,
    /// Whether something was done, so that there may be more to do.
    pub more: bool,
}

/// A function that makes the event that ends a task.
pub type EndTask = Box<dyn Fn(&Task) -> TaskEvent + Send + Sync>;

/// A file for [`Store::put_file`].
#[derive(Clone, Debug)]
pub struct NewFile {
    pub id: FileId,
    pub owner: Principal,
    pub task: TaskId,
    pub facts: FileFacts,
    pub bytes: Arc<[u8]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFacts {
    pub name: Option<String>,
    pub media_type: String,
    pub size: u64,
    pub sha256: [u8; 32],
    pub at: Timestamp,
}

/// The directory and the session of a context.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContextLocation {
    /// The directory, which the context's first task fixes. `None`: the context has had no task.
    pub directory: Option<String>,
    pub bound: Option<Bound>,
}

/// Sends that went to an existing task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedSends {
    pub owner: Principal,
    pub task: TaskId,
    pub keys: Vec<IdempotencyKey>,
    pub at: Timestamp,
}

/// A new task.
#[derive(Clone, Debug)]
pub struct Create {
    pub owner: Principal,
    pub task: TaskId,
    pub context: ContextId,
    /// The first event of the log: a `Submitted`.
    pub first: TaskEvent,
    pub at: Timestamp,
    /// Identifies the send. `None`: the task is not from a send, but is a child task or that of an external turn.
    pub idempotency: Option<IdempotencyKey>,
    /// The directory of the context, if this is its first task. If the caller named a session, the session's directory is used.
    pub directory: String,
    /// Whether the caller requested the directory. If so, the task is refused if the context has another one.
    pub directory_named: bool,
    /// The session that the caller named for the context. If the context is already bound to this session, and the task is a
    /// native prompt or its turn already runs, the binding does not change.
    pub session: Option<SessionId>,
    /// The same session as the agent knows it. If the session is unowned, the caller becomes its owner.
    pub claim: Option<Session>,
    /// The turn of the task, if another client of the agent has already prompted the session. Written in the same step as the
    /// task, so that a crash cannot leave a task whose prompt seems to be unsent.
    pub begun: Option<RunningTurn>,
    /// The push configuration of the task. Written in the same step as the task, so that no event is missed.
    pub push: Option<Box<NewPushConfig>>,
}

/// A turn that runs before its task is created. The owner of the task must own the session of the turn, or become its owner in
/// the same step. If the caller named a session, it must be the session of the turn.
#[derive(Clone, Debug)]
pub struct RunningTurn {
    /// The second event of the log: a status `Working`.
    pub working: TaskEvent,
    pub turn: TurnRecord,
}

/// An unowned session and its future owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub owner: Principal,
    pub session: Session,
    pub at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// The session was unowned, and now belongs to this owner.
    Now,
    /// The session already belonged to this owner. Nothing was written.
    Yours,
    /// The session belongs to another principal. Nothing was written.
    Others,
}

/// A session and its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedSession {
    pub owner: Principal,
    pub session: Session,
}

/// Identifies repeated sends of the same message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    /// A digest of the message id, its target and its content. The store adds the owner.
    pub digest: [u8; 32],
    /// A stored key counts only if it is not older than this time.
    pub valid_since: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Created {
    New,
    /// The same send already created this task, or [`Create::begun`] is the turn of this task. Nothing else was checked.
    Existing {
        task: TaskId,
        context: ContextId,
    },
    /// The context is bound to a session other than the one that the caller named. Nothing was written.
    OtherSession,
    /// The context has a directory other than the requested one. Nothing was written.
    OtherDirectory,
    /// The caller named an unowned session without claiming it, or [`Create::begun`] is in such a session. Nothing was written.
    UnknownSession,
    /// The caller named a session of another principal, or [`Create::begun`] is in one. Nothing was written.
    ForeignSession,
    /// A limit leaves no room for [`Create::push`]. Nothing was written.
    PushFull(PushLimit),
}

#[derive(Clone, Debug)]
pub struct Append {
    /// The owner of the task. The store may use it to serve the writes of many owners fairly.
    pub owner: Principal,
    pub task: TaskId,
    /// The head of the log according to the writer.
    pub expected: Seq,
    pub at: Timestamp,
    /// The new events. Not empty, and numbered from `expected + 1` on, in the epoch [`Store::epoch`]; the store keeps the numbers.
    /// The writer shares the events with its readers, who see them only after they are durable.
    pub events: Events,
    /// The task as of the last of these events. `None`: the writer wants no snapshot.
    pub snapshot: Option<Arc<Task>>,
    /// The record of the turn, if the turn is about to be prompted.
    pub turn: Option<TurnRecord>,
    /// How these events change the task's asks.
    pub asks: Vec<AskChange>,
    /// The key of the send that joins the task with these events. A repeated send leads to this task.
    pub joined: Option<IdempotencyKey>,
    /// The key of a send that had joined and is withdrawn. A repeated send counts as a new one.
    pub forgotten: Option<IdempotencyKey>,
}

/// A change to an ask, written in the same step as the events that report it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskChange {
    /// An ask is opened. An ask that is already known is opened again, because the agent asked again.
    Opened(Box<Interrupt>),
    /// An ask is closed. Changes nothing if the ask is not open.
    Closed { request_id: RequestId, closed: Closed },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The events were appended, and this is the new head.
    Head(Seq),
    /// The head of the log is not the expected one, because another writer appended. Nothing was written.
    Conflict { head: Seq },
    /// The task had already ended. Nothing was written.
    Terminal,
}

/// The prompt and the session of a task's turn. Stored before the agent is prompted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnRecord {
    pub session: Session,
    pub prompt: PromptId,
    /// The prompts of messages that joined the turn, oldest first.
    pub joined: Vec<PromptId>,
}

/// The turn of a task that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedTurn {
    pub task: TaskId,
    pub turn: TurnRecord,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StoredTask {
    pub owner: Principal,
    pub task: Task,
    /// The newest event that is reflected in `task`.
    pub seq: Seq,
    /// The epoch in which that event was written.
    pub epoch: Epoch,
    pub turn: Option<TurnRecord>,
    /// The asks that are open, oldest first.
    pub open_asks: Vec<Interrupt>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    pub context: ContextId,
    pub seq: Seq,
    /// The epoch in which the newest event was written.
    pub epoch: Epoch,
    /// The oldest event that can still be read. 1 until retention has folded the log.
    pub first: Seq,
    pub state: TaskState,
    /// The media types that the caller who created the task accepts.
    pub output: OutputModes,
}

#[derive(Clone, Debug)]
pub struct ListQuery {
    pub owner: Principal,
    pub context: Option<ContextId>,
    pub state: Option<TaskState>,
    /// Only tasks whose status changed at this time or later.
    pub status_after: Option<Timestamp>,
    pub limit: usize,
    pub after: Option<PageCursor>,
    /// Leaves out child tasks.
    pub roots_only: bool,
    /// Whether the tasks include their artifacts. If not, the store need not read the artifacts.
    pub with_artifacts: bool,
}

/// The position after the last task of a page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageCursor {
    pub status_at: Timestamp,
    pub task: TaskId,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// The number of tasks on all pages that match the filters.
    pub total: u64,
    /// The position of the next page. `None`: this is the last page.
    pub next: Option<PageCursor>,
}

/// The session that a context is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    pub session: Session,
    /// Whether the caller named the session. If so, the engine never replaces the session by a new one.
    pub named: bool,
}

#[derive(Clone, Debug)]
pub struct Binding {
    pub owner: Principal,
    pub context: ContextId,
    pub session: Session,
    /// The session that the new one replaces. `None`: the context is bound for the first time.
    pub replaces: Option<SessionId>,
    pub at: Timestamp,
}
