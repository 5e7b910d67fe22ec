use longshore_engine::port::{Append, Appended, Store};
use longshore_model::{Seq, TaskId};
use longshore_testkit::store_suite::make::{ada, append, chunk, create, everything, status, task_id, turn};
use tempfile::TempDir;

use super::super::{Durability, SqliteStore, find_damage};
use super::*;

const FILE: &str = "store.db";

/// A store with the tasks `t`, which has ended, and `whole`.
async fn made() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
    for name in ["t", "whole"] {
        store.create(create(name)).await.unwrap();
        let working = append(name, 1, vec![status(TaskState::Working, 2), chunk("first words")]);
        store.append(Append { turn: Some(turn(name, "msg")), ..working }).await.unwrap();
        let snapshot = store.get(&ada(), &task_id(name)).await.unwrap().unwrap().task;
        let mut snapshot_after = snapshot.clone();
        snapshot_after.apply(&chunk("second words"));
        let snapshot = Some(std::sync::Arc::new(snapshot_after));
        store.append(Append { snapshot, ..append(name, 3, vec![chunk("second words")]) }).await.unwrap();
        store.append(append(name, 4, vec![chunk("third"), status(TaskState::Completed, 5)])).await.unwrap();
    }
    directory
}

fn damage(directory: &TempDir, sql: &str) {
    let intruder = Connection::open(directory.path().join(FILE)).unwrap();
    intruder.execute_batch("PRAGMA foreign_keys = 0").unwrap();
    assert!(intruder.execute(sql, []).unwrap() > 0, "{sql}");
}

fn named(found: &Damage) -> Vec<Option<TaskId>> {
    found.tasks.values().map(|task| task.id.clone()).collect()
}

#[tokio::test]
async fn a_whole_store_has_no_damage() {
    let directory = made().await;
    assert_eq!(find_damage(&directory.path().join(FILE)).unwrap(), Damage::default());
    // Events from before checksums existed count as undamaged.
    damage(&directory, "UPDATE epochs SET unsummed = 4294967295");
    damage(&directory, "UPDATE events SET sum = NULL");
    damage(&directory, "UPDATE snapshots SET sum = NULL");
    assert_eq!(find_damage(&directory.path().join(FILE)).unwrap(), Damage::default());
}

#[tokio::test]
async fn a_damaged_task_is_named_and_refused_and_lists_leave_it_out() {
    let damages = [
        // Changed text that is still JSON: before the snapshot, after it, and in it.
        "UPDATE events SET body = replace(body, 'first', 'fisrt') WHERE task = 1 AND seq = 3",
        "UPDATE events SET body = replace(body, 'third', 'thirt') WHERE task = 1 AND seq = 5",
        "UPDATE snapshots SET artifacts = replace(artifacts, 'second', 'secund') WHERE task = 1",
        "UPDATE snapshots SET summary = replace(summary, 'working', 'completed') WHERE task = 1",
        "UPDATE events SET kind = 'artifact' WHERE task = 1 AND seq = 6",
        "UPDATE events SET epoch = epoch + 1 WHERE task = 1 AND seq = 4",
        // A missing checksum, although the store had checksums from its beginning.
        "UPDATE events SET sum = NULL WHERE task = 1 AND seq = 2",
        "UPDATE snapshots SET sum = NULL WHERE task = 1",
        // Missing events.
        "DELETE FROM events WHERE task = 1 AND seq = 1",
        "DELETE FROM events WHERE task = 1 AND seq = 3",
        "DELETE FROM events WHERE task = 1 AND seq = 6",
        "DELETE FROM snapshots WHERE task = 1",
        // Events of another task, and events that no longer belong to any range.
        "UPDATE events SET task = 1, seq = 7 WHERE task = 2 AND seq = 6",
        "UPDATE tasks SET first = 3 WHERE ordinal = 1",
        "UPDATE tasks SET state = 'failed' WHERE ordinal = 1",
        "UPDATE tasks SET status_at = 4 WHERE ordinal = 1",
        "UPDATE tasks SET context = 'other' WHERE ordinal = 1",
        "UPDATE tasks SET summary_seq = 9 WHERE ordinal = 1",
    ];
    for sql in damages {
        let directory = made().await;
        damage(&directory, sql);
        let found = find_damage(&directory.path().join(FILE)).unwrap();
        assert!(named(&found).contains(&Some(task_id("t"))), "{sql}: {found:?}");
        let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
        store.begin_check();
        let (ada, t) = (ada(), task_id("t"));
        let refused = [
            store.get(&ada, &t).await.unwrap_err(),
            store.head(&ada, &t).await.unwrap_err(),
            store.read(&ada, &t, Seq::START, 9).await.unwrap_err(),
        ];
        for error in refused {
            assert!(error.to_string().contains("task t is damaged"), "{sql}: {error}");
        }
        let page = store.list(everything()).await.unwrap();
        assert_eq!(page.total, page.tasks.len() as u64, "{sql}");
        assert!(page.tasks.iter().all(|task| task.id != t), "{sql}");
        assert!(store.damage().unwrap().contains("damaged"), "{sql}");
    }
}

#[tokio::test]
async fn a_task_whose_id_is_gone_counts_and_a_missing_row_is_noticed() {
    let directory = made().await;
    damage(&directory, "UPDATE tasks SET id = 'a/b' WHERE ordinal = 1");
    assert_eq!(named(&find_damage(&directory.path().join(FILE)).unwrap()), [None]);
    let directory = made().await;
    damage(&directory, "DELETE FROM tasks WHERE ordinal = 1");
    assert_eq!(named(&find_damage(&directory.path().join(FILE)).unwrap()), [None]);
}

#[tokio::test]
async fn a_task_that_has_ended_is_read_before_the_check_of_the_others_is_done() {
    let directory = made().await;
    damage(&directory, "UPDATE events SET body = '' WHERE task = 2 AND seq = 3");
    let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
    // The check of the other tasks does not end in this test.
    store.check.hold();
    store.get(&ada(), &task_id("t")).await.unwrap().unwrap();
    store.read(&ada(), &task_id("t"), Seq::START, 9).await.unwrap();
    let waits =
        tokio::time::timeout(std::time::Duration::from_millis(50), store.get(&ada(), &task_id("whole")))
            .await;
    assert!(waits.is_err(), "a damaged task was not held back");
    let waits = tokio::time::timeout(std::time::Duration::from_millis(50), store.list(everything())).await;
    assert!(waits.is_err(), "a list was not held back");
}

#[tokio::test]
async fn a_task_of_this_run_is_read_and_continued_beside_damage_and_an_older_one_can_only_end() {
    let directory = made().await;
    let open = || SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
    open().create(create("old")).await.unwrap();
    // The id of a task is lost, so an unknown id may be that of the damaged task.
    damage(&directory, "DELETE FROM tasks WHERE ordinal = 1");
    let store = open();
    store.create(create("new")).await.unwrap();
    store.check.hold();
    store.get(&ada(), &task_id("new")).await.unwrap().unwrap();
    store.begin_check();
    store.check.wait().await;
    for (task, is_continued) in [("new", true), ("old", false)] {
        let next = store.append(append(task, 1, vec![chunk("text")])).await;
        assert_eq!(next.is_ok(), is_continued, "{task}: {next:?}");
        let head = if is_continued { 2 } else { 1 };
        let end = store.append(append(task, head, vec![status(TaskState::Failed, 9)])).await.unwrap();
        assert_eq!(end, Appended::Head(Seq(head + 1)), "{task}");
    }
}
