//! A file of the sixth schema.

use longshore_engine::port::Store;
use longshore_model::{Action, Approval, AskOptions, Seq, TaskState, Timestamp};
use longshore_testkit::store_suite::make::{
    ada, asking, context_id, interrupt, opens, request_id, session_id, task_id,
};

use super::super::super::{Damage, find_damage};
use super::*;

/// Rows of a program that knew six migrations: a task that waits for the answer to an ask. No row has a checksum.
pub(super) const SIXTH_SCHEMA_ROWS: &str = r#"
    UPDATE epochs SET last = 7;
    INSERT INTO sessions (id, owner, directory, at) VALUES ('ses', 'ada', '/projects/ses', 1);
    INSERT INTO bindings (owner, context, session, directory, named, at) VALUES ('ada', 'c', 'ses', '/projects/ses', 0, 1);
    INSERT INTO contexts (owner, context, directory, at) VALUES ('ada', 'c', '/projects/ses', 1);
    INSERT INTO tasks (ordinal, id, owner, context, state, status_at, summary_seq, first, session, directory, prompt)
    VALUES (1, 'works', 'ada', 'c', 'input_required', 2, 2, 1, 'ses', '/projects/ses', 'msg');
    INSERT INTO events (task, seq, at, kind, body, epoch) VALUES
        (1, 1, 1, 'submitted', '{"submitted":{"context_id":"c","message":{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]},"at":1}}', 7),
        (1, 2, 2, 'status', '{"status":{"status":{"state":"input_required","at":2}}}', 7);
    INSERT INTO snapshots (task, seq, summary, artifacts) VALUES
        (1, 1, '{"id":"works","context_id":"c","status":{"state":"submitted","at":1},"artifacts":[],"history":[{"id":"m","role":"user","parts":[{"content":{"text":"hi"}}]}]}', '[]');
    INSERT INTO interrupts (request, task, owner, kind, session, summary, details, questions, asked_at)
    VALUES ('open', 1, 'ada', 'permission', 'ses', 'May I do open?', '{"patterns": ["ls *"], "big": 12345678901234567890123}', '[]', 1);
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
    assert_eq!((works.seq, works.task.status.state), (Seq(2), TaskState::InputRequired));
    let mut open = interrupt("works", "open");
    (open.ask.call, open.ask.permission, open.ask.options) = (None, None, AskOptions::default());
    assert_eq!(works.open_asks, [open]);

    // The store works with the new features.
    let next = interrupt("works", "next");
    let outcome = store.append(asking("works", 2, vec![opens(&next)])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(3)));
    assert_eq!(store.interrupt(&ada(), &request_id("next")).await.unwrap(), Some(next));
    let approval = Approval {
        request_id: request_id("open"),
        owner: ada(),
        session: session_id("ses"),
        context: context_id("c"),
        permission: "bash".to_owned(),
        patterns: vec!["ls *".to_owned()],
        action: Action::default(),
        at: Timestamp(3),
    };
    store.keep_approval(approval.clone()).await.unwrap();
    assert_eq!(store.approvals(&ada(), None).await.unwrap(), [approval]);
    assert_eq!(store.read(&ada(), &task_id("works"), Seq::START, 9).await.unwrap().len(), 3);
    drop(store);
    assert_eq!(find_damage(&path).unwrap(), Damage::default());
}
