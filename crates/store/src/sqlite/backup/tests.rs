use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Append, Appended, Store};
use longshore_model::{Seq, TaskEvent, TaskState};
use longshore_testkit::store_suite::make::{
    ada, append, asking, chunk, create, file, folded, interrupt, opens, session, status, task_id, turn,
};
use rusqlite::named_params;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::super::{Durability, SqliteStore};
use super::*;

struct Bench {
    directory: TempDir,
    store: Arc<dyn Store>,
}

impl Bench {
    /// A store with the task `t`, which works and has an open ask and a file.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
        store.create(create("t")).await.unwrap();
        let working = append("t", 1, vec![status(TaskState::Working, 2), chunk("x")]);
        store.append(Append { turn: Some(turn("ses", "msg")), ..working }).await.unwrap();
        store.append(asking("t", 3, vec![opens(&interrupt("t", "r"))])).await.unwrap();
        store.put_file(file("t", "f", &vec![7; 600_000])).await.unwrap();
        Self { directory, store: Arc::new(store) }
    }

    fn from(&self) -> std::path::PathBuf {
        self.directory.path().join("store.db")
    }

    fn to(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }
}

/// The whole log of the task `t`. Asserts that its sequence numbers have no gap.
async fn log(store: &Arc<dyn Store>) -> Vec<TaskEvent> {
    let mut events = Vec::new();
    loop {
        let after = Seq(events.len() as u64);
        let entries = store.read(&ada(), &task_id("t"), after, 100).await.unwrap();
        if entries.is_empty() {
            return events;
        }
        for entry in entries {
            events.push(entry.event);
            assert_eq!(entry.seq.0, events.len() as u64, "a gap");
        }
    }
}

#[tokio::test]
async fn a_backup_is_complete_and_is_a_working_store() {
    let bench = Bench::new().await;
    let facts = backup(&bench.from(), &bench.to("copy.db")).unwrap();
    let metadata = bench.to("copy.db").metadata().unwrap();
    assert_eq!(facts, Backup { tasks: 1, events: 4, bytes: metadata.len() });
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);

    let copy = SqliteStore::open(&bench.to("copy.db"), Durability::Process).unwrap();
    let copy: Arc<dyn Store> = Arc::new(copy);
    let expected = bench.store.get(&ada(), &task_id("t")).await.unwrap().unwrap();
    assert_eq!(expected.turn.as_ref().map(|turn| &turn.session), Some(&session("ses")));
    assert_eq!(copy.get(&ada(), &task_id("t")).await.unwrap(), Some(expected));
    assert_eq!(log(&copy).await, log(&bench.store).await);
    let bytes = copy.read_file(&ada(), &file("t", "f", &[]).id, 599_999, 9).await.unwrap();
    assert_eq!(bytes, Some(vec![7]));
    // The two stores are independent from here on.
    assert_eq!(copy.append(append("t", 4, vec![chunk("copy")])).await.unwrap(), Appended::Head(Seq(5)));
    assert_eq!(
        bench.store.append(append("t", 4, vec![chunk("ours")])).await.unwrap(),
        Appended::Head(Seq(5))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_all_earlier_writes_and_no_partial_append() {
    let bench = Bench::new().await;
    let store = bench.store.clone();
    let (acknowledge, mut acknowledged) = tokio::sync::watch::channel(4_u64);
    // Allow a bounded number of writes per backup. Otherwise a slow backup would make the next one slower, without end.
    let (allowed, room) = (Arc::new(Semaphore::new(0)), 200);
    let permits = allowed.clone();
    let writing = Tasks::new().spawn("writing", async move {
        // Write events in pairs: one event of a pair without the other would show a partial append.
        for number in 0.. {
            let Ok(permit) = permits.acquire().await else { return };
            permit.forget();
            let head = 4 + number * 2;
            store.append(append("t", head, vec![chunk("a"), chunk("b")])).await.unwrap();
            if acknowledge.send(head + 2).is_err() {
                return;
            }
        }
    });
    let mut heads = Vec::new();
    for number in 0..12 {
        // Write something between two backups and during each of them.
        allowed.add_permits(room);
        acknowledged.changed().await.unwrap();
        let before = *acknowledged.borrow_and_update();
        let (from, to) = (bench.from(), bench.to(&format!("copy-{number}.db")));
        let facts = tokio::task::spawn_blocking({
            let to = to.clone();
            move || backup(&from, &to).unwrap()
        });
        let facts = facts.await.unwrap();
        assert!(facts.events >= before, "{facts:?} lacks some of {before}");

        let copy: Arc<dyn Store> = Arc::new(SqliteStore::open(&to, Durability::Process).unwrap());
        let events = log(&copy).await;
        assert_eq!(events.len() as u64, facts.events);
        assert_eq!(events.len() % 2, 0, "half of an append");
        let stored = copy.get(&ada(), &task_id("t")).await.unwrap().unwrap();
        assert_eq!((stored.seq.0, stored.task), (facts.events, folded(&task_id("t"), &events)));
        heads.push(events);
    }
    drop(acknowledged);
    allowed.close();
    writing.await.unwrap();
    let whole = log(&bench.store).await;
    for events in heads {
        assert_eq!(events, whole[..events.len()], "another log than the store's");
    }
}

#[tokio::test]
async fn a_backup_never_overwrites_a_file() {
    let bench = Bench::new().await;
    std::fs::write(bench.to("copy.db"), "precious").unwrap();
    backup(&bench.from(), &bench.to("copy.db")).unwrap_err();
    assert_eq!(std::fs::read_to_string(bench.to("copy.db")).unwrap(), "precious");
    // A backup does not overwrite an existing file, not even the store itself.
    backup(&bench.from(), &bench.from()).unwrap_err();
    assert!(bench.store.get(&ada(), &task_id("t")).await.unwrap().is_some());
}

#[test]
fn a_file_that_is_not_a_store_has_no_backup() {
    let contents = [
        ("", "empty"),
        ("CREATE TABLE bookmarks (x)", "another program"),
        ("PRAGMA user_version = 99; CREATE TABLE x (x)", "newer Longshore"),
    ];
    for (made_with, words) in contents {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from.db"), directory.path().join("to.db"));
        Connection::open(&from).unwrap().execute_batch(made_with).unwrap();
        let refused = backup(&from, &to).unwrap_err();
        assert!(refused.message().contains(words), "{made_with}: {refused}");
        assert!(!to.exists(), "{made_with}");
    }
    let nothing = tempfile::tempdir().unwrap();
    backup(&nothing.path().join("none.db"), &nothing.path().join("to.db")).unwrap_err();
    assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_damaged_copy_is_reported_and_removed() {
    let bench = Bench::new().await;
    let intruder = Connection::open(bench.from()).unwrap();
    intruder.pragma_update(None, "foreign_keys", false).unwrap();
    let orphan = "INSERT INTO events (task, seq, at, kind, body) VALUES (:task, 1, 1, 'x', 'x')";
    intruder.execute(orphan, named_params! { ":task": 99 }).unwrap();
    let refused = backup(&bench.from(), &bench.to("copy.db")).unwrap_err();
    assert!(refused.message().contains("damaged"), "{refused}");
    assert!(!bench.to("copy.db").exists());
}
