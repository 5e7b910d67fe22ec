//! Storage for push notifications, in two halves: the configurations that callers register, and the queue that the delivery works
//! through.
//!
//! There is no list of jobs: the log of a task is the queue. Each configuration has a cursor, the last event of the log that needs no
//! call any more. So an event is never sent before it is stored, and none is missed.

use std::fmt::Debug;

use longshore_model::{
    DeadLetter, FieldViolation, Principal, PushConfig, PushConfigId, PushRequest, Result, Seq, TaskId,
    Timestamp, TraceContext,
};

use super::BoxFuture;

/// The most dead letters that are kept for one configuration. The oldest ones are forgotten.
pub const MAX_DEAD_LETTERS: u64 = 1_000;

/// The largest page of [`PushConfigs::list`] and [`PushQueue::dead`].
pub const MAX_PUSH_PAGE: usize = 1_000;

/// The configurations of callers. Like [`super::Store`]: every write is atomic and durable when its future returns. A task that is
/// deleted takes its configurations with it. The secrets of a configuration are stored sealed.
pub trait PushConfigs: Send + Sync + Debug {
    /// Stores a configuration for a task that exists. A configuration of the task with the same id is replaced: the new one
    /// continues at the old one's cursor, so that no event is lost, and begins with no failed attempts; leases of the old one are
    /// void. Otherwise the cursor is [`NewPushConfig::after`].
    fn put(&self, new: NewPushConfig) -> BoxFuture<'_, Result<PushPut>>;

    /// `None`: there is no such configuration, or the task belongs to another principal.
    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<Option<PushConfig>>>;

    /// The configurations of a task of this owner, by id ascending: the first `limit` after the id `after`.
    fn list<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        after: Option<&'a PushConfigId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<PushConfig>>>;

    /// Removes a configuration, with its dead letters. Its leases are void. `false`: there was none.
    fn delete<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The ids of the configurations of a task of this owner, ascending. At most [`MAX_PUSH_PAGE`]. No secret is decrypted, so the
    /// key of the secrets may be missing.
    fn ids<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<PushConfigId>>>;

    /// How many configurations are stored. Those whose task has ended and whose events are all delivered do not count.
    fn counts<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<PushCounts>>;
}

/// What the delivery works through. Small, so that the queue can be another than the store.
pub trait PushQueue: Send + Sync + Debug {
    /// Leases configurations with events after their cursor, the one that has waited longest first. Left out are those that are
    /// leased, or postponed to a later moment. At most `limit`.
    fn due(&self, now: Timestamp, limit: usize, until: Timestamp) -> BoxFuture<'_, Result<Vec<LeasedPush>>>;

    /// Waits until a log grows or a configuration is stored, and returns at once if that has happened since the last call: then call
    /// [`PushQueue::due`]. It does not return when a postponed configuration becomes due by the time. For one caller at a time.
    fn grown(&self) -> BoxFuture<'_, ()>;

    /// The earliest moment at which a configuration is due, or at which a lease expires. It may be past.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// Moves the cursor to an event that needs no call any more. `is_accepted`: the receiver has accepted this event, so that it counts
    /// as reachable again; otherwise the configuration did not want the event. `keep` renews the lease until then; `None` ends it.
    /// `false`: the lease is void, because it expired or because the configuration was replaced or deleted.
    fn advance<'a>(
        &'a self,
        lease: &'a PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> BoxFuture<'a, Result<bool>>;

    /// Ends the lease before an event that could not be delivered now. Nothing changes if the lease is void.
    fn postpone<'a>(&'a self, lease: &'a PushLease, retry: PushRetry) -> BoxFuture<'a, Result<bool>>;

    /// Gives up on an event: it becomes a dead letter, and the cursor moves behind it. `keep` as in [`PushQueue::advance`].
    fn bury<'a>(
        &'a self,
        lease: &'a PushLease,
        dead: Burial,
        keep: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The dead letters of all owners after a number, in the order of their numbers. At most `limit`.
    fn dead(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>>;

    /// Makes a dead letter due again: it comes as [`LeasedPush::replays`]. `false`: there is none with this number.
    fn replay(&self, number: u64) -> BoxFuture<'_, Result<bool>>;

    /// Removes a dead letter. `false`: there is none with this number.
    fn drop_dead(&self, number: u64) -> BoxFuture<'_, Result<bool>>;
}

/// A configuration to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPushConfig {
    /// The owner of the task.
    pub owner: Principal,
    pub config: PushConfig,
    /// Events after this one are sent. The head of the log, or 0 for a new task.
    pub after: Seq,
    pub limits: PushLimits,
}

/// How many configurations may be stored. One more is refused; one that replaces another never is. 0: any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PushLimits {
    pub per_task: u64,
    pub per_principal: u64,
    pub in_all: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushPut {
    Stored,
    /// The task does not exist, or belongs to another principal. Nothing was written.
    NoTask,
    /// Nothing was written.
    Full(PushLimit),
}

/// A limit of [`PushLimits`] that is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushLimit {
    PerTask,
    PerPrincipal,
    InAll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PushCounts {
    pub of_owner: u64,
    pub in_all: u64,
}

/// Permission to deliver one configuration, until it expires. Each lease has another number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushLease {
    pub task: TaskId,
    pub config: PushConfigId,
    pub number: u64,
}

/// A configuration that has something to deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasedPush {
    pub lease: PushLease,
    pub owner: Principal,
    /// With its secrets.
    pub config: PushConfig,
    pub cursor: Seq,
    /// How often the next event has failed.
    pub attempts: u32,
    /// When the first attempt failed since the receiver last accepted an event. Events that are given up do not change it.
    pub first_failed_at: Option<Timestamp>,
    /// The position of the request that registered the configuration in its caller's trace.
    pub trace: Option<TraceContext>,
    /// Only this event is to be delivered, because an operator replays a dead letter. The cursor stays.
    pub replays: Option<Seq>,
}

/// When the next event is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushRetry {
    pub at: Timestamp,
    pub attempts: u32,
    /// `None`: it has not been tried yet.
    pub first_failed_at: Option<Timestamp>,
}

/// An event that is given up. See [`DeadLetter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Burial {
    pub event: Seq,
    pub reason: String,
    pub attempts: u32,
    pub first_failed_at: Timestamp,
    pub at: Timestamp,
}

/// Knows which receivers may be called.
pub trait Receivers: Send + Sync + Debug {
    /// Checks the receiver of a configuration before it is stored: its URL, the addresses that its name has now, and whether the
    /// credentials fit the scheme. The violation names a field of the configuration, such as `url`.
    fn check<'a>(&'a self, request: &'a PushRequest) -> BoxFuture<'a, Result<(), FieldViolation>>;
}
