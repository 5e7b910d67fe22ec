use std::path::Path;

use futures_util::FutureExt as _;
use longshore_engine::port::{Append, CallStore as _, Retention, Store as _};
use longshore_model::{TaskState, Timestamp};
use longshore_testkit::store_suite::calls::call;
use longshore_testkit::store_suite::make::{
    ada, append, chunk, create, create_in, file, owner, status, task_id,
};

use super::*;
use crate::{Durability, SqliteStore};

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(&directory.join("store.db"), Durability::Process).unwrap()
}

const DROP_ALL: Retention = Retention {
    now: Timestamp(i64::MIN),
    fold_before: None,
    drop_before: Some(Timestamp(9)),
    keys_before: Timestamp(i64::MIN),
};

/// Waits until the store has counted the content of its file.
async fn counted(store: &SqliteStore) -> StoredBytes {
    store.begin_check();
    loop {
        let bytes = store.stored_bytes(&ada());
        if bytes.of_owner > 0 {
            return bytes;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bytes_are_counted_with_each_write_and_again_after_a_start_and_freed_by_retention() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.create(create("t")).await.unwrap();
    store
        .create(longshore_engine::port::Create { owner: owner("bob"), ..create_in("b", "c", 1) })
        .await
        .unwrap();
    let before = store.stored_bytes(&ada());
    assert!(before.of_owner > 0 && before.in_all > before.of_owner, "{before:?}");
    let text = "x".repeat(50_000);
    store.append(append("t", 1, vec![status(TaskState::Working, 2), chunk(&text)])).await.unwrap();
    store.put_file(file("t", "f", &vec![7; 20_000])).await.unwrap();
    let record = |bytes| format!("\"{}\"", "x".repeat(bytes));
    // The second record replaces the first.
    for bytes in [40_000, 10_000] {
        assert!(store.put_call(call("t", "c", true, &record(bytes))).await.unwrap());
    }
    store.append(append("t", 3, vec![status(TaskState::Completed, 3)])).await.unwrap();
    let bytes = store.stored_bytes(&ada());
    assert!((80_000..85_000).contains(&(bytes.of_owner - before.of_owner)), "{bytes:?}");
    assert_eq!(bytes.in_all - bytes.of_owner, before.in_all - before.of_owner, "bob has as much as before");
    drop(store);

    // The log and the files of a task count once each, and no task is lost between pages.
    let store = open(directory.path());
    let again = counted(&store).await;
    assert!((80_000..85_000).contains(&again.of_owner), "{again:?}");
    while store.retain(DROP_ALL).await.unwrap().more {}
    let left = store.stored_bytes(&ada());
    assert!(left.of_owner < 2_000, "{left:?}");
    assert_eq!(left.in_all - left.of_owner, again.in_all - again.of_owner);
}

#[tokio::test]
async fn a_task_leaves_no_counted_bytes_behind_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for number in 0..3 {
        let id = format!("t{number}");
        store.create(create(&id)).await.unwrap();
        store.append(append(&id, 1, vec![status(TaskState::Working, 2), chunk("text")])).await.unwrap();
        // The second write finds the file complete and adds nothing.
        for _ in 0..2 {
            store.put_file(file(&id, &format!("f{number}"), &vec![7; 30_000])).await.unwrap();
        }
        assert!(store.put_call(call(&id, &format!("c{number}"), false, "[1]")).await.unwrap());
        assert!(store.stored_bytes(&ada()).of_owner < 35_000);
        let task = store.get(&ada(), &task_id(&id)).await.unwrap().unwrap().task;
        let end = append(&id, 3, vec![status(TaskState::Completed, 3)]);
        store.append(Append { snapshot: Some(Arc::new(task)), ..end }).await.unwrap();
        while store.retain(DROP_ALL).await.unwrap().more {}
        assert_eq!(store.stored_bytes(&ada()), StoredBytes::default());
    }
}

#[tokio::test]
async fn the_record_of_a_call_is_counted_although_its_caller_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    store.create(create("t")).await.unwrap();
    let before = store.stored_bytes(&ada()).of_owner;
    {
        let _busy = store.writer.connection.lock().unwrap();
        let mut put = store.put_call(call("t", "c", true, "[1,2]"));
        assert!((&mut put).now_or_never().is_none(), "the writer is busy");
    }
    // The second record waits for the first, and is as long.
    assert!(store.put_call(call("t", "c", false, "[3,4]")).await.unwrap());
    assert_eq!(store.stored_bytes(&ada()).of_owner - before, 5);
}

#[test]
fn bytes_that_are_removed_while_the_file_is_counted_do_not_stay_counted() {
    let bytes = StoredBytesCount::default();
    // Removed before the count: the file no longer has these bytes.
    bytes.add(&ada(), -100);
    let before = bytes.lock().clone();
    let mut found = Counts::default();
    found.add(&ada(), 1000);
    bytes.add(&ada(), -300);
    bytes.set(found, &before);
    assert_eq!(bytes.get(&ada()), StoredBytes { of_owner: 700, in_all: 700 });
}

#[test]
fn the_bytes_are_counted_by_keys() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let db = Connection::open(directory.path().join("store.db")).unwrap();
    let plan = crate::sqlite::tests::query_plan(&db, BYTES_OF_TASKS);
    assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
}
