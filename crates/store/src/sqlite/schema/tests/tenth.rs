//! A file of the tenth schema.

use longshore_engine::port::{CallStore as _, PushConfigs as _};
use longshore_model::PushConfigId;
use longshore_testkit::store_suite::calls::call;
use longshore_testkit::store_suite::make::{ada, task_id};

use super::super::super::{Damage, find_damage};
use super::seventh::SEVENTH_SCHEMA_ROWS;
use super::sixth::SIXTH_SCHEMA_ROWS;
use super::*;

/// Additional rows of the ninth schema: the task has push notifications.
const NINTH_SCHEMA_ROWS: &str = r"
    INSERT INTO push_configs (task, id, owner, format, events, view, sealed, created, cursor, active)
    VALUES ((SELECT ordinal FROM tasks WHERE id = 'works'), 'c', 'ada', 'v1', '', '{}', x'00', 5, 2, 1);
";

#[tokio::test]
async fn a_task_of_the_tenth_schema_keeps_its_push_notifications_and_gets_calls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..10]).unwrap();
    for rows in [SIXTH_SCHEMA_ROWS, SEVENTH_SCHEMA_ROWS, NINTH_SCHEMA_ROWS] {
        db.execute_batch(rows).unwrap();
    }
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    let configs = store.ids(&ada(), &task_id("works")).await.unwrap();
    assert_eq!(configs.iter().map(PushConfigId::as_str).collect::<Vec<_>>(), ["c"]);
    assert!(store.put_call(call("works", "a", true, "{}")).await.unwrap());
    assert_eq!(store.calls_of(&task_id("works")).await.unwrap().len(), 1);
    drop(store);
    assert_eq!(find_damage(&path).unwrap(), Damage::default());
}
