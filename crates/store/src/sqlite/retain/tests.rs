use std::path::PathBuf;

use longshore_engine::port::{Append, RecordedSends, Store as _};
use longshore_model::{ErrorKind, Resolution, TaskState};
use longshore_testkit::store_suite::make::{
    ada, append, asking, chunk, closed, closes, create, file, interrupt, opens, request_id, status, task_id,
};
use tempfile::TempDir;

use super::*;
use crate::{Durability, SqliteStore};

struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Makes a task that has produced `texts` and has ended at time 2.
    async fn ended(&self, name: &str, texts: Vec<String>) {
        self.store.create(create(name)).await.unwrap();
        let head = texts.len() as u64 + 1;
        for (seq, text) in (1..).zip(texts) {
            self.store.append(append(name, seq, vec![chunk(&text)])).await.unwrap();
        }
        self.store.append(append(name, head, vec![status(TaskState::Completed, 2)])).await.unwrap();
    }

    async fn step(&self, drops: bool) -> RetentionStep {
        let before = Some(Timestamp(9));
        let retention = Retention { fold_before: before, drop_before: before.filter(|_| drops), ..NOTHING };
        self.store.retain(retention).await.unwrap()
    }

    async fn find(&self, retention: Retention) -> Step {
        self.store.lists.run(Owner::Gateway, move |db| Step::find(db, &retention)).await.unwrap()
    }

    async fn run(&self, work: Step) -> RetentionStep {
        self.store.writer.run(Owner::Gateway, move |db| work.run(db)).await.unwrap().0
    }

    fn count(&self, sql: &str) -> i64 {
        Connection::open(self.path()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn change(&self, sql: &str) {
        assert_eq!(Connection::open(self.path()).unwrap().execute(sql, []).unwrap(), 1, "{sql}");
    }
}

#[tokio::test]
async fn a_step_stays_within_its_limits() {
    let bench = Bench::new();
    bench.ended("many", vec!["x".to_owned(); usize::try_from(STEP_ROWS).unwrap() + 9]).await;
    bench.ended("large", vec!["x".repeat(300_000); 8]).await;
    let events = "SELECT count(*) FROM events";
    let mut before = bench.count(events);
    let mut steps = 0;
    while bench.step(false).await.more {
        steps += 1;
        let now = bench.count(events);
        assert!(before - now <= STEP_ROWS, "{before} and then {now}");
        before = now;
    }
    // Four of the large events are more than a megabyte.
    assert_eq!((steps, before), (3, 2));
}

#[tokio::test]
async fn a_file_is_removed_in_steps_and_invisible_from_the_first() {
    let bench = Bench::new();
    bench.ended("t", vec!["x".to_owned()]).await;
    bench.store.put_file(file("t", "f", &vec![7; 3 * 1024 * 1024 + 1])).await.unwrap();
    let mut steps = 0;
    let chunks = "SELECT count(*) FROM file_chunks";
    let mut before = bench.count(chunks);
    while bench.step(true).await.more {
        steps += 1;
        let now = bench.count(chunks);
        assert!(before - now <= STEP_BYTES / (256 * 1024), "{before} and then {now}");
        let is_whole = bench.store.file(&ada(), &file("t", "f", b"").id).await.unwrap().is_some();
        assert!(!is_whole || now == before);
        before = now;
    }
    assert!(steps >= 4, "{steps}");
    for table in ["tasks", "events", "snapshots", "files", "file_chunks", "idempotency", "contexts"] {
        assert_eq!(bench.count(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
}

/// A retention that considers nothing old.
const NOTHING: Retention = Retention {
    now: Timestamp(i64::MIN),
    fold_before: None,
    drop_before: None,
    keys_before: Timestamp(i64::MIN),
};

#[tokio::test]
async fn a_new_ask_with_the_ordinal_of_an_old_one_stays() {
    const LATE: Timestamp = Timestamp(7 * 24 * 60 * 60 * 1000);
    let bench = Bench::new();
    bench.store.create(create("t")).await.unwrap();
    let old = vec![opens(&interrupt("t", "old")), closes("old", closed(Resolution::Replied, 1))];
    bench.store.append(asking("t", 1, old)).await.unwrap();
    let found = bench.find(Retention { now: LATE, ..NOTHING }).await;
    assert_eq!(found.asks.len(), 1);
    // A new ask removes old ones.
    let new = asking("t", 2, vec![opens(&interrupt("t", "new"))]);
    bench.store.append(Append { at: LATE, ..new }).await.unwrap();
    assert_eq!(bench.store.interrupt(&ada(), &request_id("old")).await.unwrap(), None);
    assert_eq!(bench.count("SELECT ordinal FROM interrupts"), found.asks[0], "the ordinal is used again");
    bench.run(found).await;
    assert_eq!(bench.store.interrupt(&ada(), &request_id("new")).await.unwrap(), Some(interrupt("t", "new")));
}

#[tokio::test]
async fn a_renewed_key_stays() {
    let bench = Bench::new();
    bench.store.create(create("t")).await.unwrap();
    let found = bench.find(Retention { keys_before: Timestamp(10), ..NOTHING }).await;
    assert_eq!(found.keys.len(), 1);
    let key = create("t").idempotency.unwrap();
    let again =
        RecordedSends { owner: ada(), task: task_id("t"), keys: vec![key.clone()], at: Timestamp(10) };
    bench.store.record_sends(again).await.unwrap();
    bench.run(found).await;
    assert_eq!(bench.store.earlier_send(&ada(), &key).await.unwrap(), Some(task_id("t")));
}

#[tokio::test]
async fn a_new_task_with_the_ordinal_of_an_old_one_stays() {
    let bench = Bench::new();
    bench.ended("old", vec!["x".to_owned()]).await;
    let old = Retention { fold_before: Some(Timestamp(9)), drop_before: Some(Timestamp(9)), ..NOTHING };
    let folds = bench.find(old).await;
    while bench.step(false).await.more {}
    let drops = bench.find(old).await;
    assert_eq!((folds.folds.len(), drops.drops.len()), (1, 1));
    while bench.step(true).await.more {}
    bench.store.create(create("new")).await.unwrap();
    bench.store.append(append("new", 1, vec![chunk("new"), chunk("er")])).await.unwrap();
    assert_eq!(bench.count("SELECT ordinal FROM tasks"), drops.drops[0], "the ordinal is used again");
    let before = bench.store.get(&ada(), &task_id("new")).await.unwrap();
    for found in [folds, drops] {
        assert_eq!(bench.run(found).await, RetentionStep::default());
        assert_eq!(bench.store.get(&ada(), &task_id("new")).await.unwrap(), before);
        assert_eq!(bench.count("SELECT count(*) FROM events"), 3);
    }
}

#[tokio::test]
async fn a_step_reads_no_more_tasks_than_it_can_fold() {
    // Each case: the number of tasks with these texts, and how many of the tasks are read.
    let cases = [(40, vec!["x".to_owned(); 100], 6), (9, vec!["x".repeat(300_000)], 4)];
    for (tasks, texts, expected) in cases {
        let bench = Bench::new();
        for number in 0..tasks {
            bench.ended(&format!("t{number}"), texts.clone()).await;
        }
        let found = bench.find(Retention { fold_before: Some(Timestamp(9)), ..NOTHING }).await;
        assert_eq!(found.folds.len(), expected);
        while bench.step(false).await.more {}
        assert_eq!(bench.count("SELECT count(*) FROM events"), tasks);
    }
}

#[tokio::test]
async fn a_log_with_missing_events_is_folded() {
    for damage in ["seq = 1", "seq = 3", "seq < 4", "seq = 4", "seq > 2", "seq > 0"] {
        let bench = Bench::new();
        bench.ended("t", vec!["x".to_owned(), "y".to_owned()]).await;
        let id = task_id("t");
        let snapshot = bench.store.get(&ada(), &id).await.unwrap().unwrap().task;
        let text = SnapshotText::encode(&snapshot).unwrap();
        bench
            .store
            .writer
            .run(Owner::Gateway, move |db| write::put_snapshot(db, 1, longshore_model::Seq(4), &text))
            .await
            .unwrap();
        Connection::open(bench.path())
            .unwrap()
            .execute(&format!("DELETE FROM events WHERE {damage}"), [])
            .unwrap();
        assert_eq!(bench.step(false).await, RetentionStep { folded: 1, more: true, dropped: 0 }, "{damage}");
        assert_eq!(bench.step(false).await, RetentionStep::default(), "{damage}");
        assert_eq!(bench.store.head(&ada(), &id).await.unwrap().unwrap().first.0, 4, "{damage}");
        assert_eq!(bench.store.get(&ada(), &id).await.unwrap().unwrap().task, snapshot, "{damage}");
    }
}

#[tokio::test]
async fn the_log_of_an_unreadable_task_stays_until_the_task_is_removed() {
    for damage in [
        "UPDATE snapshots SET artifacts = '[' WHERE task = 1",
        "UPDATE events SET body = '{' WHERE task = 1 AND seq = 2",
        "DELETE FROM snapshots WHERE task = 1",
    ] {
        let bench = Bench::new();
        bench.ended("bad", vec!["x".to_owned()]).await;
        bench.ended("sound", vec!["x".to_owned()]).await;
        bench.change(damage);
        let folded = bench.step(false).await.folded;
        assert_eq!(folded, 1, "{damage}");
        assert!(!bench.step(false).await.more, "{damage}");
        assert_eq!(bench.count("SELECT count(*) FROM events WHERE task = 1"), 3, "{damage}");
        assert_eq!(bench.count("SELECT count(*) FROM events WHERE task = 2"), 1, "{damage}");
        while bench.step(true).await.more {}
        let gone =
            bench.store.read(&ada(), &task_id("bad"), longshore_model::Seq::START, 9).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::TaskNotFound, "{damage}");
    }
}

#[tokio::test]
async fn nothing_is_written_if_nothing_is_old() {
    let bench = Bench::new();
    bench.ended("t", vec!["x".to_owned()]).await;
    while bench.step(false).await.more {}
    let changes = "SELECT first FROM tasks";
    let (before, length) =
        (bench.count(changes), std::fs::metadata(bench.directory.path().join("store.db-wal")).unwrap().len());
    assert_eq!(bench.step(false).await, RetentionStep::default());
    let now = std::fs::metadata(bench.directory.path().join("store.db-wal")).unwrap().len();
    assert_eq!((bench.count(changes), now), (before, length));
}
