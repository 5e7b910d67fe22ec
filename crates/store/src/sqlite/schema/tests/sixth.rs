//! A file of the sixth schema.

use longshore_engine::port::Store;
use longshore_model::{Seq, TaskState};
use longshore_testkit::store_suite::make::{ada, append, chunk, task_id};

use super::super::super::{Damage, find_damage};
use super::*;

/// Rows of a program that knew six migrations: nothing has a checksum.
const SIXTH_SCHEMA_ROWS: &str = r#"
    UPDATE epochs SET last = 7;
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, first)
    VALUES (1, 'works', 'ada', 'c', 'working', 30, 2, 1);
    INSERT INTO events (task, seq, at, kind, body, epoch) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}', 6),
        (1, 2, 30, 'status', '{"status":{"status":{"state":"working","at":30}}}', 7);
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 1, '{"id":"works","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]');
"#;

#[tokio::test]
async fn a_file_of_the_sixth_schema_keeps_its_content_and_counts_as_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..6]).unwrap();
    db.execute_batch(SIXTH_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    store.begin_check();
    let works = store.get(&ada(), &task_id("works")).await.unwrap().unwrap();
    assert_eq!((works.seq, works.task.status.state), (Seq(2), TaskState::Working));
    assert_eq!(store.append(append("works", 2, vec![chunk("y")])).await.unwrap(), Appended::Head(Seq(3)));
    assert_eq!(store.read(&ada(), &task_id("works"), Seq::START, 9).await.unwrap().len(), 3);
    drop(store);
    assert_eq!(find_damage(&path).unwrap(), Damage::default());
}
