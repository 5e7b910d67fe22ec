//! Where tasks, logs and bindings are kept.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use longshore_model::{
    AskKind, Closed, ContextId, Entry, Epoch, FileId, Interrupt, OutputModes, Principal, PromptId, RequestId,
    Result, Seq, SessionId, Task, TaskEvent, TaskId, TaskState, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::BoxFuture;
use super::agent::Session;
use crate::log_entry::Events;

/// A read stops behind the event with which it has given this many bytes of the log. Bounds what a reader costs whose
/// events are large, such as the output of tools. A store that has its events in memory anyway may ignore it.
pub const READ_BYTES: usize = 256 * 1024;

/// So many turns that have ended are looked at when the gateway starts, the newest. Nobody sees to the others.
pub const MAX_ENDED: usize = 1_000;

/// [`Store::owners`] is asked for so many sessions at once at most.
pub const MAX_OWNERS: usize = 10_000;

/// [`Store::contexts_of`] gives so many contexts at most, the newest.
pub const MAX_CONTEXTS: usize = 1_000;

/// The durable side of the engine.
///
/// Every write is atomic and durable when its future returns. A failed store answers with `Unavailable`.
pub trait Store: Send + Sync + Debug {
    /// Under which everything is written that is written from now on. Greater than that of every event that was ever
    /// there before this store was opened, also of those that are lost. The same for as long as the store is open.
    fn epoch(&self) -> Epoch;

    /// Makes a task with its first event, unless the same request already made one. A session that the caller named is
    /// bound to the context in the same step, and a turn that runs already is written with it ([`Create::begun`]).
    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>>;

    /// Remembers that these sends went to this task, before anything is done with them.
    fn note_sends(&self, noted: NotedSends) -> BoxFuture<'_, Result<()>>;

    /// The task that the same send made or joined before, or that it was noted to have gone to.
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

    /// Whose a session is, whoever asks. `None`: nobody's. For the caller as in [`Store::read`]; `None`: the gateway wants
    /// to know.
    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Owned>>>;

    /// Whose these sessions are, as of one moment; nobody's are left out. At most [`MAX_OWNERS`] can be asked for. For the
    /// caller as in [`Store::read`].
    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>>;

    /// Makes a session that is nobody's the owner's, for good. One that is somebody's stays as it is.
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>>;

    /// The contexts of this owner that are bound to a session, the one that was bound last first, ties by id descending;
    /// at most [`MAX_CONTEXTS`].
    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>>;

    /// The task that a prompt runs or has joined, whoever owns it; of several the one that was made last.
    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>>;

    /// The sessions that were bound, claimed or prompted at this moment or later, whoever owns them, the newest first,
    /// ties by id descending. At most `limit`.
    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>>;

    /// Appends to a task's log. Nothing is written when the log's head is not `expected`, or when the task is over;
    /// when both, it is over. Dropping the future does not take the append back. Of two at once either may be the first.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>>;

    /// Events after the cursor, in order, at most `limit`, and fewer when they are large ([`READ_BYTES`]); at least
    /// one when there is one. Empty at the head. `TaskNotFound` for a task that is not there. Whoever owns it: the caller
    /// is only the one for whom it is read, so that a store can be fair to all of them.
    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// The task, if it is there and `owner` owns it: folded to its head.
    fn get<'a>(&'a self, owner: &'a Principal, task: &'a TaskId)
    -> BoxFuture<'a, Result<Option<StoredTask>>>;

    /// Where the log of a task ends. `None`: not there, or owned by somebody else.
    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>>;

    /// Tasks of one owner, newest status first, ties by id descending.
    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>>;

    /// The tasks of the sub-agents of a root task, over or not, in the order of their creation.
    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>>;

    /// Where a context works, and the session that it is bound to.
    fn place<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextPlace>>;

    /// Binds a context to a session, unless it is bound to another than `replaces` by now, and gives the binding that
    /// stands. A session that is bound belongs to the owner; one that belongs to somebody else is refused with
    /// `PermissionDenied`.
    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>>;

    /// An ask, open or closed, whoever owns it. For the caller as in [`Store::read`].
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

    /// Every task that is not terminal, also those of sub-agents, in the order of their creation. For the start of the
    /// gateway.
    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<StoredTask>>>;

    /// Ends every task that [`Store::unfinished`] leaves out because it is damaged, and gives which: `end` makes the last
    /// event for what is left of one. One that cannot be ended stays as it is. For the start of the gateway.
    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>>;

    /// The turns of tasks that were canceled, failed, or ended with messages that had joined them, at this moment or later,
    /// the newest first, at most [`MAX_ENDED`]: the agent may still be at work on one. Without those of sub-agents.
    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>>;

    /// Keeps a file for a task. One of the same id, which is the same file, changes nothing.
    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>>;

    /// What is known of a file. `None`: not there, or owned by somebody else.
    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>>;

    /// So many bytes of a file from an offset on, fewer at its end. `None`: the file is not there. For the caller as in
    /// [`Store::read`].
    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>>;

    /// Folds and removes some of what is old, little enough that nobody who writes meanwhile waits for it. Nothing that is
    /// not over is touched. For the background.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<Retained>>;

    /// Whether the store could be read and written now. It is really asked, by a write of which nothing stays.
    fn check(&self) -> BoxFuture<'_, Result<()>>;
}

/// What is old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    pub now: Timestamp,
    /// The logs of tasks that ended before this moment are folded to their last event: [`Store::get`] gives the same as
    /// before, and [`Head::first`] tells. `None`: none is.
    pub fold_before: Option<Timestamp>,
    /// Tasks that ended before this moment go, with their asks, files and keys. One that has sub-agents goes when the last
    /// of them ended before, and they go with it. A context of which no task is left is forgotten, with its binding;
    /// whose its session is stays known. `None`: none goes.
    pub drop_before: Option<Timestamp>,
    /// Keys of sends from before this moment do not count any more.
    pub keys_before: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retained {
    /// Logs that are folded now.
    pub folded: usize,
    /// Tasks that are gone.
    pub dropped: usize,
    /// Something was done, and there may be more.
    pub more: bool,
}

/// Makes the event that ends a task.
pub type EndTask = Box<dyn Fn(&Task) -> TaskEvent + Send + Sync>;

/// A file to be kept.
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

/// Where a context works.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContextPlace {
    /// Fixed by its first task. `None`: it has had none.
    pub directory: Option<String>,
    pub bound: Option<Bound>,
}

/// Sends that went to a task that was there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotedSends {
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
    /// `None`: no send, but the work of a sub-agent.
    pub idempotency: Option<IdempotencyKey>,
    /// Where the context is to work, if this is its first task. A session that the caller names brings its own.
    pub directory: String,
    /// The caller wished for the directory: then the context must work there.
    pub directory_named: bool,
    /// The session that the caller named for the context. A context that is bound to it keeps its binding as it is, if the task
    /// is an order or its turn runs already.
    pub session: Option<SessionId>,
    /// The same session as the agent knows it: if it is nobody's, it becomes the caller's.
    pub claim: Option<Session>,
    /// The turn runs already: somebody prompted the session elsewhere. Written in the same step as the task, so that no
    /// crash leaves a task behind that looks as if its prompt had still to be sent.
    pub begun: Option<Begun>,
}

/// A turn that runs before its task is made. Its session must be the owner's, or become it in the same step, and the
/// one that was named, if one was.
#[derive(Clone, Debug)]
pub struct Begun {
    /// A status that is `Working`: the second event of the log.
    pub working: TaskEvent,
    pub turn: TurnRecord,
}

/// A session that is to be somebody's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub owner: Principal,
    pub session: Session,
    pub at: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// It was nobody's and is the owner's now.
    Now,
    /// It was the owner's before. Nothing was written.
    Yours,
    /// It is somebody else's. Nothing was written.
    Others,
}

/// A session and whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owned {
    pub owner: Principal,
    pub session: Session,
}

/// What makes two sends the same send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    /// A digest of message id, target and content. The owner is added by the store.
    pub digest: [u8; 32],
    /// A key made before this moment does not count any more.
    pub valid_since: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Created {
    New,
    /// The same send made this task before, or the turn that is begun is this task's. Nothing else was looked at.
    Existing {
        task: TaskId,
        context: ContextId,
    },
    /// The context is bound to another session than the one that the caller named. Nothing was written.
    OtherSession,
    /// The context works in another directory than the one that the caller wished for. Nothing was written.
    OtherDirectory,
    /// The caller named a session that nobody owns, and claims none; or the turn that is begun is in such a one. Nothing
    /// was written.
    UnknownSession,
    /// The caller named a session that somebody else owns, or the turn that is begun is in one. Nothing was written.
    ForeignSession,
}

#[derive(Clone, Debug)]
pub struct Append {
    /// Whose task it is: the store may take the writes of many owners in turn.
    pub owner: Principal,
    pub task: TaskId,
    /// The head of the log as the writer knows it.
    pub expected: Seq,
    pub at: Timestamp,
    /// Not empty, and numbered from `expected + 1` on under [`Store::epoch`]: so the store keeps them. They are shared with
    /// the writer and its readers, who see none before it is durable.
    pub events: Events,
    /// The task as of the last of these events, when the writer thinks that it is time for a snapshot.
    pub snapshot: Option<Arc<Task>>,
    /// Set when the turn is about to be prompted.
    pub turn: Option<TurnRecord>,
    /// What these events do to the task's asks.
    pub asks: Vec<AskChange>,
    /// The send that joins the task with these events: the same one again leads here.
    pub joined: Option<IdempotencyKey>,
    /// The send that had joined and is withdrawn: the same one again is a new one.
    pub forgotten: Option<IdempotencyKey>,
}

/// A change to an ask, made in the same step as the events that tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskChange {
    /// An ask that is known already is opened anew: the agent asks again.
    Opened(Interrupt),
    /// Nothing happens to an ask that is not open.
    Closed { request_id: RequestId, closed: Closed },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The new head.
    Head(Seq),
    /// Somebody else wrote: the log's head is not what the writer thought. Nothing was written.
    Conflict { head: Seq },
    /// The task had ended. Nothing was written.
    Terminal,
}

/// Which prompt in which session a task is. Stored before the prompt is sent.
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
    /// Under which that event was written.
    pub epoch: Epoch,
    pub turn: Option<TurnRecord>,
    /// The asks that are open, oldest first.
    pub open_asks: Vec<Interrupt>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    pub context: ContextId,
    pub seq: Seq,
    /// Under which the newest event was written.
    pub epoch: Epoch,
    /// The oldest event that can still be read. 1 until retention has folded some away.
    pub first: Seq,
    pub state: TaskState,
    /// What the caller who made the task accepts.
    pub output: OutputModes,
}

#[derive(Clone, Debug)]
pub struct ListQuery {
    pub owner: Principal,
    pub context: Option<ContextId>,
    pub state: Option<TaskState>,
    /// This moment counts.
    pub status_after: Option<Timestamp>,
    pub limit: usize,
    pub after: Option<PageCursor>,
    /// Without the tasks of sub-agents.
    pub roots_only: bool,
    /// Without: the tasks come with no artifacts, and the store need not read them.
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
    /// All tasks that the filters match, on every page.
    pub total: u64,
    /// There are more.
    pub next: Option<PageCursor>,
}

/// What a context is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    pub session: Session,
    /// The caller named the session. Then it is never replaced by a new one without a word.
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
