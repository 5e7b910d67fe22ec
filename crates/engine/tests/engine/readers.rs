//! Readers: no event before it is durable; none lost, doubled or reordered; from any cursor, at any speed.

use longshore_engine::{EngineConfig, GapBounds, SubscriptionStart};
use longshore_model::{
    AgentEvent, BlockKind, BlockRef, Entry, Epoch, ErrorKind, EventId, Principal, Progress, ProgressKind,
    Seq, SessionNote, Task, TaskState, ToolCall, ToolStatus,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::text_block;

use crate::harness::{Harness, alice, read_all, start, start_with};

/// Plays a turn of `deltas` deltas, each in a block of its own, so that none are merged.
async fn long_turn(h: &mut Harness, deltas: usize) -> longshore_model::TaskId {
    let sent = h.send("c", "long").await;
    let turn = h.turn().await;
    for number in 0..deltas {
        turn.say(&format!("b{number}"), "x").await;
    }
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    sent.task
}

#[tokio::test]
async fn no_event_is_seen_before_it_is_durable() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let mut sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    while sent.reader.cursor() < Seq(2) {
        sent.reader.next().await.unwrap();
    }
    store.appends.hold();
    turn.say("a", "x").await;
    // The engine has taken the report (the channel is empty again) and waits for the store.
    assert!(turn.reports.emptied().await);
    let pending = futures_util::FutureExt::now_or_never(sent.reader.next());
    assert!(pending.is_none(), "read before the append returned: {pending:?}");
    store.appends.release(1);
    let entries = sent.reader.next().await.unwrap().unwrap();
    assert_eq!(entries[0].entry.seq, Seq(3));
}

#[tokio::test]
async fn every_cursor_gives_exactly_the_rest() {
    let mut h = start();
    let task = long_turn(&mut h, 100).await;
    let whole =
        read_all(h.engine.subscribe(&alice(), &task, Some(Seq::START.into())).await.unwrap().reader).await;
    assert_eq!(whole.len(), 103);
    for cut in 0..=whole.len() {
        let place = Seq(cut as u64);
        for cursor in [EventId::from(place), EventId::new(place, Epoch(1))] {
            let subscription = h.engine.subscribe(&alice(), &task, Some(cursor)).await.unwrap();
            assert!(matches!(subscription.opening, SubscriptionStart::Tail));
            assert_eq!(read_all(subscription.reader).await, whole[cut..], "after {cursor}");
        }
    }
}

#[tokio::test]
async fn a_task_can_be_reconstructed_before_any_event_while_its_log_is_whole() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    // More events than one read of the log returns.
    let task = long_turn(&mut h, 300).await;
    let from_start = Some(Seq::START.into());
    let whole = read_all(h.engine.subscribe(&alice(), &task, from_start).await.unwrap().reader).await;
    let mut folded = Task::begin(task.clone(), &whole[0].event).unwrap();
    for entry in &whole[1..] {
        let before = h.engine.task_before(&alice(), &task, entry.seq).await.unwrap().unwrap();
        assert_eq!(before.artifacts, folded.artifacts, "before {}", entry.seq);
        assert_eq!((&before.id, &before.options), (&folded.id, &folded.options));
        assert_eq!(before.history, [], "what was sent may be large");
        folded.apply(&entry.event);
    }
    assert_eq!(h.engine.task_before(&alice(), &task, Seq(1)).await.unwrap(), None);
    let bob = Principal::new("bob");
    let foreign = h.engine.task_before(&bob, &task, Seq(3)).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
    store.forget_before(2);
    assert_eq!(h.engine.task_before(&alice(), &task, Seq(3)).await.unwrap(), None);
}

#[tokio::test]
async fn readers_of_all_speeds_read_the_same_while_the_task_runs() {
    let mut h = start();
    let sent = h.send("c", "long").await;
    let turn = h.turn().await;
    let mut stalled = h.engine.subscribe(&alice(), &sent.task, Some(Seq::START.into())).await.unwrap().reader;
    let mut fast = Vec::new();
    for _ in 0..20 {
        let reader = h.engine.subscribe(&alice(), &sent.task, Some(Seq::START.into())).await.unwrap().reader;
        fast.push(h.tasks.spawn("reader", read_all(reader)));
    }
    let mut seen_early: Vec<Entry> = Vec::new();
    for number in 0..500 {
        turn.say(&format!("b{number}"), "x").await;
        if number == 10 {
            // Reads once and then sleeps until the task is over.
            let entries = stalled.next().await.unwrap().unwrap();
            seen_early.extend(entries.iter().map(|entry| entry.entry.clone()));
        }
    }
    turn.complete().await;
    let whole = read_all(sent.reader).await;
    for reader in fast {
        assert_eq!(reader.await.unwrap(), whole);
    }
    seen_early.extend(read_all(stalled).await);
    assert_eq!(seen_early, whole);
}

#[tokio::test]
async fn a_subscription_starts_with_the_current_task() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "early").await;
    let mut first = sent.reader;
    while first.cursor() < Seq(3) {
        first.next().await.unwrap();
    }
    let mut subscription = h.engine.subscribe(&alice(), &sent.task, None).await.unwrap();
    let SubscriptionStart::Snapshot(snapshot) = &subscription.opening else {
        panic!("{:?}", subscription.opening)
    };
    assert_eq!((snapshot.seq, snapshot.task.artifacts.len()), (Seq(3), 1));
    turn.say("a", " late").await;
    let entries = subscription.reader.next().await.unwrap().unwrap();
    assert_eq!(entries[0].entry.seq, Seq(4));
}

#[tokio::test]
async fn a_cursor_that_cannot_be_served_gets_a_gap() {
    let mut h = start();
    let task = long_turn(&mut h, 3).await;
    // Cursors past the log, and cursors of existing numbers with another epoch.
    for cursor in ["99", "7.1", "3.2", "3.0", "6.2", "1.7"] {
        let requested = EventId::parse(cursor).unwrap();
        let subscription = h.engine.subscribe(&alice(), &task, Some(requested)).await.unwrap();
        let SubscriptionStart::Gap(snapshot, bounds) = subscription.opening else {
            panic!("{cursor}: {:?}", subscription.opening)
        };
        assert_eq!(snapshot.id().to_string(), "6.1");
        assert_eq!(bounds, GapBounds { requested, first: Seq(1), head: snapshot.id() });
        assert!(read_all(subscription.reader).await.is_empty());
    }
    // Before the first event there is none that could differ.
    let start = EventId::parse("0.9").unwrap();
    let subscription = h.engine.subscribe(&alice(), &task, Some(start)).await.unwrap();
    assert!(matches!(subscription.opening, SubscriptionStart::Tail));
}

#[tokio::test]
async fn finished_unknown_and_foreign_tasks_cannot_be_subscribed_to() {
    let mut h = start();
    let task = long_turn(&mut h, 1).await;
    let check = async |caller: &str, id: &str, expected: ErrorKind| {
        let id = longshore_model::TaskId::parse(id).unwrap();
        let error = h.engine.subscribe(&Principal::new(caller), &id, None).await.unwrap_err();
        assert_eq!(error.kind(), expected);
    };
    check("alice", task.as_str(), ErrorKind::UnsupportedOperation).await;
    check("alice", "nowhere", ErrorKind::TaskNotFound).await;
    check("bob", task.as_str(), ErrorKind::TaskNotFound).await;
}

#[tokio::test]
async fn a_reader_that_goes_away_changes_nothing() {
    let mut h = start();
    let mut sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    sent.reader.next().await.unwrap();
    drop(sent.reader);
    turn.say("a", "goes on").await;
    turn.complete().await;
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(crate::harness::text_of(&task), "goes on");
}

#[tokio::test]
async fn an_entry_is_encoded_once_for_all_readers() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let second = h.engine.subscribe(&alice(), &sent.task, Some(Seq::START.into())).await.unwrap().reader;
    let _turn = h.turn().await;
    let mut encodings = 0;
    for mut reader in [sent.reader, second] {
        let entries = reader.next().await.unwrap().unwrap();
        entries[0].encoded(longshore_engine::EncodedForm(0), |_| {
            encodings += 1;
            bytes::Bytes::from_static(b"{}")
        });
    }
    assert_eq!(encodings, 1);
}

#[tokio::test]
async fn silence_is_expected_before_the_start_during_tools_retries_and_asks() {
    let mut h = start();
    let mut sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let waiting = h.send("c", "m2").await;
    assert!(waiting.reader.is_silence_expected(), "it has not begun");
    let tool = |status| {
        let id = longshore_model::ArtifactId::parse("prt_tool").unwrap();
        let block = BlockRef { id, kind: BlockKind::ToolCall, message: None };
        AgentEvent::Tool { block, call: Box::new(ToolCall::new("call_1", "bash", status)) }
    };
    let reader = &mut sent.reader;
    let mut seq = 2;
    let mut excused = async |expected: bool| {
        while reader.cursor() < Seq(seq) {
            reader.next().await.unwrap();
        }
        assert_eq!(reader.is_silence_expected(), expected, "behind {seq}");
        seq += 1;
    };
    excused(false).await;
    turn.say("a", "x").await;
    excused(false).await;
    turn.report(tool(ToolStatus::Running)).await;
    excused(true).await;
    turn.say("b", "meanwhile").await;
    excused(true).await;
    turn.report(tool(ToolStatus::Completed)).await;
    excused(false).await;
    // The agent waits before it asks its model again, and withdraws the model's partial output.
    let progress = |kind| AgentEvent::Progress(Progress { kind, details: None });
    turn.report(progress(ProgressKind::Retry)).await;
    excused(true).await;
    turn.report(AgentEvent::TextReplaced { block: text_block("b"), text: String::new() }).await;
    excused(true).await;
    let named = SessionNote { id: turn.request.session.id.clone(), title: Some("a name".to_owned()) };
    turn.report(AgentEvent::Session(named)).await;
    excused(true).await;
    turn.say("c", "it goes on").await;
    excused(false).await;
    turn.report(progress(ProgressKind::Retry)).await;
    excused(true).await;
    turn.report(progress(ProgressKind::StepStarted)).await;
    excused(false).await;
    turn.ask("per_1").await;
    excused(true).await;
}
