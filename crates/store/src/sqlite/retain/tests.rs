use std::path::PathBuf;

use longshore_engine::port::Store as _;
use longshore_model::{ErrorKind, TaskState};
use longshore_testkit::store_suite::make::{ada, append, chunk, create, file, status, task_id};
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

    /// A task that said `texts` and was over at 2.
    async fn ended(&self, name: &str, texts: Vec<String>) {
        self.store.create(create(name)).await.unwrap();
        let head = texts.len() as u64 + 1;
        for (place, text) in (1..).zip(texts) {
            self.store.append(append(name, place, vec![chunk(&text)])).await.unwrap();
        }
        self.store.append(append(name, head, vec![status(TaskState::Completed, 2)])).await.unwrap();
    }

    async fn step(&self, drops: bool) -> Retained {
        let before = Some(Timestamp(9));
        let retention = Retention {
            now: Timestamp(i64::MIN),
            fold_before: before,
            drop_before: before.filter(|_| drops),
            keys_before: Timestamp(i64::MIN),
        };
        self.store.retain(retention).await.unwrap()
    }

    fn count(&self, sql: &str) -> i64 {
        Connection::open(self.path()).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn change(&self, sql: &str) {
        assert_eq!(Connection::open(self.path()).unwrap().execute(sql, []).unwrap(), 1, "{sql}");
    }
}

#[tokio::test]
async fn a_step_removes_no_more_than_it_may() {
    let bench = Bench::new();
    bench.ended("many", vec!["x".to_owned(); usize::try_from(ROWS).unwrap() + 9]).await;
    bench.ended("large", vec!["x".repeat(300_000); 8]).await;
    let events = "SELECT count(*) FROM events";
    let mut before = bench.count(events);
    let mut steps = 0;
    while bench.step(false).await.more {
        steps += 1;
        let now = bench.count(events);
        assert!(before - now <= ROWS, "{before} and then {now}");
        before = now;
    }
    // Of the large ones four are more than a megabyte.
    assert_eq!((steps, before), (3, 2));
}

#[tokio::test]
async fn a_file_goes_in_steps_and_is_not_there_from_the_first_on() {
    let bench = Bench::new();
    bench.ended("t", vec!["x".to_owned()]).await;
    bench.store.put_file(file("t", "f", &vec![7; 3 * 1024 * 1024 + 1])).await.unwrap();
    let mut steps = 0;
    let chunks = "SELECT count(*) FROM file_chunks";
    let mut before = bench.count(chunks);
    while bench.step(true).await.more {
        steps += 1;
        let now = bench.count(chunks);
        assert!(before - now <= BYTES / (256 * 1024), "{before} and then {now}");
        let is_whole = bench.store.file(&ada(), &file("t", "f", b"").id).await.unwrap().is_some();
        assert!(!is_whole || now == before);
        before = now;
    }
    assert!(steps >= 4, "{steps}");
    for table in ["tasks", "events", "snapshots", "files", "file_chunks", "idempotency", "contexts"] {
        assert_eq!(bench.count(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
}

#[tokio::test]
async fn the_log_of_a_task_that_cannot_be_read_stays_until_the_task_goes() {
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
        let gone = bench.store.read(&task_id("bad"), longshore_model::Seq::START, 9).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::TaskNotFound, "{damage}");
    }
}

#[tokio::test]
async fn nothing_is_written_when_nothing_is_old() {
    let bench = Bench::new();
    bench.ended("t", vec!["x".to_owned()]).await;
    while bench.step(false).await.more {}
    let changes = "SELECT first FROM tasks";
    let (before, length) =
        (bench.count(changes), std::fs::metadata(bench.directory.path().join("store.db-wal")).unwrap().len());
    assert_eq!(bench.step(false).await, Retained::default());
    let now = std::fs::metadata(bench.directory.path().join("store.db-wal")).unwrap().len();
    assert_eq!((bench.count(changes), now), (before, length));
}
