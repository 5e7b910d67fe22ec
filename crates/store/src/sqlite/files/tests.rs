use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use longshore_engine::port::{Appended, Store};
use longshore_model::{ErrorKind, Seq};
use longshore_testkit::store_suite::make::{ada, append, child, chunk, create, file, file_id, task_id};
use tempfile::TempDir;

use super::super::tests::query_plan;
use super::super::write_connection::WriteContext;
use super::super::{Durability, SqliteStore, schema};
use super::*;

struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    /// A store with the task `t`.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bench = Self { store: open(&directory), directory };
        bench.store.create(create("t")).await.unwrap();
        bench
    }

    fn intruder(&self) -> Connection {
        let db = Connection::open(self.directory.path().join("store.db")).unwrap();
        db.pragma_update(None, "foreign_keys", true).unwrap();
        db
    }

    /// The number of files and chunks, complete or not.
    fn rows(&self) -> (i64, i64) {
        let count = "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM file_chunks)";
        self.intruder().query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    /// Writes the first step of a file. The next step is written only when the future is polled again.
    async fn begin(&self, file: NewFile) -> BoxFuture<'_, Result<()>> {
        // Keep the thread busy until the step is in the queue, so that the step cannot finish during the poll.
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let wait = move |_: &mut WriteContext<'_>| Ok(released.recv().unwrap_err());
        let mut busy = self.store.writer.run(Owner::Gateway, wait).boxed();
        assert!((&mut busy).now_or_never().is_none());
        let mut put = self.store.put_file(file);
        assert!((&mut put).now_or_never().is_none());
        drop(release);
        busy.await.unwrap();
        // The thread answers this request after the step.
        self.store.writer.run(Owner::Gateway, |_| Ok(())).await.unwrap();
        put
    }
}

fn open(directory: &TempDir) -> SqliteStore {
    SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap()
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|index| (index >> 12).to_le_bytes()[0]).collect()
}

#[tokio::test]
async fn a_turn_writes_between_the_steps_of_a_file() {
    let bench = Bench::new().await;
    let bytes = content(STEP_BYTES + 1);
    let put = bench.begin(file("t", "f", &bytes)).await;
    let outcome = bench.store.append(append("t", 1, vec![chunk("x")])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(2)));
    // An incomplete file is invisible.
    assert_eq!(bench.rows(), (1, 4));
    assert_eq!(bench.store.file(&ada(), &file_id("f")).await.unwrap(), None);
    assert_eq!(bench.store.read_file(&ada(), &file_id("f"), 0, 1).await.unwrap(), None);
    put.await.unwrap();
    assert!(bench.store.read_file(&ada(), &file_id("f"), 0, usize::MAX).await.unwrap() == Some(bytes));
}

#[tokio::test]
async fn an_abandoned_file_is_completed_by_the_next_writer() {
    let bench = Bench::new().await;
    let bytes = content(2 * STEP_BYTES + 1);
    drop(bench.begin(file("t", "f", &bytes)).await);
    assert_eq!(bench.rows(), (1, 4));
    bench.store.put_file(file("t", "f", &bytes)).await.unwrap();
    assert_eq!(bench.rows(), (1, 9));
    assert!(bench.store.read_file(&ada(), &file_id("f"), 0, usize::MAX).await.unwrap() == Some(bytes));
}

#[tokio::test]
async fn a_start_removes_incomplete_files() {
    let mut bench = Bench::new().await;
    bench.store.put_file(file("t", "whole", b"content")).await.unwrap();
    drop(bench.begin(file("t", "half", &content(STEP_BYTES + 1))).await);
    assert_eq!(bench.rows(), (2, 5));
    drop(bench.store);
    bench.store = open(&bench.directory);
    assert_eq!(bench.rows(), (1, 1));
    assert!(bench.store.file(&ada(), &file_id("whole")).await.unwrap().is_some());
}

#[tokio::test]
async fn removing_a_task_removes_its_files_and_sub_agents() {
    let bench = Bench::new().await;
    bench.store.create(create("other")).await.unwrap();
    bench.store.create(child("below", "t", "t")).await.unwrap();
    for (task, id) in [("t", "f"), ("below", "g"), ("other", "h")] {
        bench.store.put_file(file(task, id, &content(CHUNK_BYTES + 1))).await.unwrap();
    }
    let half = bench.begin(file("t", "half", &content(STEP_BYTES + 1))).await;
    assert_eq!(bench.rows(), (4, 10));

    bench.intruder().execute("DELETE FROM tasks WHERE id = 't'", []).unwrap();
    assert_eq!(bench.rows(), (1, 2));
    assert_eq!(bench.store.get(&ada(), &task_id("below")).await.unwrap(), None);
    assert!(bench.store.file(&ada(), &file_id("h")).await.unwrap().is_some());
    // The second half must not be written to another file that got the same ordinal.
    bench.store.put_file(file("other", "i", &content(1))).await.unwrap();
    assert_eq!(half.await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(bench.rows(), (2, 3));
}

#[tokio::test]
async fn a_damaged_file_is_reported() {
    // Each case: the damage, and whether the range after it can be read.
    let damages = [
        ("DELETE FROM file_chunks WHERE place = 1", true),
        ("UPDATE file_chunks SET bytes = x'00' WHERE place = 1", true),
        ("UPDATE files SET size = size + 1", true),
        ("DELETE FROM file_chunks", false),
    ];
    for (damage, rest_is_whole) in damages {
        let bench = Bench::new().await;
        let bytes = content(3 * CHUNK_BYTES);
        bench.store.put_file(file("t", "f", &bytes)).await.unwrap();
        bench.intruder().execute_batch(damage).unwrap();
        let error = bench.store.read_file(&ada(), &file_id("f"), 0, usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{damage}");
        assert!(error.message().contains("file f is damaged"), "{error}");
        let rest = bench.store.read_file(&ada(), &file_id("f"), 2 * CHUNK_BYTES as u64, CHUNK_BYTES).await;
        assert_eq!(rest.is_ok(), rest_is_whole, "{damage}");
    }
}

#[test]
fn a_range_reads_only_its_chunks_and_a_start_only_incomplete_files() {
    let directory = tempfile::tempdir().unwrap();
    let db = schema::open_writer(&directory.path().join("store.db"), Durability::Process).unwrap();
    let range = query_plan(&db, READ_CHUNKS);
    assert!(range.contains("(file=? AND place>? AND place<?)") && !range.contains("TEMP B-TREE"), "{range}");
    let start = query_plan(&db, REMOVE_INCOMPLETE);
    assert!(start.contains("INDEX files_incomplete"), "{start}");
}
