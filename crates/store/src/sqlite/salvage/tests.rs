use longshore_engine::port::{Append, Appended, Retention, RetentionStep, Store};
use longshore_model::{ErrorKind, Part, PartContent, Seq, StatusUpdate};
use longshore_testkit::store_suite::make::{
    ada, append, asking, child, chunk, create, everything, interrupt, opens, request_id, status, task_id,
    turn,
};
use tempfile::TempDir;

use super::super::{Durability, SqliteStore};
use super::*;

/// A value of type text whose bytes are no valid text.
const NO_TEXT: &str = "CAST(x'ff' AS TEXT)";

struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    /// A store with two working tasks. `t` has written `one` before its snapshot and `two` after it, and has an open ask. The other
    /// task is `sound`.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
        for name in ["t", "sound"] {
            store.create(create(name)).await.unwrap();
            let working = append(name, 1, vec![status(TaskState::Working, 2), chunk("one")]);
            let turn = Some(turn(name, "msg"));
            store.append(Append { turn, ..working }).await.unwrap();
        }
        let task = store.get(&ada(), &task_id("t")).await.unwrap().unwrap().task;
        let mut snapshot = task;
        snapshot.apply(&chunk("two"));
        let snapshot = Some(std::sync::Arc::new(snapshot));
        store.append(Append { snapshot, ..append("t", 3, vec![chunk("two")]) }).await.unwrap();
        store.append(append("t", 4, vec![chunk("three")])).await.unwrap();
        store.append(asking("t", 5, vec![opens(&interrupt("t", "r"))])).await.unwrap();
        Self { directory, store }
    }

    fn damage(&self, sql: &str) {
        let intruder = Connection::open(self.directory.path().join("store.db")).unwrap();
        assert!(intruder.execute(sql, []).unwrap() > 0, "{sql}");
    }

    fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.directory.path().join("store.db")).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Ends damaged tasks like the engine does.
    async fn end_damaged(&self) -> Vec<TaskId> {
        let end = |_: &Task| {
            let status = TaskStatus { state: TaskState::Failed, at: Timestamp(9), message: None };
            TaskEvent::Status(Box::new(StatusUpdate::new(status)))
        };
        self.store.end_damaged(Timestamp(9), Box::new(end)).await.unwrap()
    }
}

fn said(task: &Task) -> String {
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let text = |part: &Part| match &part.content {
        PartContent::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    parts.map(text).collect()
}

#[tokio::test]
async fn a_damaged_task_ends_with_its_readable_content() {
    let of_t = "task = (SELECT ordinal FROM tasks WHERE id = 't')";
    // Each case: the damage, and the readable rest of the output.
    let damages = [
        (format!("UPDATE events SET body = '{{' WHERE seq = 5 AND {of_t}"), "onetwo"),
        (format!("UPDATE events SET body = '{{\"unknown\":{{}}}}' WHERE seq = 5 AND {of_t}"), "onetwo"),
        // The snapshot is damaged, but the log has the text too.
        (format!("UPDATE snapshots SET summary = '[]' WHERE {of_t}"), "onetwothreex"),
        (format!("UPDATE snapshots SET artifacts = '{{}}' WHERE {of_t}"), "onetwothreex"),
        ("UPDATE tasks SET session = 'a/b' WHERE id = 't'".to_owned(), "onetwothreex"),
        (format!("UPDATE interrupts SET details = 'x' WHERE {of_t}"), "onetwothreex"),
        (format!("DELETE FROM snapshots WHERE {of_t}"), "onetwothreex"),
        // Invalid text, as after a flipped bit.
        (format!("UPDATE events SET body = {NO_TEXT} WHERE seq = 5 AND {of_t}"), "onetwo"),
        (format!("UPDATE snapshots SET summary = {NO_TEXT} WHERE {of_t}"), "onetwothreex"),
        (format!("UPDATE snapshots SET artifacts = {NO_TEXT} WHERE {of_t}"), "onetwothreex"),
        (format!("UPDATE tasks SET session = {NO_TEXT} WHERE id = 't'"), "onetwothreex"),
        (format!("UPDATE tasks SET directory = {NO_TEXT} WHERE id = 't'"), "onetwothreex"),
        (format!("UPDATE tasks SET prompt = {NO_TEXT} WHERE id = 't'"), "onetwothreex"),
        (format!("UPDATE tasks SET joined = {NO_TEXT} WHERE id = 't'"), "onetwothreex"),
        (format!("UPDATE interrupts SET request = {NO_TEXT} WHERE {of_t}"), "onetwothreex"),
        (format!("UPDATE interrupts SET summary = {NO_TEXT} WHERE {of_t}"), "onetwothreex"),
        (format!("UPDATE interrupts SET details = {NO_TEXT} WHERE {of_t}"), "onetwothreex"),
    ];
    for (damage, left) in damages {
        let bench = Bench::new().await;
        bench.damage(&damage);
        let refused = bench.store.get(&ada(), &task_id("t")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Internal, "{damage}: {refused:?}");
        assert_eq!(bench.end_damaged().await, [task_id("t")], "{damage}");

        let ended = bench.store.get(&ada(), &task_id("t")).await.unwrap().unwrap();
        assert_eq!((ended.task.status.state, ended.seq.0), (TaskState::Failed, 7), "{damage}");
        assert_eq!((said(&ended.task).as_str(), ended.task.history.len()), (left, 1), "{damage}");
        assert_eq!((ended.turn, ended.open_asks), (None, vec![]), "{damage}");
        let head = bench.store.head(&ada(), &task_id("t")).await.unwrap().unwrap();
        assert_eq!((head.seq.0, head.state), (7, TaskState::Failed), "{damage}");
        // Lists show the task, a start does not resume it, and no event can follow.
        let page = bench.store.list(everything()).await.unwrap();
        assert_eq!((page.tasks.len(), page.total), (2, 2), "{damage}");
        let unfinished = bench.store.unfinished().await.unwrap();
        assert_eq!(unfinished.into_iter().map(|one| one.task.id).collect::<Vec<_>>(), [task_id("sound")]);
        let late = bench.store.append(append("t", 7, vec![chunk("late")])).await.unwrap();
        assert_eq!(late, Appended::Terminal, "{damage}");
        assert!(bench.end_damaged().await.is_empty(), "{damage}");

        // A reader with a cursor is told that events are missing. The old events stay.
        assert_eq!(head.first.0, 7, "{damage}");
        for after in [0, 3, 6] {
            let entries = bench.store.read(&ada(), &task_id("t"), Seq(after), 9).await.unwrap();
            assert_eq!(entries.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [7], "{damage}");
        }
        let old = Retention {
            now: Timestamp(0),
            fold_before: Some(Timestamp(99)),
            drop_before: None,
            keys_before: Timestamp(0),
        };
        assert_eq!(bench.store.retain(old).await.unwrap(), RetentionStep::default(), "{damage}");
        assert_eq!(bench.number("SELECT count(*) FROM events WHERE task = 1"), 7, "{damage}");
    }
}

#[tokio::test]
async fn damage_in_the_task_row_alone_ends_the_task() {
    // Each case: the damaged column, and whether ada can still request the task.
    let cases = [("owner", false), ("state", true), ("context", true)];
    for (column, is_adas) in cases {
        let bench = Bench::new().await;
        bench.damage(&format!("UPDATE tasks SET {column} = {NO_TEXT} WHERE id = 't'"));
        assert_eq!(bench.end_damaged().await, [task_id("t")], "{column}");
        let ended = bench.store.get(&ada(), &task_id("t")).await.unwrap();
        assert_eq!(ended.map(|one| one.task.status.state), is_adas.then_some(TaskState::Failed), "{column}");
        let head = bench.store.head(&ada(), &task_id("t")).await.unwrap();
        assert_eq!(head.map(|head| head.state), is_adas.then_some(TaskState::Failed), "{column}");
        assert_eq!(bench.store.unfinished().await.unwrap().len(), 1, "{column}");
        assert_eq!(bench.number("SELECT count(*) FROM tasks WHERE state = 'failed'"), 1, "{column}");
    }
}

#[tokio::test]
async fn a_task_that_had_ended_keeps_its_end() {
    let bench = Bench::new().await;
    bench.store.append(append("sound", 3, vec![status(TaskState::Completed, 5)])).await.unwrap();
    let task = async || {
        let stored = bench.store.get(&ada(), &task_id("sound")).await.unwrap().unwrap();
        (stored.task, stored.seq, stored.epoch)
    };
    let before = task().await;
    let head = bench.store.head(&ada(), &task_id("sound")).await.unwrap();
    bench.damage(&format!("UPDATE tasks SET state = {NO_TEXT}, status_at = 9 WHERE id = 'sound'"));
    assert!(bench.end_damaged().await.is_empty());
    assert_eq!(task().await, before);
    assert_eq!(bench.store.head(&ada(), &task_id("sound")).await.unwrap(), head);
    assert_eq!(bench.number("SELECT status_at FROM tasks WHERE id = 'sound'"), 5);
    assert_eq!(bench.store.unfinished().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_task_that_cannot_be_ended_does_not_affect_the_others() {
    let bench = Bench::new().await;
    bench.damage("UPDATE events SET body = '{' WHERE seq > 1");
    let db = Connection::open(bench.directory.path().join("store.db")).unwrap();
    db.execute_batch(
        "CREATE TRIGGER stubborn BEFORE INSERT ON events WHEN NEW.task = 1
         BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    .unwrap();
    assert_eq!(bench.end_damaged().await, [task_id("sound")]);
    assert_eq!(bench.number("SELECT count(*) FROM tasks WHERE state = 'failed'"), 1);
    // Nothing was written for the second task. It ends later, when the store accepts writes.
    let ask = bench.store.interrupt(&ada(), &request_id("r")).await.unwrap().unwrap();
    assert_eq!(ask.closed, None);
    db.execute_batch("DROP TRIGGER stubborn").unwrap();
    assert_eq!(bench.end_damaged().await, [task_id("t")]);
}

#[tokio::test]
async fn log_and_snapshot_may_both_be_damaged() {
    let bench = Bench::new().await;
    bench.damage("UPDATE snapshots SET summary = ''");
    bench.damage("UPDATE events SET body = '' WHERE task = 1");
    bench.damage("UPDATE events SET body = '' WHERE task = 2 AND seq = 3");
    assert_eq!(bench.end_damaged().await, [task_id("t"), task_id("sound")]);
    for (name, messages) in [("t", 0), ("sound", 1)] {
        let task = bench.store.get(&ada(), &task_id(name)).await.unwrap().unwrap().task;
        assert_eq!((task.status.state, task.history.len()), (TaskState::Failed, messages), "{name}");
        assert_eq!(said(&task), "", "{name}");
    }
}

#[tokio::test]
async fn a_task_with_an_unreadable_id_ends_too() {
    for name in ["'a/b'", NO_TEXT] {
        let bench = Bench::new().await;
        bench.damage(&format!("UPDATE tasks SET id = {name} WHERE id = 't'"));
        assert!(bench.end_damaged().await.is_empty());
        assert_eq!(bench.store.unfinished().await.unwrap().len(), 1);
        assert_eq!(bench.number("SELECT count(*) FROM tasks WHERE state = 'failed'"), 1);
    }
}

#[tokio::test]
async fn ending_closes_the_asks_and_keeps_the_sub_agents() {
    let bench = Bench::new().await;
    bench.store.create(child("below", "t", "t")).await.unwrap();
    bench.damage("UPDATE events SET body = '{' WHERE seq = 5");
    bench.end_damaged().await;
    let ask = bench.store.interrupt(&ada(), &request_id("r")).await.unwrap().unwrap();
    assert_eq!(ask.closed, Some(rules::dropped(Timestamp(9))));
    let children = bench.store.children(&task_id("t")).await.unwrap();
    assert_eq!(children[0].task.status.state, TaskState::Submitted);
}

#[tokio::test]
async fn nothing_is_written_if_nothing_is_damaged() {
    let bench = Bench::new().await;
    // A store that accepts no writes can still be opened.
    bench
        .store
        .writer
        .run(Owner::Gateway, |db| Ok(db.execute_batch("PRAGMA query_only = 1")?))
        .await
        .unwrap();
    assert!(bench.end_damaged().await.is_empty());
}
