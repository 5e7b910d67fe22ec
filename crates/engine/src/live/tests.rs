use futures_util::FutureExt as _;
use longshore_model::{
    ContextId, Epoch, Message, MessageId, Part, Role, StatusUpdate, TaskOptions, TaskState, TaskStatus,
    Timestamp,
};

use super::*;

fn log() -> Arc<LiveLog> {
    Arc::new(LiveLog::new(TaskId::parse("t").unwrap(), Seq::START))
}

/// A log and a reader from its start.
fn followed() -> (Arc<LiveLog>, Follower) {
    let log = log();
    let reader = Arc::clone(&log).follow(Seq::START);
    (log, reader)
}

fn event() -> TaskEvent {
    let status = TaskStatus { state: TaskState::Working, at: Timestamp(1), message: None };
    TaskEvent::Status(Box::new(StatusUpdate::new(status)))
}

fn events(first: u64, count: usize) -> Events {
    Events::number(Seq(first), Epoch(1), vec![event(); count])
}

fn seqs(found: Found) -> Vec<u64> {
    match found {
        Found::Entries(entries) => entries.map(|logged| logged.entry.seq.0).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_at_the_head_finds_the_whole_of_the_next_append_however_large() {
    let (log, reader) = followed();
    log.publish(events(1, 1), false);
    for (head, count) in [(1, 1), (2, 500), (502, 3)] {
        log.publish(events(head + 1, count), false);
        let found = seqs(reader.after(Seq(head)));
        assert_eq!(found, (head + 1..=head + count as u64).collect::<Vec<_>>());
    }
}

#[test]
fn the_tail_is_bounded_and_gives_all_that_it_has_at_once() {
    let (log, reader) = followed();
    let last = 1_000;
    for seq in 1..=last {
        log.publish(events(seq, 1), false);
    }
    let kept = last - u64::try_from(TAIL_BYTES / ENTRY_BYTES).unwrap();
    assert!(matches!(reader.after(Seq(kept - 1)), Found::InStore));
    assert_eq!(seqs(reader.after(Seq(kept))), (kept + 1..=last).collect::<Vec<_>>());
    assert!(matches!(reader.after(Seq(last)), Found::Nothing));
    assert!(log.state().tail_bytes <= TAIL_BYTES);
}

#[test]
fn a_cursor_in_the_middle_of_an_append_gets_the_rest_of_it() {
    let (log, reader) = followed();
    log.publish(events(1, 3), false);
    log.publish(events(4, 1), false);
    assert_eq!(seqs(reader.after(Seq(2))), [3, 4]);
}

#[test]
fn events_that_a_sole_reader_has_taken_are_dropped_at_once_and_a_later_reader_reads_the_store() {
    let (log, reader) = followed();
    log.publish(events(1, 3), false);
    assert_eq!(seqs(reader.after(Seq::START)), [1, 2, 3]);
    assert_eq!(log.state().tail.len(), 1, "the reader has not confirmed them yet");
    assert!(matches!(reader.after(Seq(3)), Found::Nothing));
    let held = |log: &LiveLog| {
        let state = log.state();
        (state.tail.len(), state.tail_bytes)
    };
    assert_eq!(held(&log), (0, 0));
    let late = Arc::clone(&log).follow(Seq(1));
    assert!(matches!(late.after(Seq(1)), Found::InStore));
    log.publish(events(4, 1), false);
    for reader in [reader, late] {
        assert_eq!(seqs(reader.after(Seq(3))), [4]);
    }
}

#[test]
fn events_that_every_reader_has_taken_are_dropped_and_the_newest_append_stays() {
    let (log, first) = followed();
    let held = || log.state().tail.len();
    let second = Arc::clone(&log).follow(Seq::START);
    for seq in 1..=5 {
        log.publish(events(seq, 1), false);
        assert_eq!(seqs(first.after(Seq(seq - 1))), [seq]);
    }
    assert_eq!(held(), 5, "the second reader has taken none");
    assert_eq!(seqs(second.after(Seq::START)), [1, 2, 3, 4, 5]);
    for reader in [&first, &second] {
        assert!(matches!(reader.after(Seq(5)), Found::Nothing));
    }
    log.publish(events(6, 1), false);
    assert_eq!(held(), 1);
    assert_eq!(seqs(second.after(Seq(5))), [6]);
    // A dropped reader keeps no events, and the next reader gets its slot.
    drop(first);
    log.publish(events(7, 1), false);
    assert_eq!(held(), 2);
    assert!(matches!(second.after(Seq(7)), Found::Nothing));
    log.publish(events(8, 1), false);
    assert_eq!((held(), Arc::clone(&log).follow(Seq(7)).slot), (1, 0));
    drop(second);
    log.publish(events(9, 1), false);
    log.publish(events(10, 1), false);
    assert_eq!((held(), seqs(Arc::clone(&log).follow(Seq(9)).after(Seq(9)))), (1, vec![10]));
}

#[test]
fn waiting_readers_learn_of_more_events_and_of_the_end() {
    let log = log();
    let mut grows = std::pin::pin!(log.grows_beyond(Seq::START));
    assert!(grows.as_mut().now_or_never().is_none());
    log.publish(events(1, 1), false);
    assert!(grows.now_or_never().is_some());
    assert!(log.grows_beyond(Seq::START).now_or_never().is_some(), "it had grown before");
    let mut grows = std::pin::pin!(log.grows_beyond(Seq(1)));
    assert!(grows.as_mut().now_or_never().is_none());
    log.close();
    assert!(grows.now_or_never().is_some());
    assert!(matches!(Arc::clone(&log).follow(Seq(1)).after(Seq(1)), Found::Closed));
}

/// A reader that has stopped reading keeps the whole log in memory, with the kept task.
#[test]
fn a_copy_of_a_large_task_is_not_kept() {
    let owner = Principal::new("alice");
    for (bytes, is_kept) in [(10_000, true), (20_000, false)] {
        let parts = vec![Part::text("x".repeat(bytes))];
        let message = Message::new(MessageId::parse("m").unwrap(), Role::User, parts);
        let first = TaskEvent::Submitted {
            context_id: ContextId::parse("c").unwrap(),
            message,
            at: Timestamp(1),
            options: Box::new(TaskOptions::default()),
            parent: None,
        };
        let task = Task::begin(TaskId::parse("t").unwrap(), &first).unwrap();
        let log = log();
        log.publish_with(events(1, 1), false, Some((owner.clone(), Arc::new(task))));
        assert_eq!(log.snapshot(&owner).is_some(), is_kept, "{bytes}");
    }
}
