//! A file of the ninth schema.

use longshore_engine::port::Store;
use longshore_model::Action;
use longshore_testkit::store_suite::make::{ada, context_id, request_id, session_id};

use super::*;

/// An approval of a program that did not store the approved action.
const NINTH_SCHEMA_ROWS: &str = r#"
    INSERT INTO approvals (owner, request, session, context, permission, patterns, at)
    VALUES ('ada', 'old', 'ses', 'c', 'bash', '["ls *"]', 3);
"#;

#[tokio::test]
async fn an_approval_of_the_ninth_schema_is_read_without_an_action() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..9]).unwrap();
    db.execute_batch(NINTH_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    let [old] = &store.approvals(&ada(), None).await.unwrap()[..] else { panic!("one approval") };
    assert_eq!(
        (&old.request_id, &old.session, &old.context),
        (&request_id("old"), &session_id("ses"), &context_id("c"))
    );
    assert_eq!((old.patterns.as_slice(), &old.action), (&["ls *".to_owned()][..], &Action::default()));
}
