use futures_util::FutureExt as _;
use longshore_model::{
    ContextId, Epoch, Message, MessageId, Role, StatusUpdate, TaskState, TaskStatus, Terms, Timestamp,
};

use super::*;

fn log() -> LiveLog {
    LiveLog::new(TaskId::parse("t").unwrap(), Seq::START)
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
    let log = log();
    log.publish(events(1, 1), false);
    for (head, count) in [(1, 1), (2, 500), (502, 3)] {
        log.publish(events(head + 1, count), false);
        let found = seqs(log.after(Seq(head)));
        assert_eq!(found, (head + 1..=head + count as u64).collect::<Vec<_>>());
    }
}

#[test]
fn the_tail_is_bounded_and_gives_all_that_it_has_at_once() {
    let log = log();
    let last = 1_000;
    for seq in 1..=last {
        log.publish(events(seq, 1), false);
    }
    let kept = last - u64::try_from(TAIL_BYTES / ENTRY_BYTES).unwrap();
    assert!(matches!(log.after(Seq(kept - 1)), Found::InStore));
    assert_eq!(seqs(log.after(Seq(kept))), (kept + 1..=last).collect::<Vec<_>>());
    assert!(matches!(log.after(Seq(last)), Found::Nothing));
    assert!(log.state().tail_bytes <= TAIL_BYTES);
}

#[test]
fn a_cursor_in_the_middle_of_an_append_gets_the_rest_of_it() {
    let log = log();
    log.publish(events(1, 3), false);
    log.publish(events(4, 1), false);
    assert_eq!(seqs(log.after(Seq(2))), [3, 4]);
}

#[test]
fn whoever_waits_hears_of_more_and_of_the_end() {
    let log = log();
    let mut grows = std::pin::pin!(log.grows_behind(Seq::START));
    assert!(grows.as_mut().now_or_never().is_none());
    log.publish(events(1, 1), false);
    assert!(grows.now_or_never().is_some());
    assert!(log.grows_behind(Seq::START).now_or_never().is_some(), "it had grown before");
    let mut grows = std::pin::pin!(log.grows_behind(Seq(1)));
    assert!(grows.as_mut().now_or_never().is_none());
    log.close();
    assert!(grows.now_or_never().is_some());
    assert!(matches!(log.after(Seq(1)), Found::Closed));
}

/// A reader that stopped reading keeps the log, and what is kept of the task with it.
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
            terms: Box::new(Terms::default()),
            parent: None,
        };
        let task = Task::begin(TaskId::parse("t").unwrap(), &first).unwrap();
        let log = log();
        log.publish_with(events(1, 1), false, Some((owner.clone(), Arc::new(task))));
        assert_eq!(log.snapshot(&owner).is_some(), is_kept, "{bytes}");
    }
}
