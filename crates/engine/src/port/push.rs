//! Storage for push notifications, in two halves: the configurations that callers register, and the queue from which events
//! are delivered.
//!
//! There is no list of jobs: the log of a task is the queue. Each configuration has a cursor, the last event of the log that needs no
//! call any more. So an event is never sent before it is stored, and none is missed.

use std::fmt::Debug;

use longshore_model::{
    DeadLetter, FieldViolation, Principal, PushConfig, PushConfigId, PushRequest, Result, Seq, TaskId,
    Timestamp, TraceContext,
};

use super::BoxFuture;

/// The most dead letters that are kept for one configuration. Beyond that, the oldest are deleted.
pub const MAX_DEAD_LETTERS: u64 = 1_000;

/// The largest page of [`PushConfigs::list`] and [`PushQueue::dead`].
pub const MAX_PUSH_PAGE: usize = 1_000;

/// The push configurations of callers. As in [`super::Store`], every write is atomic and durable when its future returns.
/// Deleting a task deletes its configurations too. The secrets of a configuration are stored encrypted.
pub trait PushConfigs: Send + Sync + Debug {
    /// Stores a configuration for an existing task. Replaces a configuration of the task with the same id: the new configuration
    /// continues at the old cursor, so that no event is lost, and has no failed attempts. Leases of the old configuration become
    /// invalid. Without an old configuration, the cursor is [`NewPushConfig::after`].
    fn put(&self, new: NewPushConfig) -> BoxFuture<'_, Result<PushPut>>;

    /// One configuration. `None`: it does not exist, or the task belongs to another principal.
    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<Option<PushConfig>>>;

    /// The configurations of a task of this owner, in the order of their ids: the first `limit` after the id `after`.
    fn list<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        after: Option<&'a PushConfigId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<PushConfig>>>;

    /// Deletes a configuration with its dead letters. Its leases become invalid. `false`: there was no such configuration.
    fn delete<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The ids of the configurations of a task of this owner, ascending, at most [`MAX_PUSH_PAGE`]. Decrypts no secret, so this
    /// works even if the key of the secrets is missing.
    fn ids<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<PushConfigId>>>;

    /// How many configurations are stored. Configurations of ended tasks whose events are all delivered do not count.
    fn counts<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<PushCounts>>;
}

/// The queue from which events are delivered. A small trait, so that the queue can be implemented apart from the store.
pub trait PushQueue: Send + Sync + Debug {
    /// Leases up to `limit` configurations that have events after their cursor, the one that has waited longest first. Skips
    /// configurations that are leased already or postponed to a later time.
    fn due(&self, now: Timestamp, limit: usize, until: Timestamp) -> BoxFuture<'_, Result<Vec<LeasedPush>>>;

    /// Waits until a log grows or a configuration is stored; the caller then calls [`PushQueue::due`]. Returns at once if that has
    /// happened since the last call. Does not return when a postponed configuration becomes due. Only one caller may wait at a
    /// time.
    fn grown(&self) -> BoxFuture<'_, ()>;

    /// The earliest time at which a configuration becomes due or a lease expires. It may be in the past.
    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>>;

    /// Moves the cursor to an event that needs no delivery any more. `is_accepted`: the receiver accepted this event and so counts
    /// as reachable again; otherwise the configuration did not want the event. `keep`: the lease is renewed until this time; `None`
    /// ends it. Returns `false` if the lease is invalid, because it expired or the configuration was replaced or deleted.
    fn advance<'a>(
        &'a self,
        lease: &'a PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> BoxFuture<'a, Result<bool>>;

    /// Ends the lease before an event that could not be delivered now. Changes nothing if the lease is invalid.
    fn postpone<'a>(&'a self, lease: &'a PushLease, retry: PushRetry) -> BoxFuture<'a, Result<bool>>;

    /// Gives up on an event: the event becomes a dead letter, and the cursor moves past it. `keep` as in [`PushQueue::advance`].
    fn bury<'a>(
        &'a self,
        lease: &'a PushLease,
        dead: Burial,
        keep: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The dead letters of all owners after this number, in the order of their numbers, at most `limit`.
    fn dead(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>>;

    /// Makes a dead letter due again: [`PushQueue::due`] returns it in [`LeasedPush::replays`]. `false`: there is none with this
    /// number.
    fn replay(&self, number: u64) -> BoxFuture<'_, Result<bool>>;

    /// Deletes a dead letter. `false`: there is none with this number.
    fn drop_dead(&self, number: u64) -> BoxFuture<'_, Result<bool>>;
}

/// A configuration that [`PushConfigs::put`] stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPushConfig {
    /// The owner of the task.
    pub owner: Principal,
    pub config: PushConfig,
    /// The cursor: events after this one are delivered. It is the head of the log, or 0 for a new task.
    pub after: Seq,
    pub limits: PushLimits,
}

/// How many configurations may be stored. Further ones are refused, but one that replaces another is always accepted. 0: no
/// limit.
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
    /// A limit is reached. Nothing was written.
    Full(PushLimit),
}

/// Which limit of [`PushLimits`] is reached.
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

/// The permission to deliver one configuration, until it expires. Each lease has its own number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushLease {
    pub task: TaskId,
    pub config: PushConfigId,
    pub number: u64,
}

/// A leased configuration that has events to deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasedPush {
    pub lease: PushLease,
    pub owner: Principal,
    /// The configuration with its decrypted secrets.
    pub config: PushConfig,
    pub cursor: Seq,
    /// How many delivery attempts of the next event have failed.
    pub attempts: u32,
    /// When delivery failed for the first time since the receiver last accepted an event. Giving up on an event does not change
    /// this.
    pub first_failed_at: Option<Timestamp>,
    /// The trace context of the request that registered the configuration.
    pub trace: Option<TraceContext>,
    /// Set when an operator replays a dead letter: only this event is delivered, and the cursor does not move.
    pub replays: Option<Seq>,
}

/// When delivery of the next event is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushRetry {
    pub at: Timestamp,
    pub attempts: u32,
    /// When delivery of the event failed first. `None`: delivery has not been tried yet.
    pub first_failed_at: Option<Timestamp>,
}

/// An event whose delivery is given up. See [`DeadLetter`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Burial {
    pub event: Seq,
    pub reason: String,
    pub attempts: u32,
    pub first_failed_at: Timestamp,
    pub at: Timestamp,
}

/// Decides which receivers may be called.
pub trait Receivers: Send + Sync + Debug {
    /// Checks the receiver of a configuration before it is stored: its URL, the addresses that its host name resolves to now, and
    /// whether the credentials fit the authentication scheme. The violation names a field of the configuration, such as `url`.
    fn check<'a>(&'a self, request: &'a PushRequest) -> BoxFuture<'a, Result<(), FieldViolation>>;
}
