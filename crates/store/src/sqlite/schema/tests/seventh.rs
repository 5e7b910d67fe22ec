//! A file of the seventh schema.

use longshore_engine::port::Store;
use longshore_model::AskOptions;
use longshore_testkit::store_suite::make::{ada, asking, interrupt, opens, request_id, task_id};

use super::super::super::{Damage, find_damage};
use super::sixth::SIXTH_SCHEMA_ROWS;
use super::*;

/// Additional rows of the seventh schema: no event of epoch 7 needs a checksum, and the ask has its call and its permission.
pub(super) const SEVENTH_SCHEMA_ROWS: &str = r#"
    UPDATE epochs SET unsummed = 7;
    UPDATE interrupts SET call = 'call_1', permission = '{"permission":"bash","patterns":["ls -l"],"always":["ls *"]}';
"#;

#[tokio::test]
async fn an_ask_of_the_seventh_schema_takes_the_three_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut db = Connection::open(&path).unwrap();
    migrate(&mut db, &MIGRATIONS[..7]).unwrap();
    db.execute_batch(SIXTH_SCHEMA_ROWS).unwrap();
    db.execute_batch(SEVENTH_SCHEMA_ROWS).unwrap();
    drop(db);

    let store = SqliteStore::open(&path, Durability::Process).unwrap();
    store.begin_check();
    let works = store.get(&ada(), &task_id("works")).await.unwrap().unwrap();
    let mut open = interrupt("works", "open");
    open.ask.options = AskOptions::default();
    assert!(open.ask.options.are_words());
    assert_eq!(works.open_asks, [open]);

    // The store works with the new features.
    let next = interrupt("works", "next");
    assert!(!next.ask.options.are_words());
    let outcome = store.append(asking("works", 2, vec![opens(&next)])).await.unwrap();
    assert_eq!(outcome, Appended::Head(Seq(3)));
    assert_eq!(store.interrupt(&ada(), &request_id("next")).await.unwrap(), Some(next));
    drop(store);
    assert_eq!(find_damage(&path).unwrap(), Damage::default());
}
