//! Storage for the calls that the agent makes to other agents during a turn.

use std::fmt::Debug;

use longshore_model::{Json, Principal, Result, TaskId, Timestamp};

use super::BoxFuture;

/// The most calls that [`CallStore::calls_of`] returns.
pub const MAX_CALLS: usize = 10_000;

/// The most calls on a page. A page also ends after the call that brings it to [`PAGE_BYTES`](super::PAGE_BYTES).
pub const PAGE_CALLS: usize = 64;

/// The records of calls. As in [`super::Store`], every write is atomic and durable when its future returns. Deleting a task
/// deletes its records too.
pub trait CallStore: Send + Sync + Debug {
    /// Stores a call of an existing task. Replaces a record with the same id. `false`: there is no such task, and nothing was
    /// written.
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>>;

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<StoredCall>>>;

    /// The calls of a task, ended or not, in the order of their ids. At most [`MAX_CALLS`].
    fn calls_of<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredCall>>>;

    /// One page of the unended calls of all tasks, in the order of their ids, beginning after the id `after`. Used when the
    /// gateway starts.
    fn open_calls<'a>(&'a self, after: Option<&'a str>) -> BoxFuture<'a, Result<CallPage>>;
}

/// One page of unended calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallPage {
    pub calls: Vec<StoredCall>,
    /// The id after which the next page begins. `None`: this is the last page.
    pub next: Option<String>,
}

/// A call as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCall {
    pub id: String,
    /// The task whose agent makes the call, and the owner of that task.
    pub task: TaskId,
    pub owner: Principal,
    pub is_open: bool,
    pub at: Timestamp,
    /// The content of the record. The store does not interpret it.
    pub record: Json,
}
