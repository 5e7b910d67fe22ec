mod eighth;
mod fifth;
mod ninth;
mod seventh;
mod sixth;
mod tenth;

use longshore_engine::port::{Appended, Bound, ContextLocation, Create, Created, ListQuery, Store};
use longshore_model::{
    AskKind, AskOptions, BlockKind, Closed, Epoch, OutputModes, PartContent, PromptId, Resolution, Seq,
    TaskState, Timestamp,
};
use longshore_testkit::store_suite::make::{
    ada, asking, child, closes, context_id, create, create_in, everything, file, folded, interrupt, opens,
    request_id, session, task_id, turn,
};
use rusqlite::StatementStatus;

use super::super::SqliteStore;
use super::*;

const ONE: &str = "CREATE TABLE one (x)";
const TWO: &str = "CREATE TABLE two (x); INSERT INTO two VALUES (1)";

fn tables(db: &Connection) -> Vec<String> {
    let mut statement = db.prepare("SELECT name FROM sqlite_schema ORDER BY name").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn each_migration_is_applied_once() {
    let mut db = Connection::open_in_memory().unwrap();
    let steps: [(&[&str], usize, &[&str]); 4] = [
        (&[ONE], 1, &["one"]),
        // A second run would fail: the table exists.
        (&[ONE], 1, &["one"]),
        (&[ONE, TWO], 2, &["one", "two"]),
        (&[ONE, TWO], 2, &["one", "two"]),
    ];
    for (migrations, version, expected) in steps {
        migrate(&mut db, migrations).unwrap();
        assert_eq!(applied(&db).unwrap(), version);
        assert_eq!(tables(&db), expected);
    }
    let rows: i64 = db.query_row("SELECT count(*) FROM two", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

/// By default, SQLite plans some statements, such as those with a limit, again for each bound value.
#[test]
fn a_statement_is_planned_once_whatever_is_bound_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let writer = open_writer(&path, Durability::Process).unwrap();
    let reader = open_reader(&path).unwrap();
    for db in [&writer, &reader] {
        let sql = "SELECT digest FROM idempotency WHERE owner = ?1 AND at < ?2 ORDER BY at LIMIT ?3";
        let mut statement = db.prepare(sql).unwrap();
        for value in 0..3 {
            assert!(!statement.exists(("ada", value, value)).unwrap());
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}

#[test]
fn a_failed_migration_leaves_nothing() {
    let mut db = Connection::open_in_memory().unwrap();
    migrate(&mut db, &[ONE]).unwrap();
    let Fault(error) = migrate(&mut db, &[ONE, TWO, "CREATE TABLE three (x); nonsense"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!((applied(&db).unwrap(), tables(&db)), (1, vec!["one".to_owned()]));
}

#[test]
fn a_file_of_another_program_is_refused_and_unchanged() {
    let cases = [
        ("PRAGMA user_version = 99; CREATE TABLE tasks (x)", "newer Longshore: its schema is number 99"),
        ("PRAGMA user_version = -1", "newer Longshore"),
        ("CREATE TABLE bookmarks (x)", "another program"),
    ];
    for (made_with, words) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        Connection::open(&path).unwrap().execute_batch(made_with).unwrap();
        let error = open_writer(&path, Durability::Process).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{made_with}");
        assert!(error.message().contains(words), "{error}");

        let original = Connection::open_in_memory().unwrap();
        original.execute_batch(made_with).unwrap();
        let db = Connection::open(&path).unwrap();
        assert_eq!(tables(&db), tables(&original));
        assert_eq!(applied(&db).unwrap(), applied(&original).unwrap());
    }
}

#[test]
fn a_file_with_a_newer_schema_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let before = std::fs::read(&path).unwrap();
    open_writer(&path, Durability::Process).unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_access_of_others_is_removed() {
    // Each case: the mode of the files before and after.
    for (before, after) in [(0o644, 0o600), (0o666, 0o600), (0o700, 0o600), (0o640, 0o600), (0o600, 0o600)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        // Another connection keeps `-wal` and `-shm`, as after a kill of the gateway.
        let other = open_writer(&path, Durability::Process).unwrap();
        other.execute_batch("CREATE TABLE more (x)").unwrap();
        let files = ["store.db", "store.db-wal", "store.db-shm"].map(|name| directory.path().join(name));
        for file in &files {
            fs::set_permissions(file, Permissions::from_mode(before)).unwrap();
        }
        // The same through a link.
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let _db = open_writer(&link, Durability::Process).unwrap();
        assert_eq!(files.each_ref().map(|file| mode(file)), [after; 3], "{before:o}");
    }
}

#[test]
fn a_refused_file_keeps_its_mode() {
    for made_with in ["PRAGMA user_version = 99", "CREATE TABLE bookmarks (x)"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        Connection::open(&path).unwrap().execute_batch(made_with).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let before = fs::read(&path).unwrap();
        open_writer(&path, Durability::Process).unwrap_err();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o644, before), "{made_with}");
    }
}

#[test]
fn a_file_that_is_not_a_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let text = "not a database, but long enough to be looked at ".repeat(40);
    std::fs::write(&path, &text).unwrap();
    let error = open_writer(&path, Durability::Process).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("no database of the gateway"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_missing_directory_is_reported_without_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let error =
        open_writer(&directory.path().join("none").join("store.db"), Durability::Process).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.message().contains("none"), "{error}");
    assert!(error.cause().is_some());
}

#[test]
fn a_path_that_looks_like_a_uri_is_a_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db?mode=memory");
    open_writer(&path, Durability::Process).unwrap();
    assert!(path.metadata().unwrap().len() > 0);
}

/// Rows of a program that knew only the first migration: a task with output before and after its snapshot, a completed task, and a
/// damaged one.
const FIRST_SCHEMA_ROWS: &str = r#"
    INSERT INTO sessions (id, owner, directory, at) VALUES ('ses', 'ada', '/projects/ses', 1);
    INSERT INTO bindings (owner, context, session, directory, named, at) VALUES ('ada', 'c', 'ses', '/projects/ses', 0, 1);
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, head, first, session, directory, prompt)
    VALUES (1, 'works', 'ada', 'c', 'working', 2, 2, 7, 1, 'ses', '/projects/ses', 'msg'),
           (2, 'done', 'ada', 'c', 'completed', 3, 2, 2, 1, NULL, NULL, NULL),
           (3, 'bad', 'ada', 'c', 'submitted', 1, 1, 2, 1, NULL, NULL, NULL);
    INSERT INTO events (task, seq, at, kind, body) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}'),
        (1, 2, 2, 'status', '{"status":{"status":{"state":"working","at":2},"metadata":{"n":1.0}}}'),
        (1, 3, 2, 'artifact', '{"artifact":{"artifact":{"id":"b","name":"reasoning","parts":[{"content":{"text":"hm"}}]},"append":false,"last_chunk":true}}'),
        (1, 4, 2, 'artifact', '{"artifact":{"artifact":{"id":"a","name":"tool:bash","parts":[{"content":{"data":{"n":12345678901234567890123}}}]},"append":false,"last_chunk":true}}'),
        (1, 5, 2, 'artifact', '{"artifact":{"artifact":{"id":"c","name":"text","parts":[{"content":{"text":"é\u00e9 "}}]},"append":false,"last_chunk":false}}'),
        (1, 6, 2, 'artifact', '{"artifact":{"artifact":{"id":"c","name":"text","parts":[{"content":{"text":"\"x\""}}]},"append":true,"last_chunk":false}}'),
        (1, 7, 2, 'artifact', '{"artifact":{"artifact":{"id":"d","parts":[{"content":{"text":""}}]},"append":false,"last_chunk":false}}'),
        (2, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}'),
        (2, 2, 3, 'status', '{"status":{"status":{"state":"completed","at":3}}}'),
        (3, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}'),
        (3, 2, 1, 'artifact', '{"artifact":');
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 5,
         '{"id":"works","context_id":"c","status":{"state":"working","at":2},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}',
         '[{"id":"b","name":"reasoning","parts":[{"content":{"text":"hm"}}]},{"id":"a","name":"tool:bash","parts":[{"content":{"data":{"n":12345678901234567890123}}}]},{"id":"c","name":"text","parts":[{"content":{"text":"é\u00e9 "}}]}]'),
        (2, 1,
         '{"id":"done","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}',
         '[]'),
        (3, 1, '{}', '[');
"#;

#[tokio::test]
async fn a_file_of_the_first_schema_keeps_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..1]).unwrap();
    db.execute_batch(FIRST_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    assert_eq!(applied(&Connection::open(&path).unwrap()).unwrap(), MIGRATIONS.len());
    let works = store.get(&ada(), &task_id("works")).await.unwrap().unwrap();
    let seen: Vec<_> = works
        .task
        .artifacts
        .iter()
        .map(|block| {
            let [part] = block.parts.as_slice() else { panic!("{block:?}") };
            let content = match &part.content {
                PartContent::Text(text) => text.as_str(),
                PartContent::Data(data) => data.get(),
                other => panic!("{other:?}"),
            };
            (block.id.as_str(), block.kind, content)
        })
        .collect();
    let expected = [
        ("b", BlockKind::Reasoning, "hm"),
        ("a", BlockKind::ToolCall, r#"{"n":12345678901234567890123}"#),
        ("c", BlockKind::Text, "éé \"x\""),
        ("d", BlockKind::Text, ""),
    ];
    assert_eq!(seen, expected);
    assert_eq!((works.seq, works.turn, works.open_asks), (Seq(7), Some(turn("ses", "msg")), vec![]));

    // Reading the log gives the same output.
    let entries = store.read(&ada(), &task_id("works"), Seq::START, 100).await.unwrap();
    let events: Vec<_> = entries.into_iter().map(|entry| entry.event).collect();
    assert_eq!(folded(&task_id("works"), &events), works.task);
    let done = store.head(&ada(), &task_id("done")).await.unwrap().unwrap();
    assert_eq!((done.seq, done.state, done.output), (Seq(2), TaskState::Completed, OutputModes::default()));
    check_place(&store).await;
    let damaged = store.get(&ada(), &task_id("bad")).await.unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Internal);

    // The store works with the new features.
    let outcome = store.append(asking("works", 7, vec![opens(&interrupt("works", "r"))])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(8)));
    let unfinished = store.unfinished().await.unwrap();
    let open: Vec<_> = unfinished.into_iter().map(|stored| (stored.task.id, stored.open_asks)).collect();
    assert_eq!(open, [(task_id("works"), vec![interrupt("works", "r")])]);
}

/// Checks that the context of both files works in its session's directory and has not moved.
async fn check_place(store: &SqliteStore) {
    let bound = Some(Bound { session: session("ses"), named: false });
    let expected = ContextLocation { directory: Some("/projects/ses".to_owned()), bound };
    assert_eq!(store.context_location(&ada(), &context_id("c")).await.unwrap(), expected);
    let moving = Create { directory: "/elsewhere".to_owned(), directory_named: true, ..create("moves") };
    assert_eq!(store.create(moving).await.unwrap(), Created::OtherDirectory);
    assert_eq!(
        store.context_location(&ada(), &context_id("none")).await.unwrap(),
        ContextLocation::default()
    );
}

/// Rows of a program that knew two migrations: a working task with an open ask, and a task in a context that never had a
/// session.
const SECOND_SCHEMA_ROWS: &str = r#"
    INSERT INTO sessions (id, owner, directory, at) VALUES ('ses', 'ada', '/projects/ses', 1);
    INSERT INTO bindings (owner, context, session, directory, named, at) VALUES ('ada', 'c', 'ses', '/projects/ses', 0, 1);
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, head, first, session, directory, prompt)
    VALUES (1, 'works', 'ada', 'c', 'input_required', 2, 2, 2, 1, 'ses', '/projects/ses', 'msg'),
           (2, 'waits', 'ada', 'd', 'submitted', 1, 1, 1, 1, NULL, NULL, NULL);
    INSERT INTO events (task, seq, at, kind, body) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}'),
        (1, 2, 2, 'status', '{"status":{"status":{"state":"input_required","at":2}}}'),
        (2, 1, 1, 'submitted', '{"submitted":{"context_id":"d","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}');
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 1, '{"id":"works","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]'),
        (2, 1, '{"id":"waits","context_id":"d","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]');
    INSERT INTO idempotency (owner, digest, task, at) VALUES ('ada', x'7761697473000000000000000000000000000000000000000000000000000000', 2, 1);
    INSERT INTO interrupts (request, task, owner, kind, session, summary, details, questions, asked_at, expires_at, resolution, closed_at, closed_by, how)
    VALUES ('open', 1, 'ada', 'permission', 'ses', 'May I do open?', '{"patterns": ["ls *"], "big": 12345678901234567890123}', '[]', 1, NULL, NULL, NULL, NULL, NULL),
           ('gone', 1, 'ada', 'question', 'ses', 'Which?', '{}', '[{"text":"Which?","options":["a"],"multiple":false}]', 1, 5, 'replied', 3, 'ada', 'a');
"#;

#[tokio::test]
async fn a_file_of_the_second_schema_keeps_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..2]).unwrap();
    db.execute_batch(SECOND_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    let unfinished = store.unfinished().await.unwrap();
    let [works, waits] = unfinished.as_slice() else { panic!("{unfinished:?}") };
    assert_eq!((&works.turn, works.task.status.state), (&Some(turn("ses", "msg")), TaskState::InputRequired));
    assert_eq!((&works.task.options, &works.task.parent), (&Box::default(), &None));
    // Remove the parts of an ask that only later programs store.
    let mut open = interrupt("works", "open");
    (open.ask.call, open.ask.permission, open.ask.options) = (None, None, AskOptions::default());
    assert_eq!(works.open_asks, [open]);
    assert_eq!((waits.task.id.as_str(), &waits.turn), ("waits", &None));
    let gone = store.interrupt(&ada(), &request_id("gone")).await.unwrap().unwrap();
    assert_eq!((gone.ask.kind, gone.closed.unwrap().resolution), (AskKind::Question, Resolution::Replied));
    check_place(&store).await;

    // The directory of the other context is unknown until its next task sets it.
    let place = async || store.context_location(&ada(), &context_id("d")).await.unwrap();
    assert_eq!(place().await, ContextLocation::default());
    let there = Create { directory: "/a".to_owned(), directory_named: true, ..create_in("next", "d", 1) };
    assert_eq!(store.create(there).await.unwrap(), Created::New);
    assert_eq!(place().await.directory.as_deref(), Some("/a"));

    // The store works with the new features.
    let closed = Closed { resolution: Resolution::Replied, at: Timestamp(9), by: None, how: None };
    let outcome = store.append(asking("works", 2, vec![closes("open", closed)])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(3)));
    assert_eq!(store.create(child("below", "works", "works")).await.unwrap(), Created::New);
    assert_eq!(store.children(&task_id("works")).await.unwrap().len(), 1);
    store.put_file(file("works", "f", b"content")).await.unwrap();
    let roots = store.list(ListQuery { roots_only: true, ..everything() }).await.unwrap();
    let names: Vec<_> = roots.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!((names, roots.total), (vec!["works", "waits", "next"], 3));
}

/// Rows of a program that knew three migrations: a task with a sub-agent, options of its caller and a joined message, and two
/// files, of which one was never completed.
const THIRD_SCHEMA_ROWS: &str = r#"
    INSERT INTO sessions (id, owner, directory, at) VALUES ('ses', 'ada', '/projects/ses', 1);
    INSERT INTO bindings (owner, context, session, directory, named, at) VALUES ('ada', 'c', 'ses', '/projects/ses', 1, 1);
    INSERT INTO contexts (owner, context, directory, at) VALUES ('ada', 'c', '/projects/ses', 1);
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, head, first, session, directory, prompt, root, output, joined)
    VALUES (1, 'works', 'ada', 'c', 'working', 2, 2, 2, 1, 'ses', '/projects/ses', 'msg', NULL, '["text/plain"]', '["more"]'),
           (2, 'below', 'ada', 'c', 'submitted', 2, 1, 1, 1, NULL, NULL, NULL, 'works', NULL, NULL);
    INSERT INTO events (task, seq, at, kind, body) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}'),
        (1, 2, 2, 'status', '{"status":{"status":{"state":"working","at":2}}}'),
        (2, 1, 2, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"n","role":"user","parts":[{"content":{"text":"look"}}]},"at":2,"parent":{"root":"works","task":"works","depth":1,"session":"sub"}}}');
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 1, '{"id":"works","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]'),
        (2, 1, '{"id":"below","context_id":"c","status":{"state":"submitted","at":2},"artifacts":[],"history":[],"parent":{"root":"works","task":"works","depth":1,"session":"sub"}}', '[]');
    INSERT INTO files (ordinal, id, task, owner, name, media_type, size, sha256, at, complete) VALUES
        (1, 'kept', 1, 'ada', 'a.txt', 'text/plain', 5, zeroblob(32), 2, 1), (2, 'half', 1, 'ada', NULL, 'text/plain', 9, zeroblob(32), 2, 0);
    INSERT INTO file_chunks (file, place, bytes) VALUES (1, 0, CAST('hello' AS BLOB)), (2, 0, CAST('half' AS BLOB));
"#;

#[tokio::test]
async fn a_file_of_the_third_schema_keeps_its_content() {
    check_file_after_the_third(3).await;
}

/// The fourth schema has one more table, which is always empty.
#[tokio::test]
async fn a_file_of_the_fourth_schema_keeps_its_content() {
    check_file_after_the_third(4).await;
}

async fn check_file_after_the_third(known: usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..known]).unwrap();
    db.execute_batch(THIRD_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    let unfinished = store.unfinished().await.unwrap();
    let [works, below] = unfinished.as_slice() else { panic!("{unfinished:?}") };
    let joined = works.turn.as_ref().map(|turn| turn.joined.iter().map(PromptId::as_str).collect());
    assert_eq!(
        (works.seq, works.task.status.state, joined),
        (Seq(2), TaskState::Working, Some(vec!["more"]))
    );
    let parent = below.task.parent.as_ref().map(|parent| parent.root.as_str());
    assert_eq!((below.task.id.as_str(), parent), ("below", Some("works")));
    assert_eq!(store.children(&task_id("works")).await.unwrap(), std::slice::from_ref(below));
    let head = store.head(&ada(), &task_id("works")).await.unwrap().unwrap();
    assert!(!head.output.is_unrestricted());
    let bytes = async |id: &str| store.read_file(&ada(), &file("works", id, b"").id, 0, 9).await.unwrap();
    assert_eq!((bytes("kept").await.as_deref(), bytes("half").await), (Some(&b"hello"[..]), None));

    // The store works with the new features.
    store.check().await.unwrap();
    let outcome = store.append(asking("works", 2, vec![opens(&interrupt("works", "r"))])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(3)));
    let log = store.read(&ada(), &task_id("works"), Seq::START, 9).await.unwrap();
    let epochs: Vec<_> = log.iter().map(|entry| entry.epoch).collect();
    assert_eq!(epochs, [Epoch(0), Epoch(0), store.epoch()]);
}

#[test]
fn every_shipped_schema_has_a_test_of_its_content() {
    // A new migration makes the current schema an earlier one, which then needs rows and a test like those above.
    const TESTED: usize = 10;
    assert!(
        MIGRATIONS.len() - 1 <= TESTED,
        "what a file of schema {} holds is not tested",
        MIGRATIONS.len() - 1
    );
}

#[test]
fn every_earlier_schema_migrates_to_the_current_one() {
    let schema = |db: &Connection| -> Vec<(String, Option<String>)> {
        let mut statement = db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let mut fresh = Connection::open_in_memory().unwrap();
    migrate(&mut fresh, MIGRATIONS).unwrap();
    for known in 0..MIGRATIONS.len() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        migrate(&mut Connection::open(&path).unwrap(), &MIGRATIONS[..known]).unwrap();
        let db = open_writer(&path, Durability::Process).unwrap();
        assert_eq!(applied(&db).unwrap(), MIGRATIONS.len(), "{known}");
        assert_eq!(schema(&db), schema(&fresh), "{known}");
        let broken: i64 =
            db.query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0)).unwrap();
        assert_eq!(broken, 0);
    }
}
