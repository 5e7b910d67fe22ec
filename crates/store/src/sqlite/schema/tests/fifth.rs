//! A file of the fifth schema.

use longshore_engine::port::{Create, Created, OwnedSession, RunningTurn, Store};
use longshore_model::{Seq, SessionId, TaskState, Timestamp};
use longshore_testkit::store_suite::make::{
    ada, append, chunk, context_id, create_in, owner, prompt_id, session, session_id, status, task_id, turn,
};

use super::*;

/// Rows of a program that knew five migrations: three sessions of two owners, one of which was bound long ago and prompted since,
/// and a task whose list of joined messages is damaged.
const FIFTH_SCHEMA_ROWS: &str = r#"
    UPDATE epochs SET last = 7;
    INSERT INTO sessions (id, owner, directory, at) VALUES
        ('ses', 'ada', '/projects/ses', 1), ('bound', 'ada', '/projects/bound', 5), ('bobs', 'bob', '/projects/bobs', 9);
    INSERT INTO bindings (owner, context, session, directory, named, at) VALUES
        ('ada', 'c', 'ses', '/projects/ses', 0, 1), ('ada', 'd', 'bound', '/projects/bound', 1, 20),
        ('ada', 'e', 'bound', '/projects/bound', 1, 15), ('bob', 'c', 'bobs', '/projects/bobs', 0, 9);
    INSERT INTO contexts (owner, context, directory, at) VALUES ('ada', 'c', '/projects/ses', 1);
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, head, first, session, directory, prompt, joined, epoch)
    VALUES (1, 'works', 'ada', 'c', 'working', 30, 2, 3, 1, 'ses', '/projects/ses', 'msg', '["more"]', 7),
           (2, 'bad', 'ada', 'c', 'canceled', 2, 1, 1, 1, 'ses', '/projects/ses', 'bad', '["', 7),
           (3, 'waits', 'bob', 'c', 'submitted', 40, 1, 1, 1, NULL, NULL, NULL, NULL, 7);
    INSERT INTO events (task, seq, at, kind, body, epoch) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}', 6),
        (1, 2, 30, 'status', '{"status":{"status":{"state":"working","at":30}}}', 7),
        (1, 3, 30, 'artifact', '{"artifact":{"artifact":{"id":"a","kind":"text","name":"text","parts":[{"content":{"text":"x"}}]},"append":true,"last_chunk":false}}', 7);
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 1, '{"id":"works","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]');
"#;

#[tokio::test]
async fn a_file_of_the_fifth_schema_keeps_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..5]).unwrap();
    db.execute_batch(FIFTH_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    // Reads the head of the log and its epoch.
    let head = async || store.head(&ada(), &task_id("works")).await.unwrap().unwrap();
    let before = head().await;
    assert_eq!((before.seq, before.epoch, before.state), (Seq(3), Epoch(7), TaskState::Working));
    let works = store.get(&ada(), &task_id("works")).await.unwrap().unwrap();
    assert_eq!((works.seq, works.epoch, works.task.artifacts.len()), (Seq(3), Epoch(7), 1));

    // Sessions are ordered by the time of the last use, not of the first binding.
    let recent = async |since: i64| -> Vec<SessionId> {
        let sessions = store.recent_sessions(Timestamp(since), 9).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect()
    };
    assert_eq!(recent(0).await, ["ses", "bound", "bobs"].map(session_id));
    assert_eq!(recent(20).await, ["ses", "bound"].map(session_id));
    let turn_of = async |prompt: &str| store.turn_of(&session_id("ses"), &prompt_id(prompt)).await.unwrap();
    assert_eq!(turn_of("msg").await, Some(task_id("works")));
    assert_eq!(turn_of("more").await, Some(task_id("works")));
    assert_eq!(turn_of("bad").await, Some(task_id("bad")), "only what joined it is damaged");
    assert_eq!(turn_of("none").await, None);
    let contexts = store.contexts_of(&ada(), &session_id("bound")).await.unwrap();
    assert_eq!(contexts, ["d", "e"].map(context_id));
    let owned = store.owner_of(None, &session_id("bobs")).await.unwrap();
    assert_eq!(owned, Some(OwnedSession { owner: owner("bob"), session: session("bobs") }));

    // The store works with the new features.
    let outcome = store.append(append("works", 3, vec![chunk("y")])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(4)));
    assert_eq!((head().await.seq, head().await.epoch), (Seq(4), store.epoch()));
    let begun = RunningTurn { working: status(TaskState::Working, 50), turn: turn("bound", "typed") };
    let adopted = Create { begun: Some(begun), ..create_in("adopted", "d", 50) };
    assert_eq!(store.create(adopted).await.unwrap(), Created::New);
    assert_eq!(recent(50).await, [session_id("bound")]);
}
