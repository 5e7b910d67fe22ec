use longshore_engine::port::Store as _;
use longshore_model::TaskState;
use longshore_testkit::store_suite::make::{append, child, chunk, create, status};
use tempfile::TempDir;

use super::super::{SqliteOptions, SqliteStore};
use super::*;

const FILE: &str = "store.db";

/// Reads the free space from a file beside the store, which the test writes.
fn free_space(directory: &Path) -> Option<u64> {
    fs::read_to_string(directory.join("free")).ok()?.parse().ok()
}

fn disk(free: u64) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    set_free(&directory, free);
    directory
}

fn set_free(directory: &TempDir, free: u64) {
    fs::write(directory.path().join("free"), free.to_string()).unwrap();
}

fn open(directory: &TempDir, floor: u64) -> SqliteStore {
    let disk = DiskRules { free_space: Some(free_space), floor };
    SqliteStore::open(&directory.path().join(FILE), SqliteOptions { disk, ..SqliteOptions::default() })
        .unwrap()
}

fn size(directory: &TempDir, suffix: &str) -> u64 {
    fs::metadata(directory.path().join(format!("{FILE}{suffix}"))).map_or(0, |file| file.len())
}

/// Makes the store measure the disk again now, instead of after [`FRESH`].
fn forget(store: &SqliteStore) {
    store.room.as_ref().unwrap().space_now().unwrap();
}

#[tokio::test]
async fn below_the_floor_new_tasks_are_refused_and_running_ones_continue() {
    let directory = disk(100 * MIB);
    let store = open(&directory, 10 * MIB);
    store.create(create("t")).await.unwrap();
    store.check().await.unwrap();
    set_free(&directory, 10 * MIB - 1);
    forget(&store);
    let refused = store.create(create("u")).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.retry_after()),
        (ErrorKind::Unavailable, Some(RETRY_AFTER)),
        "{refused}"
    );
    assert!(refused.message().contains("nearly full"), "{refused}");
    assert!(store.check().await.is_err());
    assert_eq!(store.metrics.refused.of(Limit::MinFreeDisk).get(), 1, "a check refuses nobody");
    store.append(append("t", 1, vec![status(TaskState::Working, 2), chunk("x")])).await.unwrap();
    store.create(child("below", "t", "t")).await.unwrap();
    set_free(&directory, 10 * MIB);
    forget(&store);
    store.create(create("u")).await.unwrap();
}

#[tokio::test]
async fn the_log_takes_only_a_share_of_a_small_disk() {
    let directory = disk(4 * MIB);
    let store = open(&directory, 0);
    store.create(create("t")).await.unwrap();
    store.append(append("t", 1, vec![status(TaskState::Working, 2)])).await.unwrap();
    let mut longest = 0;
    for number in 0..3000 {
        store.append(append("t", 2 + number, vec![chunk("x")])).await.unwrap();
        longest = longest.max(size(&directory, "-wal"));
    }
    // Without the bound, the log would have more than 3,000 pages: the test's disk always reports the same free space.
    assert!(longest < 5 * MIB, "{longest}");
}

#[tokio::test]
async fn a_full_disk_takes_the_reserve_and_the_log_is_copied() {
    let directory = disk(8 * MIB);
    let store = open(&directory, 0);
    assert_eq!(size(&directory, "-reserve"), MIB);
    store.create(create("t")).await.unwrap();
    store.append(append("t", 1, vec![status(TaskState::Working, 2)])).await.unwrap();
    drop(store);
    // A start with little space deletes the reserve, and one with more space makes it again.
    set_free(&directory, 1000);
    drop(open(&directory, 0));
    assert_eq!(size(&directory, "-reserve"), 0);
    set_free(&directory, 80 * MIB);
    let store = open(&directory, 0);
    assert_eq!(size(&directory, "-reserve"), 10 * MIB);
    drop(store);
}

#[tokio::test]
async fn a_group_that_does_not_fit_is_refused_whole() {
    let directory = disk(MIB);
    let store = open(&directory, 0);
    store.create(create("t")).await.unwrap();
    store.append(append("t", 1, vec![status(TaskState::Working, 2)])).await.unwrap();
    let large = chunk(&"x".repeat(900 * 1024));
    let refused = store.append(append("t", 2, vec![large])).await.unwrap_err();
    assert!(refused.message().contains("full"), "{refused}");
    store.append(append("t", 2, vec![chunk("small")])).await.unwrap();
}
