//! A loss of power during a turn, with a store that does not wait for the disk: the last events are lost, and their numbers
//! are used again.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use longshore_engine::port::Store;
use longshore_engine::{EngineConfig, GapBounds, SubscriptionStart};
use longshore_model::{Entry, EventId, Seq, TaskId, TaskState};
use longshore_store::Durability;

use crate::harness::{Harness, alice, read_all, start_with};

/// SQLite's write-ahead log: a header, and then frames of a header and a page each.
const WAL_HEADER: usize = 32;
const WAL_FRAME: usize = 24 + 4096;

/// The number of events before the loss of power, and after it.
const EVENTS: usize = 8;

fn open(directory: &Path) -> Arc<dyn Store> {
    Arc::new(longshore_store::sqlite(&directory.join("store.db"), Durability::Process).expect("it goes well"))
}

fn wal(directory: &Path) -> Vec<u8> {
    fs::read(directory.join("store.db-wal")).expect("it goes well")
}

/// Opens a reader again: its entries, or its gap.
async fn reopen(h: &Harness, task: &TaskId, cursor: EventId) -> Result<Vec<Entry>, GapBounds> {
    let subscription = h.engine.subscribe(&alice(), task, Some(cursor)).await.expect("it goes well");
    match subscription.opening {
        SubscriptionStart::Tail => Ok(read_all(subscription.reader).await),
        SubscriptionStart::Gap(snapshot, bounds) => {
            assert_eq!(snapshot.id(), bounds.head);
            Err(bounds)
        }
        SubscriptionStart::Snapshot(snapshot) => panic!("{snapshot:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_loss_an_old_cursor_gets_a_gap_and_a_new_one_continues() {
    let directory = tempfile::tempdir().unwrap();
    let mut h = start_with(open(directory.path()), EngineConfig::default());
    // From here on the epoch is on the disk. Everything after it may be lost.
    h.engine.check_store().await.unwrap();
    let held = wal(directory.path()).len();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let (mut reader, mut seen) = (sent.reader, Vec::new());
    for number in 0..EVENTS {
        turn.say(&format!("b{number}"), "before").await;
        while reader.cursor() < Seq(number as u64 + 3) {
            seen.extend(reader.next().await.unwrap().unwrap().iter().map(|entry| entry.entry.clone()));
        }
    }
    let (database, whole) = (fs::read(directory.path().join("store.db")).unwrap(), wal(directory.path()));
    assert_eq!((held - WAL_HEADER) % WAL_FRAME, 0);

    let mut lost = 0;
    for cut in (held..=whole.len()).step_by(3 * WAL_FRAME) {
        let left = tempfile::tempdir().unwrap();
        fs::write(left.path().join("store.db"), &database).unwrap();
        fs::write(left.path().join("store.db-wal"), &whole[..cut]).unwrap();
        lost += usize::from(check_readers(left.path(), &sent.task, &seen).await);
    }
    assert!(lost > 2, "the power was never lost in the middle of the log");
}

/// Returns whether some of the seen events are lost, but not all.
async fn check_readers(directory: &Path, task: &TaskId, seen: &[Entry]) -> bool {
    let mut h = start_with(open(directory), EngineConfig::default());
    assert!(h.store.epoch() > seen[0].epoch);
    let Some(head) = h.store.head(&alice(), task).await.expect("it goes well") else { return false };
    let is_lost = |entry: &Entry| entry.seq > head.seq;
    // Before anything new is written.
    for entry in seen.iter().filter(|entry| is_lost(entry)) {
        let bounds = reopen(&h, task, entry.id()).await.expect_err("there is a gap");
        assert_eq!((bounds.requested, bounds.head.seq), (entry.id(), head.seq));
    }

    h.engine.recover().await.expect("it goes well");
    let turn = h.turn().await;
    for number in 0..2 * EVENTS {
        turn.say(&format!("n{number}"), "after").await;
    }
    turn.complete().await;
    h.reaches(task, TaskState::Completed).await;
    let log = reopen(&h, task, Seq::START.into()).await.expect("it goes well");
    let rest = |entry: &Entry| &log[usize::try_from(entry.seq.0).expect("it goes well")..];
    for entry in seen {
        match reopen(&h, task, entry.id()).await {
            Ok(tail) => {
                assert!(!is_lost(entry), "{:?} is another event now", entry.id());
                assert_eq!(tail, rest(entry));
                assert_eq!(log[usize::try_from(entry.seq.0 - 1).expect("it goes well")], *entry);
            }
            Err(bounds) => {
                assert!(is_lost(entry), "{bounds:?}");
                assert_eq!(
                    (bounds.requested, bounds.head),
                    (entry.id(), log.last().expect("it goes well").id())
                );
            }
        }
    }
    for entry in &log {
        assert_eq!(reopen(&h, task, entry.id()).await.expect("it goes well"), rest(entry));
    }
    h.stop().await;
    seen.iter().any(is_lost)
}
