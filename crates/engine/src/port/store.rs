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

/// A read stops after the event with which it has returned this many bytes of the log. Bounds the memory of a reader whose
/// events are large, such as the output of tools. A store that has its events in memory anyway may ignore it.
pub const READ_BYTES: usize = 256 * 1024;

/// The bounds of a page of unfinished tasks. The start of the gateway holds one page in memory.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
pub const PAGE_TASKS: usize = 256;

/// How many ended turns are checked when the gateway starts, the newest first. Older ones are not checked.
pub const MAX_ENDED: usize = 1_000;

/// The largest number of sessions in one call of [`Store::owners`].
pub const MAX_OWNERS: usize = 10_000;

/// The largest number of contexts that [`Store::contexts_of`] returns, the newest first.
pub const MAX_CONTEXTS: usize = 1_000;

/// The largest number of approvals that are kept for one owner and session, and that [`Store::approvals`] returns.
pub const MAX_APPROVALS: usize = 1_000;

/// The durable side of the engine.
///
/// Every write is atomic and durable when its future returns. A failed store answers with `Unavailable`.
pub trait Store: Send + Sync + Debug {
    /// The epoch of everything that is written from now on. Greater than that of every event that was ever there before
    /// this store was opened, including lost ones. The same for as long as the store is open.
    fn epoch(&self) -> Epoch;

    /// The last epoch before the backup, if the store was restored from a backup. Since the backup, the original gateway
    /// may have prompted the tasks that have no newer event.
    fn restored(&self) -> BoxFuture<'_, Result<Option<Epoch>>> {
        Box::pin(async { Ok(None) })
    }

    /// Makes [`Store::restored`] return `None` from now on.
    fn forget_restored(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Creates a task with its first event, unless the same request already created one. A session that the caller named is
    /// bound to the context in the same step, and a turn that runs already is written with it ([`Create::begun`]).
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>>;

    /// Records that these sends went to this task, before anything is done with them.
    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>>;

    /// The task that the same send created or joined before, or that it was recorded for.
    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>>;

    /// A session that belongs to this owner.
    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>>;

    /// Returns the owner of a session, even if the caller is another principal. `None`: nobody owns the session. `caller` has the
    /// meaning that it has in [`Store::read`]; `None` means that the gateway asks for its own use.
    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>>;

    /// The owners of these sessions, as of one moment; unowned sessions are left out. At most [`MAX_OWNERS`] ids. `caller` as
    /// in [`Store::read`].
    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>>;

    /// Makes this principal the permanent owner of an unowned session. A session with an owner stays as it is.
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>>;

    /// The contexts of this owner that are bound to a session, the latest binding first, ties by id descending;
    /// at most [`MAX_CONTEXTS`].
    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>>;

    /// The task whose turn this prompt started or joined, of any owner. Of several, the one that was created last.
    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>>;

    /// The sessions that were bound, claimed or prompted at this moment or later, of all owners, the newest first,
    /// ties by id descending. At most `limit`.
    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>>;

    /// Appends to a task's log. Nothing is written when the log's head is not `expected`, or when the task is over;
    /// when both, the result is `Terminal`. Dropping the future does not undo the append. Of two concurrent appends
    /// either may be first.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>>;

    /// Returns the events after the cursor, in order: at most `limit`, and fewer if they are large ([`READ_BYTES`]), but at
    /// least one if there is one. The list is empty if the cursor is at the head of the log. Fails with `TaskNotFound` if the
    /// task does not exist. Does not check who owns the task: `caller` is only the principal for whom the store reads, so that
    /// a store can be fair to all of them.
    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// The task, folded to its head, if it exists and `owner` owns it.
    fn get<'a>(&'a self, owner: &'a Principal, task: &'a TaskId)
    -> BoxFuture<'a, Result<Option<StoredTask>>>;

    /// Like [`Store::get`], for the actor of a task: does not wait for the check of [`Store::begin_check`].
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        self.get(owner, task)
    }

    /// Where the log of a task ends. `None`: the task does not exist, or belongs to another principal.
    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>>;

    /// Tasks of one owner, newest status first, ties by id descending.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>>;

    /// The tasks of the sub-agents of a root task, finished or not, in the order of their creation.
    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>>;

    /// The directory of a context, and the session that it is bound to.
    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>>;

    /// Binds a context to a session and returns the binding. If the context is already bound to a session other than
    /// `replaces`, that binding stays and is returned. The session then belongs to the owner of the context; a session of
    /// another principal is refused with `PermissionDenied`.
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

    /// Keeps an approval. An approval of the same owner for the same ask is replaced. Of more than [`MAX_APPROVALS`] of an owner
    /// in a session, the oldest are forgotten: then the agent's asks reach the owner again.
    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>>;

    /// The approvals of an owner, of one session or of all, the newest first, ties by request id; at most
    /// [`MAX_APPROVALS`].
    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>>;

    /// Forgets the approval that this owner gave with the answer to this ask. `false`: there is none.
    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The tasks that are not terminal, including those of sub-agents, in the order of their creation: the first ones after a
    /// cursor, which is 0 at the beginning. A page ends after the task with which it has [`PAGE_BYTES`], or after
    /// [`PAGE_TASKS`]. For the start of the gateway.
    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>>;

    /// All pages of [`Store::unfinished_after`].
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

    /// Ends every task that [`Store::unfinished_after`] leaves out because it is damaged, and returns their ids: `end` makes
    /// the last event from what is left of a task. A task that cannot be ended stays as it is. For the start of the
    /// gateway.
    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>>;

    /// The turns on which the agent may still work although their task has ended: the task was canceled, or failed, or messages
    /// had joined it. Returns the turns of tasks that ended at `since` or later, the newest first, at most [`MAX_ENDED`],
    /// without the turns of sub-agents.
    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>>;

    /// Stores a file of a task. A file with the same id, which is the same file, changes nothing.
    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>>;

    /// The metadata of a file. `None`: the file does not exist, or belongs to another principal.
    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>>;

    /// `length` bytes of a file from an offset on, fewer at its end. `None`: the file does not exist. `caller` as in
    /// [`Store::read`].
    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>>;

    /// Folds and deletes some old data, little enough that no concurrent writer waits for it. Unfinished tasks are not
    /// touched. For the background.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<RetentionStep>>;

    /// Begins to check in the background whether what is stored is what was written. Reads of tasks and events wait until
    /// the check is done. Call it once, after the start of the gateway.
    fn begin_check(&self) {}

    /// About how many bytes are stored, for a principal and in all. After a start, the store takes a while to count what is
    /// there, and until then returns less.
    fn stored_bytes(&self, _owner: &Principal) -> StoredBytes {
        StoredBytes::default()
    }

    /// Describes in words for callers what is damaged. `None`: nothing, as far as is known.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Whether what the engine has in memory of an unfinished task may be shown. `false`: the check has found the task damaged, or
    /// is not done, so that a read from the store decides.
    fn may_show(&self, _task: &TaskId) -> bool {
        true
    }

    /// Whether the store can be read and written now. Makes a real write that leaves nothing behind.
    fn check(&self) -> BoxFuture<'_, Result<()>>;
}

/// One page of the unfinished tasks.
#[derive(Clone, PartialEq, Debug)]
pub struct UnfinishedPage {
    pub tasks: Vec<StoredTask>,
    /// A task was left out because it is damaged.
    pub has_damage: bool,
    /// The cursor of the next page, if there may be one.
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
    /// The logs of tasks that ended before this moment are folded to their last event: [`Store::get`] returns the same as
    /// before, and [`Head::first`] shows it. `None`: none is folded.
    pub fold_before: Option<Timestamp>,
    /// Tasks that ended before this moment are deleted, with their asks, files and keys. A task with sub-agents is deleted
    /// when the last of them ended before that moment, together with them. A context without tasks is forgotten, with its
    /// binding and its approvals; the owner of its session stays known. `None`: none is deleted.
    pub drop_before: Option<Timestamp>,
    /// Keys of sends from before this moment no longer count.
    pub keys_before: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionStep {
    /// How many logs were folded.
    pub folded: usize,
    /// How many tasks were deleted.
    pub dropped: usize,
    /// Something was done, and there may be more.
    pub more: bool,
}

/// Makes the event that ends a task.
pub type EndTask = Box<dyn Fn(&Task) -> TaskEvent + Send + Sync>;

/// A file to be stored.
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
    /// Fixed by the context's first task. `None`: it has had none.
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
    /// A `Submitted`.
    pub first: TaskEvent,
    pub at: Timestamp,
    /// `None`: no caller sent the task. It is the work of a sub-agent, or an external turn.
    pub idempotency: Option<IdempotencyKey>,
    /// The directory of the context, if this is its first task. A session that the caller names brings its own.
    pub directory: String,
    /// The caller requested the directory: then the context must have that one.
    pub directory_named: bool,
    /// The session that the caller named for the context. A context that is bound to it keeps its binding as it is, if
    /// the task is a native prompt or its turn runs already.
    pub session: Option<SessionId>,
    /// The same session as the agent knows it: if it is unowned, the caller becomes its owner.
    pub claim: Option<Session>,
    /// The turn runs already: another client of the agent prompted the session. Written in the same step as the task, so
    /// that no crash leaves a task behind that looks as if its prompt had still to be sent.
    pub begun: Option<RunningTurn>,
    /// Push notifications about the task, from its first event on: written in the same step, so that none is missed.
    pub push: Option<Box<NewPushConfig>>,
}

/// A turn that runs before its task is created. The owner of the task must own the turn's session, or become its owner in
/// the same step. If the caller named a session, it must be this one.
#[derive(Clone, Debug)]
pub struct RunningTurn {
    /// A status that is `Working`: the second event of the log.
    pub working: TaskEvent,
    pub turn: TurnRecord,
}

/// A session that is to get an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub owner: Principal,
    pub session: Session,
    pub at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// The session was unowned and has this owner now.
    Now,
    /// The session had this owner before. Nothing was written.
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

/// Identifies the same send when it is repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    /// A digest of message id, target and content. The owner is added by the store.
    pub digest: [u8; 32],
    /// A key from before this moment no longer counts.
    pub valid_since: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Created {
    New,
    /// The same send created this task before, or [`Create::begun`] is the turn of this task. Nothing else was checked.
    Existing {
        task: TaskId,
        context: ContextId,
    },
    /// The context is bound to another session than the one that the caller named. Nothing was written.
    OtherSession,
    /// The context has another directory than the requested one. Nothing was written.
    OtherDirectory,
    /// The caller named an unowned session and claims none, or [`Create::begun`] is in such a session. Nothing was written.
    UnknownSession,
    /// The caller named a session of another principal, or [`Create::begun`] is in one. Nothing was written.
    ForeignSession,
    /// There is no room for [`Create::push`]. Nothing was written.
    PushFull(PushLimit),
}

#[derive(Clone, Debug)]
pub struct Append {
    /// The owner of the task: the store may serve the writes of many owners in turn.
    pub owner: Principal,
    pub task: TaskId,
    /// The head of the log as the writer knows it.
    pub expected: Seq,
    pub at: Timestamp,
    /// Not empty, and numbered from `expected + 1` on in the epoch [`Store::epoch`]: the store keeps those numbers. The
    /// events are shared with the writer and its readers, who see none before it is durable.
    pub events: Events,
    /// The task as of the last of these events, when the writer wants a snapshot.
    pub snapshot: Option<Arc<Task>>,
    /// Set when the turn is about to be prompted.
    pub turn: Option<TurnRecord>,
    /// How these events change the task's asks.
    pub asks: Vec<AskChange>,
    /// The send that joins the task with these events: the same send again leads to this task.
    pub joined: Option<IdempotencyKey>,
    /// The send that had joined and is withdrawn: the same send again counts as a new one.
    pub forgotten: Option<IdempotencyKey>,
}

/// A change to an ask, written in the same step as the events that report it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskChange {
    /// An ask that is known already is opened again: the agent asks again.
    Opened(Box<Interrupt>),
    /// Nothing happens to an ask that is not open.
    Closed { request_id: RequestId, closed: Closed },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The new head.
    Head(Seq),
    /// Another writer appended: the log's head is not the expected one. Nothing was written.
    Conflict { head: Seq },
    /// The task had ended. Nothing was written.
    Terminal,
}

/// The prompt and the session of a task's turn. Stored before the prompt is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnRecord {
    pub session: Session,
    pub prompt: PromptId,
    /// Prompts of messages that joined the turn, oldest first.
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
    /// The event that `task` reflects.
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
    /// The oldest event that can still be read. 1 until retention has folded some away.
    pub first: Seq,
    pub state: TaskState,
    /// What the caller who created the task accepts.
    pub output: OutputModes,
}

#[derive(Clone, Debug)]
pub struct ListQuery {
    pub owner: Principal,
    pub context: Option<ContextId>,
    pub state: Option<TaskState>,
    /// Inclusive.
    pub status_after: Option<Timestamp>,
    pub limit: usize,
    pub after: Option<PageCursor>,
    /// Without the tasks of sub-agents.
    pub roots_only: bool,
    /// If not set, the tasks come with no artifacts, and the store need not read them.
    pub with_artifacts: bool,
}

/// The last task of a page.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageCursor {
    pub status_at: Timestamp,
    pub task: TaskId,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// The number of tasks that match the filters, on all pages.
    pub total: u64,
    /// Set when there are more pages.
    pub next: Option<PageCursor>,
}

/// The session that a context is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    pub session: Session,
    /// The caller named the session. Then no new session silently replaces it.
    pub named: bool,
}

#[derive(Clone, Debug)]
pub struct Binding {
    pub owner: Principal,
    pub context: ContextId,
    pub session: Session,
    /// The session that this one replaces. `None`: the context is bound for the first time.
    pub replaces: Option<SessionId>,
    pub at: Timestamp,
}
