use longshore_engine::port::Store as _;
use longshore_testkit::store_suite::make::{ada, append, chunk, create, task_id};

use super::*;
use crate::SqliteStore;
use crate::sqlite::schema;

fn file(directory: &tempfile::TempDir) -> std::path::PathBuf {
    directory.path().join("store.db")
}

fn synchronous(db: &Connection) -> i64 {
    db.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
}

fn last(db: &Connection) -> i64 {
    db.query_row("SELECT last FROM epochs", [], |row| row.get(0)).unwrap()
}

#[test]
fn the_epoch_grows_with_each_writing_opening_whatever_the_clock() {
    let directory = tempfile::tempdir().unwrap();
    let db = schema::open_writer(&file(&directory), Durability::Process).unwrap();
    let mut expected = 0;
    for (now, is_persisted, epoch) in [(0, true, 1), (7, true, 7), (7, false, 8), (7, true, 8), (3, true, 9)]
    {
        let mut claim = EpochClaim::with_minimum(&db, Durability::Process, now).unwrap();
        assert_eq!(claim.epoch, Epoch(epoch), "at {now}");
        if is_persisted {
            claim.persist(&db).unwrap();
            expected = i64::from(epoch);
        }
        assert_eq!(last(&db), expected, "at {now}");
    }
    db.execute("UPDATE epochs SET last = ?", [u32::MAX]).unwrap();
    assert!(EpochClaim::with_minimum(&db, Durability::Process, 7).is_err());
}

#[test]
fn persisting_the_epoch_restores_the_durability_setting() {
    let directory = tempfile::tempdir().unwrap();
    for (durability, expected) in [(Durability::Process, 1), (Durability::Power, 2)] {
        let db = schema::open_writer(&file(&directory), durability).unwrap();
        EpochClaim::new(&db, durability).unwrap().persist(&db).unwrap();
        assert_eq!(synchronous(&db), expected);
    }
}

#[tokio::test]
async fn an_opening_that_only_reads_uses_no_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let store = SqliteStore::open(&file(&directory), Durability::Process).unwrap();
        store.create(create("t")).await.unwrap();
        epochs.push(store.epoch());
    }
    let kept = {
        let store = SqliteStore::open(&file(&directory), Durability::Process).unwrap();
        store.get(&ada(), &task_id("t")).await.unwrap();
        last(&schema::open_reader(&file(&directory)).unwrap())
    };
    assert!(epochs[0] < epochs[1], "{epochs:?}");
    assert_eq!(kept, i64::from(epochs[1].0));
}

#[tokio::test]
async fn each_event_keeps_its_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for head in 0..3 {
        let store = SqliteStore::open(&file(&directory), Durability::Process).unwrap();
        expected.push(store.epoch());
        match head {
            0 => drop(store.create(create("t")).await.unwrap()),
            head => drop(store.append(append("t", head, vec![chunk("x")])).await.unwrap()),
        }
        let log = store.read(&ada(), &task_id("t"), longshore_model::Seq::START, 9).await.unwrap();
        assert_eq!(log.iter().map(|entry| entry.epoch).collect::<Vec<_>>(), expected);
        assert_eq!(store.head(&ada(), &task_id("t")).await.unwrap().unwrap().epoch, store.epoch());
        assert_eq!(store.get(&ada(), &task_id("t")).await.unwrap().unwrap().epoch, store.epoch());
    }
    assert!(expected.is_sorted_by(|a, b| a < b), "{expected:?}");
}
