use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures_util::FutureExt;
use longshore_engine::port::{Appended, IdempotencyKey, PAGE_BYTES};
use longshore_model::{Error, ErrorKind, TaskState, Timestamp};
use longshore_testkit::store_suite::make::{
    ada, append, binding, child, chunk, context_id, create, create_in, everything, existing, owner, status,
    task_id,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

mod begun;
mod health;

const FILE: &str = "store.db";

/// SQLite's query plan, one step per line. Plans do not depend on bound values: see `schema::connect`.
pub(super) fn query_plan(db: &Connection, sql: &str) -> String {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.map(Result::unwrap).collect::<Vec<_>>().join("\n")
}

struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    /// A store with the task `t`, which works and has produced output.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
        store.create(create("t")).await.unwrap();
        store.append(append("t", 1, vec![status(TaskState::Working, 2), chunk("x")])).await.unwrap();
        Self { directory, store }
    }

    /// A connection of another program to the same file.
    fn intruder(&self) -> Connection {
        Connection::open(self.directory.path().join(FILE)).unwrap()
    }

    /// Changes a setting of the write connection.
    async fn pragma(&self, sql: &'static str) {
        self.store.writer.run(Owner::Gateway, move |db| Ok(db.execute_batch(sql)?)).await.unwrap();
    }

    /// Checks that the error text is safe for a caller and that the log has the cause.
    fn check_public(&self, error: &Error, kind: ErrorKind, words: &str) {
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.message().contains(words), "{error}");
        let directory = self.directory.path().to_str().unwrap();
        assert!(!error.message().contains(directory) && !error.message().contains(FILE), "{error}");
        assert!(error.cause().is_some(), "{error:?}");
    }
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let bench = Bench::new().await;
    let mut modes: Vec<_> = std::fs::read_dir(bench.directory.path())
        .unwrap()
        .map(|file| file.unwrap())
        .map(|file| {
            (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)
        })
        .collect();
    modes.sort();
    let expected = ["store.db", "store.db-shm", "store.db-wal"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(modes, expected);
}

#[tokio::test]
async fn the_connections_have_the_expected_settings() {
    for (durability, synchronous) in [(Durability::Process, 1), (Durability::Power, 2)] {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join(FILE), durability).unwrap();
        let number = async |pragma: &'static str| -> i64 {
            store
                .writer
                .run(Owner::Gateway, move |db| Ok(db.pragma_query_value(None, pragma, |row| row.get(0))?))
                .await
                .unwrap()
        };
        assert_eq!(number("synchronous").await, synchronous);
        assert_eq!(number("foreign_keys").await, 1);
        // A separate thread does the checkpoints, which SQLite would do inside a commit.
        assert_eq!(number("wal_autocheckpoint").await, 0);
        let mode: String = Connection::open(directory.path().join(FILE))
            .unwrap()
            .pragma_query_value(None, "journal_mode", |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
    }
}

#[tokio::test]
async fn answered_writes_survive_a_killed_process() {
    let bench = Bench::new().await;
    // Copy the files in the state in which a killed process leaves them: the database and its write-ahead log, never closed.
    let left = tempfile::tempdir().unwrap();
    for name in [FILE, "store.db-wal"] {
        std::fs::copy(bench.directory.path().join(name), left.path().join(name)).unwrap();
    }
    let found = SqliteStore::open(&left.path().join(FILE), Durability::Process).unwrap();
    let expected = bench.store.get(&ada(), &task_id("t")).await.unwrap();
    assert_eq!(expected.as_ref().map(|stored| stored.seq), Some(Seq(3)));
    assert_eq!(found.get(&ada(), &task_id("t")).await.unwrap(), expected);
    assert_eq!(found.append(append("t", 3, vec![chunk("y")])).await.unwrap(), Appended::Head(Seq(4)));
}

#[tokio::test]
async fn a_locked_file_is_unavailable_until_it_is_unlocked() {
    let bench = Bench::new().await;
    bench.store.writer.connection.lock().unwrap().set_busy_timeout(Duration::from_millis(1));
    let intruder = bench.intruder();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "in use by another program");
    // Readers are unaffected.
    assert!(bench.store.get(&ada(), &task_id("t")).await.unwrap().is_some());
    intruder.execute_batch("ROLLBACK").unwrap();
    let outcome = bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(4)));
}

#[tokio::test]
async fn a_read_only_file_is_unavailable() {
    let bench = Bench::new().await;
    bench.pragma("PRAGMA query_only = 1").await;
    let refused = bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "cannot be opened for writing");
    assert_eq!(bench.store.read(&ada(), &task_id("t"), Seq::START, 9).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_full_disk_is_unavailable_until_there_is_space() {
    let bench = Bench::new().await;
    // Allow no further page: SQLite raises a lower limit to the size of the file.
    bench.pragma("PRAGMA max_page_count = 1").await;
    let big = chunk(&"x".repeat(100_000));
    let refused = bench.store.append(append("t", 3, vec![chunk("y"), big.clone()])).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Unavailable, "full");
    assert_eq!(bench.store.read(&ada(), &task_id("t"), Seq::START, 9).await.unwrap().len(), 3);
    bench.pragma("PRAGMA max_page_count = 1000000").await;
    let outcome = bench.store.append(append("t", 3, vec![chunk("y"), big])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(5)));
}

#[tokio::test]
async fn damage_is_reported_and_the_rest_works() {
    let damages = [
        "UPDATE events SET body = '{\"status\":' WHERE seq = 2",
        "UPDATE events SET body = '{\"unknown\":{}}' WHERE seq = 2",
        "UPDATE snapshots SET summary = '[]'",
        "UPDATE snapshots SET artifacts = '{}'",
        "UPDATE tasks SET session = 'a/b', directory = '', prompt = 'p'",
        "UPDATE events SET body = CAST(x'ff' AS TEXT) WHERE seq = 2",
        "UPDATE tasks SET session = CAST(x'ff' AS TEXT), directory = '', prompt = 'p'",
        "DELETE FROM snapshots",
    ];
    for damage in damages {
        let bench = Bench::new().await;
        bench.intruder().execute_batch(damage).unwrap();
        bench.store.create(create("whole")).await.unwrap();

        let refused = bench.store.get(&ada(), &task_id("t")).await.unwrap_err();
        bench.check_public(&refused, ErrorKind::Internal, "damaged");
        // A list has the readable tasks.
        let page = bench.store.list(everything()).await.unwrap();
        let listed: Vec<_> = page.tasks.into_iter().map(|task| task.id).collect();
        assert_eq!((listed, page.total), (vec![task_id("whole")], 1), "{damage}");
        // The gateway starts with the readable tasks.
        let unfinished: Vec<_> =
            bench.store.unfinished().await.unwrap().into_iter().map(|s| s.task.id).collect();
        assert_eq!(unfinished, [task_id("whole")], "{damage}");
    }
}

#[tokio::test]
async fn a_list_continues_after_damaged_tasks() {
    let damages = [
        (
            "UPDATE snapshots SET summary = '[]' WHERE task IN (SELECT ordinal FROM tasks WHERE id GLOB 'bad*')",
            false,
        ),
        // An invalid id, so that no page could start after this task.
        ("UPDATE tasks SET id = 'bad/' || ordinal WHERE id GLOB 'bad*'", true),
    ];
    for (damage, is_nameless) in damages {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
        // The names of the tasks, newest first.
        let names = ["bad-1", "bad-2", "a", "bad-3", "b", "c", "bad-4", "bad-5", "bad-6"];
        for (age, name) in (0..).zip(names) {
            store.create(create_in(name, "c", 100 - age)).await.unwrap();
        }
        Connection::open(directory.path().join(FILE)).unwrap().execute_batch(damage).unwrap();
        for limit in [1, 2, 3, 100] {
            let mut query = ListQuery { limit, ..everything() };
            let (mut seen, mut pages) = (String::new(), 0);
            loop {
                let page = store.list(query.clone()).await.unwrap();
                seen.extend(page.tasks.iter().map(|task| task.id.as_str()));
                (query.after, pages) = (page.next, pages + 1);
                assert!(pages <= names.len(), "{damage}");
                if query.after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, "abc", "{limit} {damage}");
            // Paging reaches the end of the list.
            let listed = if is_nameless { 3_usize } else { names.len() };
            assert!(
                pages <= listed.div_ceil(limit) + usize::from(is_nameless),
                "{pages} of {limit}: {damage}"
            );
        }
    }
}

#[tokio::test]
async fn a_damaged_child_does_not_hide_the_others() {
    let bench = Bench::new().await;
    for name in ["one", "two"] {
        bench.store.create(child(name, "t", "t")).await.unwrap();
    }
    let damage =
        "UPDATE tasks SET session = 'ses', directory = '', prompt = 'p', joined = '{}' WHERE id = 'one'";
    bench.intruder().execute_batch(damage).unwrap();
    let children = bench.store.children(&task_id("t")).await.unwrap();
    assert_eq!(children.into_iter().map(|stored| stored.task.id).collect::<Vec<_>>(), [task_id("two")]);
    let refused = bench.store.get(&ada(), &task_id("one")).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Internal, "damaged");
}

#[tokio::test]
async fn a_damaged_event_affects_only_reads_of_it() {
    for body in ["'x'", "CAST(x'ff' AS TEXT)"] {
        let bench = Bench::new().await;
        let damage = format!("UPDATE events SET body = {body} WHERE seq = 2");
        bench.intruder().execute_batch(&damage).unwrap();
        let refused = bench.store.read(&ada(), &task_id("t"), Seq(1), 9).await.unwrap_err();
        bench.check_public(&refused, ErrorKind::Internal, "event 2 of task t");
        assert_eq!(bench.store.read(&ada(), &task_id("t"), Seq(2), 9).await.unwrap().len(), 1);
        assert_eq!(bench.store.read(&ada(), &task_id("t"), Seq(0), 1).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_damaged_binding_is_reported() {
    let damages = [
        "UPDATE bindings SET session = CAST(x'ff' AS TEXT)",
        "UPDATE bindings SET directory = CAST(x'ff' AS TEXT)",
        "UPDATE contexts SET directory = CAST(x'ff' AS TEXT)",
    ];
    for damage in damages {
        let bench = Bench::new().await;
        bench.store.bind(binding("ada", "c", "ses")).await.unwrap();
        let intruder = bench.intruder();
        intruder.execute_batch("PRAGMA foreign_keys = 0").unwrap();
        intruder.execute_batch(damage).unwrap();
        let refused = bench.store.context_location(&ada(), &context_id("c")).await.unwrap_err();
        bench.check_public(&refused, ErrorKind::Internal, "damaged");
    }
}

#[tokio::test]
async fn an_unknown_state_is_reported() {
    let bench = Bench::new().await;
    // Change the row through the write connection itself, which does not read its own writes again.
    bench.pragma("UPDATE tasks SET state = 'dreaming'").await;
    let refused = bench.store.head(&ada(), &task_id("t")).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Internal, "damaged");
    let refused = bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap_err();
    bench.check_public(&refused, ErrorKind::Internal, "damaged");
}

#[tokio::test]
async fn a_read_of_large_events_is_bounded_and_can_continue() {
    let bench = Bench::new().await;
    let large = "x".repeat(longshore_engine::port::READ_BYTES * 2 / 3);
    bench.store.append(append("t", 3, vec![chunk(&large); 4])).await.unwrap();
    let mut sizes = Vec::new();
    let mut cursor = Seq(3);
    loop {
        let entries = bench.store.read(&ada(), &task_id("t"), cursor, 100).await.unwrap();
        let Some(last) = entries.last() else { break };
        cursor = last.seq;
        sizes.push(entries.len());
    }
    assert_eq!((sizes, cursor), (vec![2, 2], Seq(7)));
}

#[tokio::test]
async fn a_page_of_large_tasks_is_bounded_and_can_continue() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
    // The size of each task in sixths of the bound, newest first. Half of it is in the snapshot, half in the tail.
    for (age, (name, sixths)) in (0..).zip([("a", 4), ("b", 4), ("c", 1), ("d", 13), ("e", 1), ("f", 1)]) {
        store.create(create_in(name, "c", 100 - age)).await.unwrap();
        let half = "x".repeat(list::PAGE_BYTES * sixths / 12);
        store.append(append(name, 1, vec![chunk(&half)])).await.unwrap();
        let task = store.get(&ada(), &task_id(name)).await.unwrap().unwrap().task;
        let snapshot = Some(std::sync::Arc::new(task));
        store.append(Append { snapshot, ..append(name, 2, vec![chunk("")]) }).await.unwrap();
        store.append(append(name, 3, vec![chunk(&half)])).await.unwrap();
    }
    let pages = async |limit: usize, with_artifacts: bool| {
        let mut query = ListQuery { limit, with_artifacts, ..everything() };
        let mut pages = Vec::new();
        loop {
            let page = store.list(query.clone()).await.unwrap();
            assert_eq!(page.total, 6);
            let names: String = page.tasks.iter().map(|task| task.id.as_str()).collect();
            pages.push(names);
            query.after = page.next;
            if query.after.is_none() {
                return pages;
            }
        }
    };
    assert_eq!(pages(100, true).await, ["ab", "cd", "ef"]);
    assert_eq!(pages(1, true).await, ["a", "b", "c", "d", "e", "f"]);
    // Parts that are not read do not count towards the bound.
    assert_eq!(pages(100, false).await, ["abcdef"]);
}

#[tokio::test]
async fn only_lists_wait_for_lists() {
    let bench = Bench::new().await;
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut long = bench
        .store
        .lists
        .run(Owner::Gateway, move |_| {
            begun.send(()).unwrap();
            // Ends with an error when the sender is dropped.
            released.recv().unwrap_err();
            Ok(())
        })
        .boxed();
    assert!((&mut long).now_or_never().is_none());
    has_begun.await.unwrap();
    let mut list = bench.store.list(everything());
    assert!((&mut list).now_or_never().is_none());
    assert!(bench.store.get(&ada(), &task_id("t")).await.unwrap().is_some());
    assert!(bench.store.head(&ada(), &task_id("t")).await.unwrap().is_some());
    assert_eq!(bench.store.unfinished().await.unwrap().len(), 1);
    // The other threads have answered meanwhile, so the list is in none of their queues.
    assert!((&mut list).now_or_never().is_none());
    drop(release);
    long.await.unwrap();
    assert_eq!(list.await.unwrap().total, 1);
}

#[tokio::test]
async fn expired_keys_are_removed_a_few_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join(FILE), Durability::Process).unwrap();
    let db = Connection::open(directory.path().join(FILE)).unwrap();
    let left = |who: &str| -> Vec<i64> {
        let mut statement = db.prepare("SELECT at FROM idempotency WHERE owner = ? ORDER BY at").unwrap();
        statement.query_map([who], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for at in 1..=20 {
        store.create(create_in(&format!("t{at}"), "c", at)).await.unwrap();
    }
    store.create(Create { owner: owner("bob"), ..create_in("bobs", "c", 1) }).await.unwrap();
    let late = |name: &str, valid_since: i64| {
        let create = create_in(name, "c", 100);
        let key = create.idempotency.unwrap();
        let idempotency = Some(IdempotencyKey { valid_since: Timestamp(valid_since), ..key });
        Create { idempotency, ..create }
    };
    // A repeated send creates no task and removes no keys.
    assert_eq!(
        store.create(Create { at: Timestamp(100), ..late("t20", 20) }).await.unwrap(),
        existing("t20")
    );
    assert_eq!(left("ada").len(), 20);
    store.create(late("u1", 20)).await.unwrap();
    assert_eq!(left("ada"), [17, 18, 19, 20, 100]);
    store.create(late("u2", 20)).await.unwrap();
    assert_eq!(left("ada"), [20, 100, 100]);
    store.create(late("u3", 20)).await.unwrap();
    assert_eq!(left("ada"), [20, 100, 100, 100]);
    assert_eq!(left("bob"), [1]);
}

#[tokio::test]
async fn the_head_has_the_first_readable_event() {
    let bench = Bench::new().await;
    let first = async || bench.store.head(&ada(), &task_id("t")).await.unwrap().unwrap().first;
    assert_eq!(first().await, Seq(1));
    bench.intruder().execute_batch("DELETE FROM events WHERE seq < 3; UPDATE tasks SET first = 3").unwrap();
    assert_eq!(first().await, Seq(3));
    // An append does not bring removed events back.
    bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap();
    assert_eq!(first().await, Seq(3));
}

#[tokio::test]
async fn a_start_reads_large_unfinished_tasks_in_pages() {
    let bench = Bench::new().await;
    let text = "x".repeat(PAGE_BYTES / 2 + 1);
    for name in ["a", "b", "c"] {
        bench.store.create(create(name)).await.unwrap();
        let task = Arc::new(bench.store.get(&ada(), &task_id(name)).await.unwrap().unwrap().task);
        let mut large = (*task).clone();
        let events = vec![status(TaskState::Working, 2), chunk(&text)];
        for event in &events {
            large.apply(event);
        }
        let snapshot = Some(Arc::new(large));
        bench.store.append(Append { snapshot, ..append(name, 1, events) }).await.unwrap();
    }
    let (mut pages, mut next) = (Vec::new(), Some(0));
    while let Some(cursor) = next {
        let page = bench.store.unfinished_after(cursor).await.unwrap();
        pages.push(page.tasks.iter().map(|stored| stored.task.id.to_string()).collect::<Vec<_>>());
        next = page.next;
    }
    assert_eq!(pages, [vec!["t", "a", "b"], vec!["c"]]);
}

#[tokio::test]
async fn a_row_that_is_too_large_for_sqlite_is_not_tried_again() {
    let bench = Bench::new().await;
    let sql = "INSERT INTO probes (body) VALUES (zeroblob(1000000001))";
    let written = bench.store.writer.run(Owner::Gateway, move |db| Ok(db.execute_batch(sql)?)).await;
    let error = written.unwrap_err();
    bench.check_public(&error, ErrorKind::BodyTooLarge, "about a billion bytes");
    assert_eq!(error.retry(), longshore_model::Retry::Never);
}

#[tokio::test]
async fn a_replay_that_meets_retention_between_two_statements_sees_one_state() {
    let bench = Bench::new().await;
    let intruder = bench.intruder();
    let known = KnownDamage::default();
    let work = move |db: &Connection| {
        read::check_readable(db)?;
        intruder.execute_batch("DELETE FROM events WHERE seq < 3; UPDATE tasks SET first = 3").unwrap();
        read::events(db, &known, &task_id("t"), Seq::START, 9)
    };
    let entries = bench.store.quick.run(Owner::Gateway, work).await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [1, 2, 3]);
    let after = bench.store.read(&ada(), &task_id("t"), Seq::START, 9).await.unwrap();
    assert_eq!(after.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [3]);
}

#[tokio::test]
async fn a_task_that_the_check_found_damaged_takes_no_more_events() {
    let bench = Bench::new().await;
    assert!(bench.store.may_show(&task_id("t")));
    let damaged = DamagedTask { id: Some(task_id("t")), reason: "its last events may be missing".to_owned() };
    bench.store.damage.add(1, damaged);
    assert!(!bench.store.may_show(&task_id("t")));
    let refused = bench.store.append(append("t", 3, vec![chunk("y")])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Internal, "{refused:?}");
}
