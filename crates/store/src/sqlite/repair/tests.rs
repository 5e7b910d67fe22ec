use longshore_engine::port::{self, Append, CallStore as _, PushQueue as _, Store as _};
use longshore_model::{Seq, TaskState, TaskStatus};
use longshore_testkit::store_suite::make::{
    ada, append, asking, chunk, create, everything, file, interrupt, opens, request_id, status, task_id, turn,
};
use longshore_testkit::store_suite::{calls, push};
use tempfile::TempDir;

use super::super::{SqliteStore, find_damage};
use super::*;

fn path(directory: &TempDir, name: &str) -> std::path::PathBuf {
    directory.path().join(name)
}

/// A store in which `t` and `whole` have ended, `asks` has an open ask, and `whole` has a file.
async fn made() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&path(&directory, "old.db"), Durability::Process).unwrap();
    for name in ["t", "whole", "asks"] {
        store.create(create(name)).await.unwrap();
        let working = append(name, 1, vec![status(TaskState::Working, 2), chunk("one "), chunk("two ")]);
        store.append(Append { turn: Some(turn(name, "msg")), ..working }).await.unwrap();
    }
    for name in ["t", "whole"] {
        store.append(append(name, 4, vec![chunk("three"), status(TaskState::Completed, 5)])).await.unwrap();
    }
    store.append(asking("asks", 4, vec![opens(&interrupt("asks", "r"))])).await.unwrap();
    let mut file = file("whole", "f", &vec![7; 300_000]);
    file.facts.sha256 = Sha256::digest(&file.bytes).into();
    store.put_file(file).await.unwrap();
    assert!(store.put_call(calls::call("asks", "call", true, "{}")).await.unwrap());
    directory
}

fn damage(directory: &TempDir, sql: &str) {
    let intruder = Connection::open(path(directory, "old.db")).unwrap();
    intruder.execute_batch("PRAGMA foreign_keys = 0").unwrap();
    assert!(intruder.execute(sql, []).unwrap() > 0, "{sql}");
}

fn repaired(directory: &TempDir) -> Option<Repaired> {
    let end = |_: &Task| {
        let status = TaskStatus { state: TaskState::Failed, at: Timestamp(9), message: None };
        TaskEvent::Status(Box::new(StatusUpdate::new(status)))
    };
    let end: EndTask = Box::new(end);
    repair(&path(directory, "old.db"), &path(directory, "new.db"), Timestamp(9), &end).unwrap()
}

#[tokio::test]
async fn a_whole_store_is_not_repaired() {
    let directory = made().await;
    assert_eq!(repaired(&directory), None);
    assert!(!path(&directory, "new.db").exists());
}

#[tokio::test]
async fn a_repair_keeps_what_is_whole_and_names_the_rest() {
    // Each case: the damage, and whether the end of `t` is still there.
    let damages = [
        ("UPDATE events SET body = replace(body, 'one', 'eno') WHERE task = 1 AND seq = 3", false),
        ("UPDATE events SET body = '' WHERE task = 1 AND seq = 6", false),
        ("DELETE FROM events WHERE task = 1 AND seq = 4", false),
        ("DELETE FROM snapshots WHERE task = 1", true),
        ("UPDATE tasks SET state = 'working' WHERE ordinal = 1", true),
        ("UPDATE tasks SET summary_seq = 2 WHERE ordinal = 1", true),
    ];
    for (sql, has_end) in damages {
        let directory = made().await;
        let old = SqliteStore::open(&path(&directory, "old.db"), Durability::Process).unwrap();
        let (whole, asks) = (task_id("whole"), task_id("asks"));
        let before = (old.get(&ada(), &whole).await.unwrap(), old.get(&ada(), &asks).await.unwrap());
        let log = old.read(&ada(), &whole, Seq::START, 99).await.unwrap();
        let original = old.get(&ada(), &task_id("t")).await.unwrap().unwrap();
        drop(old);
        damage(&directory, sql);
        let found = repaired(&directory).expect("it is damaged");
        let t = vec![task_id("t")];
        let expected = if has_end { (t, vec![]) } else { (vec![], t) };
        assert_eq!((found.without_log.clone(), found.ended.clone()), expected, "{sql}: {found:?}");
        assert_eq!((found.lost.len(), found.rows_lost, found.tasks), (0, 0, 2), "{sql}: {found:?}");

        let new = SqliteStore::open(&path(&directory, "new.db"), Durability::Process).unwrap();
        assert!(find_damage(&path(&directory, "new.db")).unwrap().is_none(), "{sql}");
        assert_eq!(
            (new.get(&ada(), &whole).await.unwrap(), new.get(&ada(), &asks).await.unwrap()),
            before,
            "{sql}"
        );
        assert_eq!(new.read(&ada(), &whole, Seq::START, 99).await.unwrap(), log, "{sql}");
        assert!(new.interrupt(&ada(), &request_id("r")).await.unwrap().is_some(), "{sql}");
        assert_eq!(new.open_calls(None).await.unwrap().calls.len(), 1, "{sql}");
        let task = new.get(&ada(), &task_id("t")).await.unwrap().unwrap().task;
        if has_end {
            assert_eq!(task, original.task, "{sql}");
        } else {
            assert_eq!(task.status.state, TaskState::Failed, "{sql}");
        }
        let head = new.head(&ada(), &task_id("t")).await.unwrap().unwrap();
        assert_eq!((head.first, head.epoch > original.epoch), (head.seq, true), "{sql}");
        let page = new.list(everything()).await.unwrap();
        assert_eq!((page.total, page.tasks.len()), (3, 3), "{sql}");
    }
}

#[tokio::test]
async fn the_end_of_a_repaired_task_is_due_for_its_configurations() {
    let directory = made().await;
    let old = SqliteStore::open(&path(&directory, "old.db"), Durability::Process).unwrap();
    // The cursor is at the end of the log, so nothing is due.
    let head = old.head(&ada(), &task_id("asks")).await.unwrap().unwrap().seq;
    port::PushConfigs::put(&old, push::new("asks", "c", head.0)).await.unwrap();
    drop(old);
    damage(&directory, "UPDATE events SET body = '' WHERE task = 3 AND seq = 3");
    assert_eq!(repaired(&directory).expect("it is damaged").ended, [task_id("asks")]);
    // Open the store like a gateway that has the same keys.
    let new = SqliteStore::open(&path(&directory, "new.db"), Durability::Process).unwrap();
    assert_eq!(new.next_due().await.unwrap(), Some(Timestamp(0)));
}

#[tokio::test]
async fn a_file_whose_content_changed_and_a_task_without_a_certain_owner_are_left_out() {
    let directory = made().await;
    damage(&directory, "UPDATE file_chunks SET bytes = zeroblob(octet_length(bytes)) WHERE place = 1");
    damage(&directory, "DELETE FROM tasks WHERE ordinal = 1");
    let found = repaired(&directory).expect("it is damaged");
    assert_eq!((found.lost.as_slice(), found.rows_lost), (&["number 1".to_owned()][..], 3), "{found:?}");
    // The lost rows are the file, the key of the lost task, and the ask of the ended task.
    assert_eq!(found.ended, [task_id("asks")], "{found:?}");
    let new = SqliteStore::open(&path(&directory, "new.db"), Durability::Process).unwrap();
    assert_eq!(new.list(everything()).await.unwrap().total, 2);
    assert!(find_damage(&path(&directory, "new.db")).unwrap().is_none());
}

#[test]
fn a_draft_needs_no_space_beside_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let draft = open_draft(&path(&directory, "new.db")).unwrap();
    draft.execute_batch("BEGIN IMMEDIATE; INSERT INTO probes (body) VALUES (zeroblob(20000000))").unwrap();
    let others = std::fs::read_dir(directory.path()).unwrap().flatten();
    let beside: u64 =
        others.filter(|file| file.file_name() != "new.db").map(|file| file.metadata().unwrap().len()).sum();
    assert!(beside < 1_000_000, "{beside}");
}
