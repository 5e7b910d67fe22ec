//! A store in one SQLite file, for one gateway.

/// The sequence number of a task's newest event. SQLite finds it in the log in one step. If damage has removed the last events, the
/// number of the newest status in the task's row counts instead.
macro_rules! head {
    () => {
        "max(tasks.summary_seq, coalesce((SELECT max(seq) FROM events WHERE task = tasks.ordinal), 0))"
    };
}

/// The epoch of a task's newest event.
macro_rules! head_epoch {
    () => {
        "coalesce((SELECT epoch FROM events WHERE task = tasks.ordinal ORDER BY seq DESC LIMIT 1), 0)"
    };
}

/// The checksum of an event. -1: the event was written before checksums existed. NULL: the event is damaged.
macro_rules! event_sum {
    () => {
        "CASE WHEN sum IS NULL AND epoch <= (SELECT unsummed FROM epochs WHERE only = 1) THEN -1 ELSE sum END"
    };
}

mod append;
mod approvals;
mod asks;
mod backup;
mod calls;
mod checkpoint;
mod checksum;
mod contexts;
mod epoch;
mod fault;
mod files;
mod inspect;
mod known_damage;
mod list;
mod push;
mod queue;
mod read;
mod read_only_switch;
mod reader;
mod record;
mod repair;
mod retain;
mod room;
mod row_cache;
mod salvage;
mod schema;
mod startup_check;
mod stored_bytes;
mod turns;
mod worker;
mod write;
mod write_connection;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use longshore_engine::port::{
    Append, Appended, Binding, Bound, BoxFuture, Claim, Claimed, ContextLocation, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, NewFile, OwnedSession, RecordedSends, Retention,
    RetentionStep, Session, Store, StoredBytes, StoredTask, TaskPage, UnfinishedPage,
};
use longshore_meter::Metrics;
use longshore_meter::label::{Limit, StoreThread};
use longshore_model::{
    Approval, AskKind, ContextId, Entry, Epoch, FileId, Interrupt, Principal, PromptId, RequestId, Result,
    Seq, SessionId, TaskEvent, TaskId, Timestamp,
};
use longshore_seal::{KeysInMemory, Sealer};
use rusqlite::Connection;
use tokio::sync::Notify;

pub use self::backup::{Backup, backup};
use self::checkpoint::{Checkpoints, Thresholds};
use self::epoch::EpochClaim;
use self::known_damage::KnownDamage;
pub use self::known_damage::{Damage, DamagedTask};
use self::push::PushTasks;
pub use self::push::StoredSecrets;
use self::queue::Owner;
use self::reader::Reader;
use self::record::{Batch, NewTask};
pub use self::repair::{Repaired, repair};
pub use self::room::DiskRules;
use self::room::Room;
use self::startup_check::StartupCheck;
pub use self::startup_check::find_damage;
use self::stored_bytes::StoredBytesCount;
use self::write_connection::WriteConnection;
use self::writer::Writer;
use crate::rules;

/// The failures after which a write still exists, once its future has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Writes survive any end of the process. A loss of power may lose the last writes.
    #[default]
    Process,
    /// Writes also survive a loss of power, because each commit waits for the disk.
    Power,
}

impl Durability {
    /// The value of SQLite's `synchronous` pragma.
    fn synchronous(self) -> &'static str {
        match self {
            Self::Process => "NORMAL",
            Self::Power => "FULL",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    pub durability: Durability,
    pub metrics: Arc<Metrics>,
    pub disk: DiskRules,
    /// Seals the secrets of callers. `None`: they are sealed with a key that is lost when the store is closed.
    pub sealer: Option<Arc<Sealer>>,
}

impl From<Durability> for SqliteOptions {
    fn from(durability: Durability) -> Self {
        Self { durability, ..Self::default() }
    }
}

/// A store in one SQLite file. One thread writes, except for small appends, which the calling thread writes itself. Three threads
/// read. One thread does the checkpoints.
///
/// Each thread serves the owners in turn, so that no owner waits for all requests of another.
///
/// A list page of large tasks may have fewer tasks than its limit: it ends after the task at which the bytes read reach 4 MiB, and
/// its `next` is the cursor of the following page.
///
/// Dropping the store waits until all requested writes are done.
pub struct SqliteStore {
    // The fields are dropped in this order: the last connection to close the file cleans up, and only the writer can do that.
    /// Runs reads of bounded size, so that these do not wait for larger reads.
    quick: Reader,
    /// Reads whole tasks, the tasks that are resumed at startup, and parts of files.
    whole: Reader,
    /// Reads lists, so that a caller who wants one task does not wait for another caller's list of a hundred.
    lists: Reader,
    writer: Writer,
    epoch: Epoch,
    metrics: Arc<Metrics>,
    damage: KnownDamage,
    check: StartupCheck,
    bytes: StoredBytesCount,
    sealer: Arc<Sealer>,
    /// Wakes the delivery when push notifications may be due.
    grown: Arc<Notify>,
    /// Watches the disk space. `None`: the disk is not watched.
    room: Option<Arc<Room>>,
}

impl SqliteStore {
    /// Opens the file, or creates it so that only its owner can read it. Blocks for a moment, which is acceptable only at startup.
    ///
    /// A second gateway could open the same file. The binary prevents that by locking the data directory.
    pub fn open(path: &Path, options: impl Into<SqliteOptions>) -> Result<Self> {
        let SqliteOptions { durability, metrics, disk, sealer } = options.into();
        let room = Room::new(path, disk);
        if let Some(room) = &room {
            room.prepare_start();
        }
        let mut db = schema::open_writer(path, durability)?;
        let claim = EpochClaim::new(&db, durability)?;
        let epoch = claim.epoch;
        let checkpointer = schema::open_checkpointer(path, durability)?;
        let file = Arc::new(schema::open_file(path)?);
        let checkpoints = Checkpoints::start(&mut db, checkpointer, file.clone(), Thresholds::default())?;
        push::void_leases(&db)?;
        let grown = Arc::new(Notify::new());
        let push = PushTasks::read(&db, grown.clone())?;
        let mut connection =
            WriteConnection::new(db, file, claim, checkpoints, push, (durability, metrics.clone()));
        connection.watch_disk(room.clone());
        let writer = Writer::start(connection, metrics.clone())?;
        let reader = |name| Reader::start(name, schema::open_reader(path)?, metrics.clone());
        let quick = reader(StoreThread::Quick)?;
        let whole = reader(StoreThread::Whole)?;
        let lists = reader(StoreThread::Lists)?;
        let damage = KnownDamage::default();
        let bytes = StoredBytesCount::default();
        let check = StartupCheck::new(path, epoch, damage.clone(), bytes.clone());
        let sealer = sealer.unwrap_or_else(|| Arc::new(Sealer::new(KeysInMemory::default())));
        Ok(Self { quick, whole, lists, writer, epoch, metrics, damage, check, bytes, sealer, grown, room })
    }

    /// Waits until the task is known to be whole. An ended or new task is checked alone; any other waits for the check of the file.
    async fn wait_for_check(&self, owner: &Principal, task: &TaskId) {
        if self.check.is_done() {
            return;
        }
        let (caller, owner, task) = (owner.clone(), owner.clone(), task.clone());
        let epoch = self.epoch;
        let alone = move |db: &Connection| Ok(inspect::is_whole(db, &owner, &task, epoch));
        if !self.whole.run(Owner::Principal(caller), alone).await.unwrap_or(false) {
            self.check.wait().await;
        }
    }

    /// Makes SQLite refuse writes, as for a read-only file, or accept them again. For tests.
    #[cfg(feature = "simulation")]
    pub fn set_read_only(&self, is_read_only: bool) {
        self.writer.switch.set(is_read_only);
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn restored(&self) -> BoxFuture<'_, Result<Option<Epoch>>> {
        Box::pin(self.quick.run(Owner::Gateway, backup::restored))
    }

    fn forget_restored(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.writer.run(Owner::Gateway, |db| backup::unmark(db)))
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created>> {
        Box::pin(async move {
            // Only new work needs the check. Tasks of sub-agents, which have no idempotency key, and of running turns are none.
            if let Some(room) = &self.room
                && create.idempotency.is_some()
                && create.begun.is_none()
                && let Err(refused) = room.check_new_work()
            {
                self.metrics.refused.of(Limit::MinFreeDisk).increment();
                return Err(refused);
            }
            let new = NewTask::prepare(create, self.epoch, &self.sealer)?;
            let (owner, bytes) = (new.owner.clone(), to_i64(new.stored_bytes()));
            let has_push = new.push.is_some();
            let created =
                self.writer.run(Owner::Principal(owner.clone()), move |db| write::create(db, &new)).await;
            if let Ok(Created::New) = created {
                self.bytes.add(&owner, bytes);
                if has_push {
                    self.grown.notify_one();
                }
            }
            created
        })
    }

    fn record_sends(&self, noted: RecordedSends) -> BoxFuture<'_, Result<()>> {
        Box::pin(
            self.writer.run(Owner::Principal(noted.owner.clone()), move |db| write::record_sends(db, &noted)),
        )
    }

    fn earlier_send<'a>(
        &'a self,
        owner: &'a Principal,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        let (owner, key) = (owner.clone(), key.clone());
        Box::pin(self.quick.run(Owner::Principal(owner.clone()), move |db| {
            Ok(match write::earlier_send(db, &owner, &key)? {
                Some(Created::Existing { task, .. }) => Some(task),
                _ => None,
            })
        }))
    }

    fn session<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<Session>>> {
        let (owner, id) = (owner.clone(), id.clone());
        Box::pin(
            self.quick.run(Owner::Principal(owner.clone()), move |db| contexts::session_of(db, &owner, &id)),
        )
    }

    fn owner_of<'a>(
        &'a self,
        caller: Option<&'a Principal>,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<OwnedSession>>> {
        let (caller, id) = (caller.cloned().map_or(Owner::Gateway, Owner::Principal), id.clone());
        Box::pin(self.quick.run(caller, move |db| contexts::find_session(db, &id)))
    }

    fn owners<'a>(
        &'a self,
        caller: &'a Principal,
        ids: Vec<SessionId>,
    ) -> BoxFuture<'a, Result<BTreeMap<SessionId, Principal>>> {
        Box::pin(async move {
            rules::check_owners(&ids)?;
            self.lists.run(Owner::Principal(caller.clone()), move |db| contexts::owners(db, ids)).await
        })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed>> {
        Box::pin(
            self.writer.run(Owner::Principal(claim.owner.clone()), move |db| contexts::claim(db, &claim)),
        )
    }

    fn contexts_of<'a>(
        &'a self,
        owner: &'a Principal,
        id: &'a SessionId,
    ) -> BoxFuture<'a, Result<Vec<ContextId>>> {
        let (owner, id) = (owner.clone(), id.clone());
        Box::pin(
            self.quick.run(Owner::Principal(owner.clone()), move |db| {
                contexts::contexts_of_session(db, &owner, &id)
            }),
        )
    }

    fn turn_of<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> BoxFuture<'a, Result<Option<TaskId>>> {
        let (session, prompt) = (session.clone(), prompt.clone());
        Box::pin(
            self.quick
                .run(Owner::Gateway, move |db| Ok(turns::find(db, &session, &prompt)?.map(|turn| turn.task))),
        )
    }

    fn recent_sessions(&self, since: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Session>>> {
        Box::pin(self.lists.run(Owner::Gateway, move |db| contexts::sessions_used_since(db, since, limit)))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        Box::pin(async move {
            let ends_the_task = append.events.iter().next_back().is_some_and(TaskEvent::is_terminal);
            if !ends_the_task && self.damage.names(&append.task) {
                // The damage may have moved the end of the log without its writer noticing, so the task can only be ended.
                return Err(fault::damaged(&format!("task {}", append.task), "found after the start").into());
            }
            let _took = self.metrics.store_append.time();
            let owner = append.owner.clone();
            let batch = Batch::prepare(append, self.epoch)?;
            let bytes = to_i64(batch.stored_bytes());
            let appended = self.writer.append(Owner::Principal(owner.clone()), batch).await;
            if let Ok(Appended::Head(_)) = appended {
                self.bytes.add(&owner, bytes);
            }
            appended
        })
    }

    fn read<'a>(
        &'a self,
        caller: &'a Principal,
        task: &'a TaskId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        let (caller, task, known) = (caller.clone(), task.clone(), self.damage.clone());
        Box::pin(async move {
            self.wait_for_check(&caller, &task).await;
            let work = move |db: &Connection| read::events(db, &known, &task, after, limit);
            self.quick.run(Owner::Principal(caller), work).await
        })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        Box::pin(async move {
            self.wait_for_check(owner, task).await;
            self.load(owner, task).await
        })
    }

    /// Does not wait for the startup check, because the task's checksums reveal damage too.
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<StoredTask>>> {
        let (owner, task, known) = (owner.clone(), task.clone(), self.damage.clone());
        let principal = Owner::Principal(owner.clone());
        Box::pin(self.whole.run(principal, move |db| read::get(db, &known, &owner, &task)))
    }

    fn head<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Option<Head>>> {
        let (owner, task, known) = (owner.clone(), task.clone(), self.damage.clone());
        Box::pin(async move {
            self.wait_for_check(&owner, &task).await;
            let work = {
                let owner = owner.clone();
                move |db: &Connection| read::head(db, &known, &owner, &task)
            };
            self.quick.run(Owner::Principal(owner), work).await
        })
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<TaskPage>> {
        let known = self.damage.clone();
        Box::pin(async move {
            self.check.wait().await;
            let owner = Owner::Principal(query.owner.clone());
            self.lists.run(owner, move |db| list::list(db, &known, &query)).await
        })
    }

    fn children<'a>(&'a self, root: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredTask>>> {
        let root = root.clone();
        Box::pin(self.whole.run(Owner::Gateway, move |db| read::children(db, &root)))
    }

    fn context_location<'a>(
        &'a self,
        owner: &'a Principal,
        context: &'a ContextId,
    ) -> BoxFuture<'a, Result<ContextLocation>> {
        let (owner, context) = (owner.clone(), context.clone());
        Box::pin(
            self.quick
                .run(Owner::Principal(owner.clone()), move |db| contexts::location(db, &owner, &context)),
        )
    }

    fn bind(&self, binding: Binding) -> BoxFuture<'_, Result<Bound>> {
        Box::pin(
            self.writer.run(Owner::Principal(binding.owner.clone()), move |db| contexts::bind(db, &binding)),
        )
    }

    fn interrupt<'a>(
        &'a self,
        caller: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<Option<Interrupt>>> {
        let request = request.clone();
        Box::pin(self.quick.run(Owner::Principal(caller.clone()), move |db| asks::find(db, &request)))
    }

    fn open_interrupts<'a>(
        &'a self,
        owner: &'a Principal,
        kind: AskKind,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>>> {
        let owner = owner.clone();
        Box::pin(
            self.lists.run(Owner::Principal(owner.clone()), move |db| asks::open_of_owner(db, &owner, kind)),
        )
    }

    fn keep_approval(&self, approval: Approval) -> BoxFuture<'_, Result<()>> {
        let owner = Owner::Principal(approval.owner.clone());
        Box::pin(self.writer.run(owner, move |db| approvals::keep(db, &approval)))
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a Principal,
        session: Option<&'a SessionId>,
    ) -> BoxFuture<'a, Result<Vec<Approval>>> {
        let (owner, session) = (owner.clone(), session.cloned());
        Box::pin(
            self.quick.run(Owner::Principal(owner.clone()), move |db| {
                approvals::list(db, &owner, session.as_ref())
            }),
        )
    }

    fn revoke_approval<'a>(
        &'a self,
        owner: &'a Principal,
        request: &'a RequestId,
    ) -> BoxFuture<'a, Result<bool>> {
        let (owner, request) = (owner.clone(), request.clone());
        Box::pin(
            self.writer
                .run(Owner::Principal(owner.clone()), move |db| approvals::revoke(db, &owner, &request)),
        )
    }

    fn unfinished_after(&self, cursor: u64) -> BoxFuture<'_, Result<UnfinishedPage>> {
        Box::pin(self.whole.run(Owner::Gateway, move |db| read::unfinished(db, cursor)))
    }

    fn stored_bytes(&self, owner: &Principal) -> StoredBytes {
        self.bytes.get(owner)
    }

    fn ended_turns(&self, since: Timestamp) -> BoxFuture<'_, Result<Vec<EndedTurn>>> {
        Box::pin(self.quick.run(Owner::Gateway, move |db| read::ended_turns(db, since)))
    }

    fn end_damaged(&self, at: Timestamp, end: EndTask) -> BoxFuture<'_, Result<Vec<TaskId>>> {
        Box::pin(salvage::end_damaged(&self.whole, &self.writer, (self.epoch, at), end))
    }

    fn put_file(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (owner, bytes) = (file.owner.clone(), to_i64(file.bytes.len()));
            if files::put(&self.writer, file).await? {
                self.bytes.add(&owner, bytes);
            }
            Ok(())
        })
    }

    fn file<'a>(&'a self, owner: &'a Principal, id: &'a FileId) -> BoxFuture<'a, Result<Option<FileFacts>>> {
        let (owner, id) = (owner.clone(), id.clone());
        Box::pin(self.quick.run(Owner::Principal(owner.clone()), move |db| files::facts(db, &owner, &id)))
    }

    fn read_file<'a>(
        &'a self,
        caller: &'a Principal,
        id: &'a FileId,
        offset: u64,
        length: usize,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>>> {
        let id = id.clone();
        Box::pin(
            self.whole.run(Owner::Principal(caller.clone()), move |db| files::read(db, &id, offset, length)),
        )
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Result<RetentionStep>> {
        Box::pin(async move {
            let (step, freed) = retain::retain(&self.lists, &self.writer, retention).await?;
            for (owner, bytes) in freed {
                self.bytes.add(&owner, -bytes);
            }
            Ok(step)
        })
    }

    fn begin_check(&self) {
        self.check.begin();
    }

    fn damage(&self) -> Option<String> {
        self.damage.summary()
    }

    fn may_show(&self, task: &TaskId) -> bool {
        self.check.is_done() && !self.damage.names(task)
    }

    /// Writes something and reads something, because a full disk or a read-only file can still be read.
    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.quick.run(Owner::Health, read::check_readable).await?;
            if let Some(room) = &self.room {
                room.check_new_work()?;
            }
            self.writer.run(Owner::Health, |db| write::probe(db)).await
        })
    }
}

fn to_i64(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Converts to SQLite's signed integers. A larger number becomes the largest one, which no event has or comes after.
fn to_sql(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}

fn from_sql(seq: i64) -> Seq {
    Seq(seq.unsigned_abs())
}

#[cfg(test)]
mod tests;
