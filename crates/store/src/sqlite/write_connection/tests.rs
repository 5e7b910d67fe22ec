use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;

use futures_util::FutureExt;
use longshore_engine::port::{Append, Store};
use longshore_model::{ErrorKind, Retry, Seq, TaskEvent, TaskState};
use longshore_testkit::store_suite::make::{
    ada, append, chunk, create, interrupt, opens, status, task_id, turn,
};
use tempfile::TempDir;

use super::super::queue::Owner;
use super::super::{SqliteOptions, SqliteStore};
use super::*;

struct Bench {
    store: SqliteStore,
    /// Dropped after the store.
    directory: TempDir,
}

impl Bench {
    /// A store with the tasks `a` and `b`, which work.
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

    /// The pen, as if nobody had written for long.
    fn pen(&self) -> MutexGuard<'_, Pen> {
        let mut pen = self.store.writer.pen.lock().unwrap();
        pen.rest(true);
        pen
    }

    /// Asks the pen alone: the thread has no part in it.
    fn append_here(&self, append: Append) -> Option<Appended> {
        let batch = Batch::prepare(append, self.store.epoch).unwrap();
        self.pen().append_here(&batch).map(Result::unwrap)
    }

    /// The same when it fails.
    fn fail_here(&self, append: Append) {
        let batch = Batch::prepare(append, self.store.epoch).unwrap();
        let error = self.pen().append_here(&batch).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }

    /// How long the connection waits for another program, in milliseconds.
    fn patience(&self) -> i64 {
        self.pen().db.pragma_query_value(None, "busy_timeout", |row| row.get(0)).unwrap()
    }

    /// Whether the pen would append output there without a look at the file.
    fn knows(&self, task: &str, head: u64) -> bool {
        let batch = Batch::prepare(append(task, head, vec![chunk("x")]), self.store.epoch).unwrap();
        self.pen().rows.ready_for(&batch).is_some()
    }

    /// Asks the thread alone: enough was written without it.
    async fn in_the_queue(&self, append: Append) -> Result<Appended> {
        self.pen().rest(false);
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
async fn what_is_little_is_written_by_whoever_asks() {
    let bench = Bench::new(Durability::Process).await;
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("1"), chunk("2")])), head(4));
    assert_eq!(bench.append_here(append("a", 4, vec![chunk("3")])), head(5));
    assert_eq!(bench.append_here(append("a", 5, vec![status(TaskState::Completed, 3)])), head(6));
    assert_eq!(bench.append_here(append("a", 6, vec![chunk("late")])), Some(Appended::Terminal));
    assert_eq!(
        bench.append_here(append("b", 7, vec![chunk("1")])),
        Some(Appended::Conflict { head: Seq(2) })
    );
    let expected = [chunk("1"), chunk("2"), chunk("3"), status(TaskState::Completed, 3)];
    assert_eq!(bench.log("a").await, expected);
    assert_eq!(bench.log("b").await, []);
}

#[tokio::test]
async fn the_store_asks_the_pen_first() {
    let bench = Bench::new(Durability::Process).await;
    drop(bench.pen());
    let appended = bench.store.append(append("a", 2, vec![chunk("1")])).now_or_never();
    assert_eq!(appended.unwrap().unwrap(), Appended::Head(Seq(3)));
}

#[tokio::test]
async fn what_would_have_to_wait_is_left_to_the_thread() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let bench = Bench::new(Durability::Process).await;
    let batch = |events| Batch::prepare(append("a", 2, events), bench.store.epoch).unwrap();
    let small = batch(vec![chunk("1")]);
    // It takes a while.
    let large = batch(vec![chunk(&"x".repeat(super::super::record::SMALL))]);
    assert!(bench.pen().append_here(&large).is_none());
    // More than the log changes.
    let mut more = [(); 3].map(|()| append("a", 2, vec![chunk("1")]));
    more[0].turn = Some(turn("s", "p"));
    more[1].asks = vec![opens(&interrupt("a", "r"))];
    more[2].joined = create("k").idempotency;
    for append in more {
        let batch = Batch::prepare(append, bench.store.epoch).unwrap();
        assert!(bench.pen().append_here(&batch).is_none());
    }
    // A checkpoint is at its end.
    bench.pen().checkpoints.hold(true);
    assert!(bench.pen().append_here(&small).is_none());
    bench.pen().checkpoints.hold(false);
    // Another program writes. Whoever waited for it here would do so for a day.
    bench.pen().set_patience(Duration::from_hours(24));
    let intruder = bench.intruder();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(bench.pen().append_here(&small).is_none());
    assert_eq!(bench.patience(), DAY);
    let mut waiting = bench.store.append(append("a", 2, vec![chunk("1")]));
    assert!((&mut waiting).now_or_never().is_none());
    intruder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(waiting.await.unwrap(), Appended::Head(Seq(3)));
    assert_eq!(bench.append_here(append("a", 3, vec![chunk("2")])), head(4));
    assert_eq!(bench.patience(), DAY);

    // Each commit waits for the disk.
    let bench = Bench::new(Durability::Power).await;
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("1")])), None);
    assert_eq!(bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(3)));
}

#[tokio::test]
async fn what_is_spent_on_it_is_added_up() {
    let bench = Bench::new(Durability::Process).await;
    let batch = Batch::prepare(append("a", 2, vec![chunk("x")]), bench.store.epoch).unwrap();
    let mut pen = bench.pen();
    // As much as may be spent ahead, and no more.
    let before = Instant::now() + AHEAD;
    pen.paid_until = before;
    assert!(pen.append_here(&batch).is_some());
    assert!(pen.paid_until > before, "{:?} ago", before - pen.paid_until);
}

#[tokio::test]
async fn one_that_takes_long_is_the_last_for_long() {
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
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("slow")])), head(3));
    let pen = || bench.store.writer.pen.lock().unwrap();
    let until = pen().paid_until;
    assert!(until - begin > AHEAD, "{:?}", until - begin);
    // From now on it is the thread's. What that writes is not counted.
    let one = Batch::prepare(append("a", 3, vec![chunk("1")]), bench.store.epoch).unwrap();
    assert!(pen().append_here(&one).is_none());
    assert_eq!(bench.store.append(append("a", 3, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(4)));
    assert_eq!(pen().paid_until, until);
    // Until it is made up for.
    assert_eq!(bench.append_here(append("a", 4, vec![chunk("2")])), head(5));
}

#[tokio::test]
async fn a_store_that_has_written_nothing_yet_leaves_its_number_to_the_thread() {
    let bench = Bench::new(Durability::Process).await;
    let Bench { store, directory } = bench;
    drop(store);
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    let bench = Bench { store, directory };
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("1")])), None);
    assert_eq!(bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap(), Appended::Head(Seq(3)));
    assert_eq!(bench.append_here(append("a", 3, vec![chunk("2")])), head(4));
}

#[tokio::test]
async fn where_a_log_ends_is_known_until_something_may_have_changed_it() {
    let bench = Bench::new(Durability::Process).await;
    // The last that was done is an append to `b`; before it `b` was made.
    assert!(bench.knows("b", 2) && !bench.knows("b", 1) && !bench.knows("a", 2));
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("1")])), head(3));
    assert!(bench.knows("a", 3) && bench.knows("b", 2));
    // Known or not, alone or by the thread: each is the ground for the next.
    assert_eq!(bench.append_here(append("a", 3, vec![chunk("2")])), head(4));
    let by_the_thread = bench.in_the_queue(append("a", 4, vec![chunk("3")]));
    assert_eq!(by_the_thread.await.unwrap(), Appended::Head(Seq(5)));
    assert!(bench.knows("a", 5) && bench.knows("b", 2));
    assert_eq!(bench.append_here(append("a", 5, vec![chunk("4"), chunk("5")])), head(7));
    assert_eq!(bench.append_here(append("a", 7, vec![chunk("6")])), head(8));
    assert_eq!(bench.log("a").await, ["1", "2", "3", "4", "5", "6"].map(chunk));

    // Anything but an append may have changed any task.
    bench.run("UPDATE tasks SET state = 'canceled' WHERE id = 'a'").await;
    assert!(!bench.knows("a", 8) && !bench.knows("b", 2));
    assert_eq!(bench.append_here(append("a", 8, vec![chunk("late")])), Some(Appended::Terminal));
    // One that is over is not known any more.
    assert_eq!(bench.append_here(append("b", 2, vec![status(TaskState::Completed, 3)])), head(3));
    assert!(!bench.knows("b", 3));
    assert_eq!(bench.append_here(append("b", 3, vec![chunk("late")])), Some(Appended::Terminal));
}

#[tokio::test]
async fn what_is_undone_is_not_known() {
    let bench = Bench::new(Durability::Process).await;
    // A promise that SQLite looks at when it commits: after all that is to be known was said.
    bench
        .run(
            "CREATE TABLE promises (task INTEGER REFERENCES tasks (ordinal) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER promise AFTER INSERT ON events WHEN NEW.body LIKE '%broken%'
             BEGIN INSERT INTO promises VALUES (999); END",
        )
        .await;
    assert_eq!(bench.append_here(append("a", 2, vec![chunk("1")])), head(3));
    // In one statement, in a transaction here, and in one of the thread.
    bench.fail_here(append("a", 3, vec![chunk("broken")]));
    assert!(!bench.knows("a", 4));
    bench.fail_here(append("a", 3, vec![chunk("2"), chunk("broken")]));
    assert!(!bench.knows("a", 5));
    let refused = bench.in_the_queue(append("a", 3, vec![chunk("2"), chunk("broken")])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(!bench.knows("a", 5));
    // No transaction is left open, and nothing of them is left.
    assert_eq!(bench.append_here(append("a", 3, vec![chunk("3")])), head(4));
    assert_eq!(bench.log("a").await, [chunk("1"), chunk("3")]);
}

#[tokio::test]
async fn what_another_program_has_written_is_not_taken_for_ours() {
    let bench = Bench::new(Durability::Process).await;
    assert!(bench.knows("b", 2));
    let event = "INSERT INTO events (task, seq, at, kind, body, epoch)
                 SELECT ordinal, 3, 0, 'artifact', '{}', 0 FROM tasks WHERE id = 'b'";
    bench.intruder().execute_batch(event).unwrap();
    let refused = bench.append_here(append("b", 2, vec![chunk("1")]));
    assert_eq!(refused, Some(Appended::Conflict { head: Seq(3) }));
    assert!(!bench.knows("b", 2));
}

#[tokio::test]
async fn whoever_panics_with_the_pen_stops_the_store() {
    let bench = Bench::new(Durability::Process).await;
    let defect = catch_unwind(AssertUnwindSafe(|| {
        let _pen = bench.pen();
        panic!("a defect, for the test");
    }));
    assert!(defect.is_err());
    let error = bench.store.append(append("a", 2, vec![chunk("1")])).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, Retry::Never));
    // What was written can still be read.
    assert_eq!(bench.log("a").await, []);
}
