use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;

use futures_util::FutureExt;
use longshore_engine::port::{Append, PushConfigs, PushPut, PushQueue as _, Store};
use longshore_model::{ErrorKind, Retry, Seq, TaskEvent, TaskState, Timestamp};
use longshore_testkit::store_suite::make::{
    ada, append, chunk, create, interrupt, opens, status, task_id, turn,
};
use longshore_testkit::store_suite::push;
use tempfile::TempDir;

use super::super::push::{NewPush, put};
use super::super::queue::Owner;
use super::super::{SqliteOptions, SqliteStore};
use super::*;

struct Bench {
    store: SqliteStore,
    /// The last field, so that it is dropped after the store.
    directory: TempDir,
}

impl Bench {
    /// A store with the working tasks `a` and `b`.
    async fn new(durability: Durability) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteOptions::from(durability);
        let store = SqliteStore::open(&directory.path().join("store.db"), options).unwrap();
        for task in ["a", "b"] {
            store.create(create(task)).await.unwrap();
            store.append(append(task, 1, vec![status(TaskState::Working, 2)])).await.unwrap();
        }
        Self { store, directory }
    }

    /// The write connection, in a state as if there had been no inline append for long.
    fn connection(&self) -> MutexGuard<'_, WriteConnection> {
        let mut connection = self.store.writer.connection.lock().unwrap();
        connection.set_inline_allowed(true);
        connection
    }

    /// Appends with the connection directly, without the thread.
    fn append_inline(&self, append: Append) -> Option<Appended> {
        let batch = Batch::prepare(append, self.store.epoch).unwrap();
        self.connection().append_inline(&batch).map(Result::unwrap)
    }

    /// Like [`append_inline`](Self::append_inline), for an append that must fail.
    fn fail_inline(&self, append: Append) {
        let batch = Batch::prepare(append, self.store.epoch).unwrap();
        let error = self.connection().append_inline(&batch).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }

    /// How long the connection waits for another program, in milliseconds.
    fn busy_timeout(&self) -> i64 {
        self.connection().db.pragma_query_value(None, "busy_timeout", |row| row.get(0)).unwrap()
    }

    /// Whether the connection would append output to the task without reading the file.
    fn is_cached(&self, task: &str, head: u64) -> bool {
        let batch = Batch::prepare(append(task, head, vec![chunk("x")]), self.store.epoch).unwrap();
        self.connection().rows.ordinal_if_current(&batch).is_some()
    }

    /// Appends with the thread only, because no inline append is allowed.
    async fn append_by_thread(&self, append: Append) -> Result<Appended> {
        self.connection().set_inline_allowed(false);
        self.store.append(append).await
    }

    async fn log(&self, task: &str) -> Vec<TaskEvent> {
        let entries = self.store.read(&ada(), &task_id(task), Seq(2), 100).await.unwrap();
        entries.into_iter().map(|entry| entry.event).collect()
    }

    async fn run(&self, sql: &'static str) {
        self.store.writer.run(Owner::Gateway, move |db| Ok(db.execute_batch(sql)?)).await.unwrap();
    }

    fn intruder(&self) -> Connection {
        Connection::open(self.directory.path().join("store.db")).unwrap()
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what it is compared with may be none")]
fn head(seq: u64) -> Option<Appended> {
    Some(Appended::Head(Seq(seq)))
}

#[tokio::test]
async fn small_appends_are_written_by_the_caller() {
    let bench = Bench::new(Durability::Process).await;
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("1"), chunk("2")])), head(4));
    assert_eq!(bench.append_inline(append("a", 4, vec![chunk("3")])), head(5));
    assert_eq!(bench.append_inline(append("a", 5, vec![status(TaskState::Completed, 3)])), head(6));
    assert_eq!(bench.append_inline(append("a", 6, vec![chunk("late")])), Some(Appended::Terminal));
    assert_eq!(
        bench.append_inline(append("b", 7, vec![chunk("1")])),
        Some(Appended::Conflict { head: Seq(2) })
    );
    let expected = [chunk("1"), chunk("2"), chunk("3"), status(TaskState::Completed, 3)];
    assert_eq!(bench.log("a").await, expected);
    assert_eq!(bench.log("b").await, []);
}

#[tokio::test]
async fn the_store_tries_an_inline_append_first() {
    let bench = Bench::new(Durability::Process).await;
    drop(bench.connection());
    let appended = bench.store.append(append("a", 2, vec![chunk("1")])).now_or_never();
    assert_eq!(appended.unwrap().unwrap(), Appended::Head(Seq(3)));
}

#[tokio::test]
async fn appends_that_would_wait_are_left_to_the_thread() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let bench = Bench::new(Durability::Process).await;
    let batch = |events| Batch::prepare(append("a", 2, events), bench.store.epoch).unwrap();
    let small = batch(vec![chunk("1")]);
    // A large append.
    let large = batch(vec![chunk(&"x".repeat(super::super::record::SMALL_BATCH_BYTES))]);
    assert!(bench.connection().append_inline(&large).is_none());
    // Appends that change more than the log.
    let mut more = [(); 3].map(|()| append("a", 2, vec![chunk("1")]));
    more[0].turn = Some(turn("s", "p"));
    more[1].asks = vec![opens(&interrupt("a", "r"))];
    more[2].joined = create("k").idempotency;
    for append in more {
        let batch = Batch::prepare(append, bench.store.epoch).unwrap();
        assert!(bench.connection().append_inline(&batch).is_none());
    }
    // A checkpoint holds the writer.
    bench.connection().checkpoints.hold(true);
    assert!(bench.connection().append_inline(&small).is_none());
    bench.connection().checkpoints.hold(false);
    // Another program writes. The busy timeout is a day, so an append that waited would not return.
    bench.connection().set_busy_timeout(Duration::from_hours(24));
    let intruder = bench.intruder();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(bench.connection().append_inline(&small).is_none());
    assert_eq!(bench.busy_timeout(), DAY);
    let mut waiting = bench.store.append(append("a", 2, vec![chunk("1")]));
    assert!((&mut waiting).now_or_never().is_none());
    intruder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(waiting.await.unwrap(), Appended::Head(Seq(3)));
    assert_eq!(bench.append_inline(append("a", 3, vec![chunk("2")])), head(4));
    assert_eq!(bench.busy_timeout(), DAY);

    // With this durability, each commit waits for the disk.
    let bench = Bench::new(Durability::Power).await;
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("1")])), None);
    assert_eq!(bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(3)));
}

#[tokio::test]
async fn the_time_of_inline_appends_is_added_up() {
    let bench = Bench::new(Durability::Process).await;
    let batch = Batch::prepare(append("a", 2, vec![chunk("x")]), bench.store.epoch).unwrap();
    let mut connection = bench.connection();
    // At exactly the limit, an inline append is still allowed.
    let before = Instant::now() + MAX_INLINE_DEBT;
    connection.inline_paid_until = before;
    assert!(connection.append_inline(&batch).is_some());
    assert!(connection.inline_paid_until > before, "{:?} ago", before - connection.inline_paid_until);
}

#[tokio::test]
async fn a_slow_inline_append_is_the_last_for_long() {
    let bench = Bench::new(Durability::Process).await;
    bench
        .run(
            "CREATE TRIGGER slow BEFORE INSERT ON events WHEN NEW.body LIKE '%slow%'
             BEGIN SELECT count(*) FROM (
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT i FROM n
             ); END",
        )
        .await;
    let begin = Instant::now();
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("slow")])), head(3));
    let connection = || bench.store.writer.connection.lock().unwrap();
    let until = connection().inline_paid_until;
    assert!(until - begin > MAX_INLINE_DEBT, "{:?}", until - begin);
    // From now on the thread appends. The time of its appends does not count.
    let one = Batch::prepare(append("a", 3, vec![chunk("1")]), bench.store.epoch).unwrap();
    assert!(connection().append_inline(&one).is_none());
    assert_eq!(bench.store.append(append("a", 3, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(4)));
    assert_eq!(connection().inline_paid_until, until);
    // Once the debt is paid, inline appends are allowed again.
    assert_eq!(bench.append_inline(append("a", 4, vec![chunk("2")])), head(5));
}

#[tokio::test]
async fn the_first_write_of_an_opening_is_left_to_the_thread() {
    let bench = Bench::new(Durability::Process).await;
    let Bench { store, directory } = bench;
    drop(store);
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    let bench = Bench { store, directory };
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("1")])), None);
    assert_eq!(bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(3)));
    assert_eq!(bench.append_inline(append("a", 3, vec![chunk("2")])), head(4));
}

#[tokio::test]
async fn the_cached_head_is_used_until_something_may_have_changed_it() {
    let bench = Bench::new(Durability::Process).await;
    // The last operation was an append to `b`. Before it, `b` was created.
    assert!(bench.is_cached("b", 2) && !bench.is_cached("b", 1) && !bench.is_cached("a", 2));
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("1")])), head(3));
    assert!(bench.is_cached("a", 3) && bench.is_cached("b", 2));
    // Each append builds on the one before, whether cached or not, inline or by the thread.
    assert_eq!(bench.append_inline(append("a", 3, vec![chunk("2")])), head(4));
    let by_the_thread = bench.append_by_thread(append("a", 4, vec![chunk("3")]));
    assert_eq!(by_the_thread.await.unwrap(), Appended::Head(Seq(5)));
    assert!(bench.is_cached("a", 5) && bench.is_cached("b", 2));
    assert_eq!(bench.append_inline(append("a", 5, vec![chunk("4"), chunk("5")])), head(7));
    assert_eq!(bench.append_inline(append("a", 7, vec![chunk("6")])), head(8));
    assert_eq!(bench.log("a").await, ["1", "2", "3", "4", "5", "6"].map(chunk));

    // Any operation other than an append may have changed any task.
    bench.run("UPDATE tasks SET state = 'canceled' WHERE id = 'a'").await;
    assert!(!bench.is_cached("a", 8) && !bench.is_cached("b", 2));
    assert_eq!(bench.append_inline(append("a", 8, vec![chunk("late")])), Some(Appended::Terminal));
    // A finished task is no longer cached.
    assert_eq!(bench.append_inline(append("b", 2, vec![status(TaskState::Completed, 3)])), head(3));
    assert!(!bench.is_cached("b", 3));
    assert_eq!(bench.append_inline(append("b", 3, vec![chunk("late")])), Some(Appended::Terminal));
}

#[tokio::test]
async fn undone_writes_are_not_cached() {
    let bench = Bench::new(Durability::Process).await;
    // SQLite checks this constraint only at the commit, after everything that would be cached.
    bench
        .run(
            "CREATE TABLE promises (task INTEGER REFERENCES tasks (ordinal) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER promise AFTER INSERT ON events WHEN NEW.body LIKE '%broken%'
             BEGIN INSERT INTO promises VALUES (999); END",
        )
        .await;
    assert_eq!(bench.append_inline(append("a", 2, vec![chunk("1")])), head(3));
    // The failure comes in a single statement, in an inline transaction, and in a transaction of the thread.
    bench.fail_inline(append("a", 3, vec![chunk("broken")]));
    assert!(!bench.is_cached("a", 4));
    bench.fail_inline(append("a", 3, vec![chunk("2"), chunk("broken")]));
    assert!(!bench.is_cached("a", 5));
    let refused =
        bench.append_by_thread(append("a", 3, vec![chunk("2"), chunk("broken")])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(!bench.is_cached("a", 5));
    // No transaction is left open, and none of the failed writes is left.
    assert_eq!(bench.append_inline(append("a", 3, vec![chunk("3")])), head(4));
    assert_eq!(bench.log("a").await, [chunk("1"), chunk("3")]);
}

#[tokio::test]
async fn a_task_whose_end_was_rolled_back_still_has_news_for_its_configurations() {
    let bench = Bench::new(Durability::Process).await;
    PushConfigs::put(&bench.store, push::new("a", "c", 2)).await.unwrap();
    bench.connection().push.read_again_at_next_add();
    let new = NewPush::prepare(push::new("b", "c", 2), &bench.store.sealer).unwrap();
    let work = move |db: &mut WriteContext<'_>| -> Outcome<()> {
        db.execute("UPDATE tasks SET state = 'completed' WHERE id = 'a'", [])?;
        assert_eq!(put(db, &new)?, PushPut::Stored);
        Err(Fault(fault::stopped()))
    };
    bench.store.writer.run(Owner::Gateway, work).await.unwrap_err();
    bench.store.append(append("a", 2, vec![status(TaskState::Completed, 3)])).await.unwrap();
    let due = bench.store.due(Timestamp(10), 9, Timestamp(20)).await.unwrap();
    assert_eq!(due.len(), 1);
}

#[tokio::test]
async fn writes_of_another_program_are_noticed() {
    let bench = Bench::new(Durability::Process).await;
    assert!(bench.is_cached("b", 2));
    let event = "INSERT INTO events (task, seq, at, kind, body, epoch)
                 SELECT ordinal, 3, 0, 'artifact', '{}', 0 FROM tasks WHERE id = 'b'";
    bench.intruder().execute_batch(event).unwrap();
    let refused = bench.append_inline(append("b", 2, vec![chunk("1")]));
    assert_eq!(refused, Some(Appended::Conflict { head: Seq(3) }));
    assert!(!bench.is_cached("b", 2));
}

#[tokio::test]
async fn a_panic_with_the_connection_stops_the_store() {
    let bench = Bench::new(Durability::Process).await;
    let defect = catch_unwind(AssertUnwindSafe(|| {
        let _connection = bench.connection();
        panic!("a defect, for the test");
    }));
    assert!(defect.is_err());
    let error = bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, Retry::Never));
    // Earlier writes can still be read.
    assert_eq!(bench.log("a").await, []);
}
