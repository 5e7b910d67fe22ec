//! A file of the eighth schema.

use longshore_engine::port::{PushConfigs as _, PushPut, PushQueue as _, Store};
use longshore_model::Timestamp;
use longshore_testkit::store_suite::make::{ada, append, interrupt, status, task_id};
use longshore_testkit::store_suite::push;

use super::super::super::{Damage, find_damage};
use super::seventh::SEVENTH_SCHEMA_ROWS;
use super::sixth::SIXTH_SCHEMA_ROWS;
use super::*;

/// Additional rows of the eighth schema: the ask has the options of its agent.
const EIGHTH_SCHEMA_ROWS: &str = r#"
    UPDATE interrupts SET options = '[{"id":"proceed_once","name":"Allow","kind":"allow_once"}]';
"#;

#[tokio::test]
async fn a_task_of_the_eighth_schema_gets_push_notifications() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..8]).unwrap();
    for rows in [SIXTH_SCHEMA_ROWS, SEVENTH_SCHEMA_ROWS, EIGHTH_SCHEMA_ROWS] {
        db.execute_batch(rows).unwrap();
    }
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    store.begin_check();
    let works = Store::get(&store, &ada(), &task_id("works")).await.unwrap().unwrap();
    assert_eq!(works.open_asks, [interrupt("works", "open")]);

    // The store works with the new features.
    assert_eq!(store.put(push::new("works", "c", 2)).await.unwrap(), PushPut::Stored);
    let outcome = store.append(append("works", 2, vec![status(TaskState::Completed, 9)])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(3)));
    let leased = store.due(Timestamp(9), 9, Timestamp(10)).await.unwrap();
    assert_eq!(leased.iter().map(|leased| leased.cursor).collect::<Vec<_>>(), [Seq(2)]);
    drop(store);
    assert_eq!(find_damage(&path).unwrap(), Damage::default());
}
