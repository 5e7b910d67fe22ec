//! Storage for the calls that the agent makes to other agents during a turn.

use std::fmt::Debug;

use longshore_model::{Json, Principal, Result, TaskId, Timestamp};

use super::BoxFuture;

/// The most calls that [`CallStore::calls_of`] returns.
pub const MAX_CALLS: usize = 10_000;

/// The most calls on a page. A page also ends after the call with which it has [`PAGE_BYTES`](super::PAGE_BYTES).
pub const PAGE_CALLS: usize = 64;

/// The records of calls. Like [`super::Store`]: every write is atomic and durable when its future returns. A task that is deleted takes
/// its records with it.
pub trait CallStore: Send + Sync + Debug {
    /// Stores a call of a task that exists. A record with the same id is replaced. `false`: there is no such task, and nothing was
    /// written.
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>>;

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<StoredCall>>>;

    /// The calls of a task, ended or not, in the order of their ids. At most [`MAX_CALLS`].
    fn calls_of<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredCall>>>;

    /// The calls of all tasks that have not ended, in the order of their ids, a page at a time: those after the id. For the start of the
    /// gateway.
    fn open_calls<'a>(&'a self, after: Option<&'a str>) -> BoxFuture<'a, Result<CallPage>>;
}

/// Some of the calls that have not ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallPage {
    pub calls: Vec<StoredCall>,
    /// The id after which the next page begins. `None`: this is the last one.
    pub next: Option<String>,
}

/// A call as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCall {
    pub id: String,
    /// The task whose agent calls, and its owner.
    pub task: TaskId,
    pub owner: Principal,
    pub is_open: bool,
    pub at: Timestamp,
    /// What the caller of the store keeps of it.
    pub record: Json,
}
