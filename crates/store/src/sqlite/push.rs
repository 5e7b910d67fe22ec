//! Configurations for push notifications, and the queue for their delivery.
//!
//! Secrets are sealed before a configuration reaches the write connection, and opened after a read.

mod configs;
mod queue;
mod record;
mod sealed;
mod tasks;

use longshore_engine::RareLine;
use longshore_engine::port::{
    BoxFuture, Burial, LeasedPush, NewPushConfig, PushConfigs, PushCounts, PushLease, PushPut, PushQueue,
    PushRetry,
};
use longshore_model::{DeadLetter, Principal, PushConfig, PushConfigId, Result, Seq, TaskId, Timestamp};

pub(super) use self::configs::{put, reached};
pub(super) use self::queue::{note_growth, void_leases};
pub(super) use self::record::NewPush;
pub use self::sealed::StoredSecrets;
pub(super) use self::tasks::PushTasks;
use super::SqliteStore;
use super::queue::Owner;
use super::write_connection::WriteContext;

/// How long a configuration waits before it is due again if its secrets cannot be opened, in milliseconds. The operator may restore
/// the missing key meanwhile.
const UNREADABLE_PAUSE: i64 = 60_000;

static UNREADABLE: RareLine = RareLine::new();

impl PushConfigs for SqliteStore {
    fn put(&self, new: NewPushConfig) -> BoxFuture<'_, Result<PushPut>> {
        Box::pin(async move {
            let new = NewPush::prepare(new, &self.sealer)?;
            let put = self.writer.run(Owner::Principal(new.owner.clone()), move |db| put(db, &new)).await?;
            self.grown.notify_one();
            Ok(put)
        })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<Option<PushConfig>>> {
        let (owner, task, id) = (owner.clone(), task.clone(), id.clone());
        Box::pin(async move {
            let work = {
                let owner = owner.clone();
                move |db: &rusqlite::Connection| configs::get(db, &owner, &task, &id)
            };
            let found = self.quick.run(Owner::Principal(owner), work).await?;
            found.map(|stored| stored.open(&self.sealer)).transpose()
        })
    }

    fn list<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        after: Option<&'a PushConfigId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<PushConfig>>> {
        let (owner, task, after) = (owner.clone(), task.clone(), after.cloned());
        Box::pin(async move {
            let work = {
                let owner = owner.clone();
                move |db: &rusqlite::Connection| configs::list(db, &owner, &task, after.as_ref(), limit)
            };
            let found = self.quick.run(Owner::Principal(owner), work).await?;
            found.into_iter().map(|stored| stored.open(&self.sealer)).collect()
        })
    }

    fn delete<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<bool>> {
        let (owner, task, id) = (owner.clone(), task.clone(), id.clone());
        Box::pin(
            self.writer
                .run(Owner::Principal(owner.clone()), move |db| configs::delete(db, &owner, &task, &id)),
        )
    }

    fn ids<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<PushConfigId>>> {
        let (owner, task) = (owner.clone(), task.clone());
        Box::pin(self.quick.run(Owner::Principal(owner.clone()), move |db| configs::ids(db, &owner, &task)))
    }

    fn counts<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<PushCounts>> {
        let owner = owner.clone();
        Box::pin(
            self.quick.run(Owner::Principal(owner.clone()), move |db| configs::counts(db, owner.as_str())),
        )
    }
}

impl PushQueue for SqliteStore {
    fn due(&self, now: Timestamp, limit: usize, until: Timestamp) -> BoxFuture<'_, Result<Vec<LeasedPush>>> {
        Box::pin(async move {
            let epoch = self.epoch;
            let leased =
                self.writer.run(Owner::Gateway, move |db| queue::due(db, epoch, now, limit, until)).await?;
            let (mut opened, mut unreadable) = (Vec::with_capacity(leased.len()), Vec::new());
            for (stored, mut lease) in leased {
                match stored.open(&self.sealer) {
                    Ok(config) => {
                        lease.config = Some(config);
                        opened.extend(lease.complete());
                    }
                    Err(error) => {
                        let lease = lease.lease;
                        if let Some(failures) = UNREADABLE.due() {
                            tracing::error!(
                                failures, task = %lease.task, config = %lease.config, error = ?error,
                                "push configurations cannot be read; will try again"
                            );
                        }
                        unreadable.push(lease);
                    }
                }
            }
            if !unreadable.is_empty() {
                let at = Timestamp(now.0.saturating_add(UNREADABLE_PAUSE));
                let retry = PushRetry { at, attempts: 0, first_failed_at: None };
                let postpone = move |db: &mut WriteContext<'_>| {
                    unreadable.iter().try_for_each(|lease| queue::postpone(db, lease, retry).map(drop))
                };
                self.writer.run(Owner::Gateway, postpone).await?;
            }
            Ok(opened)
        })
    }

    fn grown(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.grown.notified())
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(self.quick.run(Owner::Gateway, queue::next_due))
    }

    fn advance<'a>(
        &'a self,
        lease: &'a PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> BoxFuture<'a, Result<bool>> {
        let lease = lease.clone();
        let work = move |db: &mut WriteContext<'_>| queue::advance(db, &lease, cursor, keep, is_accepted);
        Box::pin(self.writer.run(Owner::Gateway, work))
    }

    fn postpone<'a>(&'a self, lease: &'a PushLease, retry: PushRetry) -> BoxFuture<'a, Result<bool>> {
        let lease = lease.clone();
        Box::pin(self.writer.run(Owner::Gateway, move |db| queue::postpone(db, &lease, retry)))
    }

    fn bury<'a>(
        &'a self,
        lease: &'a PushLease,
        dead: Burial,
        keep: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<bool>> {
        let lease = lease.clone();
        Box::pin(self.writer.run(Owner::Gateway, move |db| queue::bury(db, &lease, &dead, keep)))
    }

    fn dead(&self, after: u64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        Box::pin(self.lists.run(Owner::Gateway, move |db| queue::dead(db, after, limit)))
    }

    fn replay(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let replayed = self.writer.run(Owner::Gateway, move |db| queue::replay(db, number)).await?;
            self.grown.notify_one();
            Ok(replayed)
        })
    }

    fn drop_dead(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.writer.run(Owner::Gateway, move |db| queue::drop_dead(db, number)))
    }
}
