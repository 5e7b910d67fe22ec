//! Limits in bytes: of a message beside its content, of a task, of unfinished tasks and of the store. And what a waiting task
//! keeps in memory.

use std::sync::Arc;

use longshore_engine::port::Append;
use longshore_engine::{EngineConfig, Sent};
use longshore_model::{
    Error, ErrorKind, Json, Metadata, OutputModes, Part, Principal, SendMessage, Task, TaskId, TaskState,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::store_suite::make;

use crate::harness::*;

/// Larger than what stays in memory while a task waits.
fn large(text: &str) -> SendMessage {
    let mut command = message("c", text);
    command.message.parts.push(Part::text("x".repeat(10_000)));
    command
}

fn metadata(bytes: usize) -> Option<Metadata> {
    let json = Json::parse(&format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8)));
    json.and_then(|json| Metadata::try_from(json).ok())
}

fn limit_of(error: &Error) -> Vec<&str> {
    let named = error.details().iter().filter(|(name, _)| name == "limit" || name == "max");
    named.map(|(_, value)| value.as_str()).collect()
}

fn content_of(task: &Task) -> usize {
    task.history.iter().flat_map(|message| &message.parts).map(Part::weight).sum()
}

async fn refused(h: &Harness, command: SendMessage) -> Error {
    h.engine.send(&alice(), command).await.expect_err("the message is refused")
}

#[tokio::test]
async fn a_message_has_a_limit_for_what_is_beside_its_content() {
    const MAX: usize = 256 * 1024;
    type Change = fn(&mut SendMessage, usize);
    let h = start();
    let fields: [(&str, Change); 5] = [
        ("message.metadata", |command, bytes| command.message.metadata = metadata(bytes)),
        ("metadata", |command, bytes| command.metadata = metadata(bytes)),
        ("message.parts", |command, bytes| command.message.parts[0].metadata = metadata(bytes)),
        ("message.extensions", |command, bytes| command.message.extensions = vec!["x".repeat(bytes)]),
        ("configuration.acceptedOutputModes", |command, bytes| {
            command.config.accepted_output_modes = OutputModes::new([&*"x".repeat(bytes)]);
        }),
    ];
    for (index, (field, change)) in fields.into_iter().enumerate() {
        let mut command = message(&format!("c{index}"), "m");
        change(&mut command, MAX + 1);
        let error = refused(&h, command.clone()).await;
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error:?}");
        assert_eq!(limit_of(&error), ["max_metadata_bytes", "262144"]);
        assert_eq!(error.violations()[0].field, field);
        assert!(error.message().contains("256 KiB"), "{error}");
        change(&mut command, MAX);
        h.engine.send(&alice(), command).await.expect("as much as allowed is taken");
    }
}

#[tokio::test]
async fn a_message_names_at_most_64_extensions_and_64_tasks() {
    let h = start();
    for (limit, change) in [
        (
            "max_extensions",
            (|command, count| command.message.extensions = vec!["urn:x".to_owned(); count])
                as fn(&mut SendMessage, usize),
        ),
        ("max_references", |command, count| {
            command.message.reference_task_ids = vec![TaskId::parse("t").unwrap(); count];
        }),
    ] {
        let mut command = message(limit, "m");
        change(&mut command, 65);
        let error = refused(&h, command.clone()).await;
        assert_eq!((error.kind(), limit_of(&error)), (ErrorKind::InvalidParams, vec![limit, "64"]));
        change(&mut command, 64);
        h.engine.send(&alice(), command).await.expect("as many as allowed are taken");
    }
}

/// A large task that waits behind another one of its context.
async fn waiting() -> (Harness, Arc<FaultyStore>, Sent, Sent) {
    let store = FaultyStore::over(longshore_store::memory());
    let h = start_with(store.clone(), EngineConfig::default());
    let first = h.send("c", "m1").await;
    let second = h.engine.send(&alice(), large("m2")).await.expect("the message is taken");
    h.reaches(&first.task, TaskState::Working).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    store.take_calls();
    (h, store, first, second)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waited_is_read_from_the_store_and_prompted_whole() {
    let (mut h, store, first, second) = waiting().await;
    h.turn().await.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    let turn = h.turn().await;
    assert!(store.take_calls().contains(&"get"), "a waiting task is only in the store");
    assert_eq!(turn.request.input.len(), 2, "the whole message is prompted");
    turn.complete().await;
    let log = read_all(second.reader).await;
    assert_eq!(log.first().map(|entry| entry.event.weight()), Some(10_002));
    let task = h.task(&second.task).await;
    assert_eq!((task.status.state, content_of(&task)), (TaskState::Completed, 10_002));
    let stored = h.store.get(&alice(), &second.task).await.unwrap().unwrap();
    assert_eq!(stored.task, task);
}

#[tokio::test(start_paused = true)]
async fn a_canceled_task_that_waited_keeps_its_messages() {
    let (h, _, _, second) = waiting().await;
    let canceled = h.engine.cancel(&alice(), &second.task).await.expect("it can be canceled");
    assert_eq!(content_of(&canceled.task), 10_002);
    let stored = h.store.get(&alice(), &second.task).await.unwrap().unwrap();
    assert_eq!((stored.task.status.state, content_of(&stored.task)), (TaskState::Canceled, 10_002));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_are_resumed_in_order_with_their_messages() {
    // More than one page.
    const TASKS: usize = 300;
    let config = || EngineConfig { unfinished_per_context: 0, turns: 1, ..EngineConfig::default() };
    let h = start_with(Arc::new(longshore_store::memory()), config());
    let mut sent = Vec::new();
    for number in 0..TASKS {
        sent.push(h.engine.send(&alice(), large(&format!("m{number}"))).await.expect("it is taken").task);
    }
    let mut h = start_with(h.stop().await, config());
    h.engine.recover().await.expect("unfinished tasks are taken up");
    for task in sent {
        let turn = h.turn().await;
        assert_eq!(turn.request.task, task);
        turn.complete().await;
        assert_eq!(content_of(&h.reaches(&task, TaskState::Completed).await) / 10_000, 1);
    }
}

#[tokio::test]
async fn unfinished_tasks_have_a_limit_in_bytes() {
    for (limit, per_principal, in_all) in
        [("unfinished_bytes_per_principal", 25_000, 0), ("unfinished_bytes", 0, 25_000)]
    {
        let config = EngineConfig {
            unfinished_bytes: in_all,
            unfinished_bytes_per_principal: per_principal,
            ..EngineConfig::default()
        };
        let mut h = start_with(Arc::new(longshore_store::memory()), config);
        let first = h.engine.send(&alice(), large("m1")).await.expect("it is taken");
        h.engine.send(&alice(), large("m2")).await.expect("it is taken");
        let error = refused(&h, large("m3")).await;
        assert_eq!((error.kind(), limit_of(&error)), (ErrorKind::TooManyRequests, vec![limit, "25000"]));
        assert!(error.retry_after().is_some() && error.message().contains("25000 bytes"), "{error:?}");
        let other = h.engine.send(&Principal::new("bob"), large("m3")).await;
        assert_eq!(other.is_ok(), in_all == 0, "only the limit in all is shared");
        // The same send again was accepted before.
        let again = h.engine.send(&alice(), large("m1")).await.expect("it is taken");
        assert_eq!(again.task, first.task);
        // A message to the running task counts too.
        let turn = h.turn().await;
        let mut joining = large("m4");
        joining.message.task_id = Some(first.task.clone());
        assert_eq!(limit_of(&refused(&h, joining).await), [limit, "25000"]);
        turn.complete().await;
        h.reaches(&first.task, TaskState::Completed).await;
        while h.engine.send(&alice(), large("m5")).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_full_store_refuses_messages_and_ends_no_turn() {
    for (limit, per_principal, in_all) in
        [("stored_bytes_per_principal", 20_000, 0), ("stored_bytes", 0, 20_000)]
    {
        let config = EngineConfig {
            stored_bytes: in_all,
            stored_bytes_per_principal: per_principal,
            ..EngineConfig::default()
        };
        let mut h = start_with(Arc::new(longshore_store::memory()), config);
        let sent = h.engine.send(&alice(), large("m1")).await.expect("it is taken");
        let turn = h.turn().await;
        turn.say("a", &"y".repeat(30_000)).await;
        turn.complete().await;
        let task = h.reaches(&sent.task, TaskState::Completed).await;
        assert_eq!(text_of(&task).len(), 30_000, "a running turn is not ended");
        let error = refused(&h, message("c", "m2")).await;
        assert_eq!((error.kind(), limit_of(&error)), (ErrorKind::TooManyRequests, vec![limit, "20000"]));
        let other = h.engine.send(&Principal::new("bob"), message("c", "m2")).await;
        assert_eq!(other.is_ok(), in_all == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_outgrows_its_limit_fails_and_says_why() {
    let config = EngineConfig { task_bytes: 20_000, ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", &"y".repeat(15_000)).await;
    // A message that does not fit is refused, and the turn goes on.
    let mut joining = large("m2");
    joining.message.task_id = Some(sent.task.clone());
    while text_of(&h.task(&sent.task).await).is_empty() {
        tokio::task::yield_now().await;
    }
    let error = refused(&h, joining).await;
    assert_eq!((error.kind(), limit_of(&error)), (ErrorKind::TooManyRequests, vec!["task_bytes", "20000"]));
    turn.say("a", &"y".repeat(15_000)).await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("limits.task_bytes"), "{}", reason_of(&task));
    assert_eq!(text_of(&task).len(), 30_000, "what came is there");
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_store_cannot_hold_fails_and_says_why() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "before ").await;
    while text_of(&h.task(&sent.task).await).is_empty() {
        tokio::task::yield_now().await;
    }
    store.outgrow_next(1);
    turn.say("a", "too much").await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("larger than the store can hold"), "{}", reason_of(&task));
    assert_eq!(text_of(&task), "before ", "readers saw no event that is not stored");
    let stored = h.store.get(&alice(), &sent.task).await.unwrap().unwrap();
    assert_eq!(stored.task, task);
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_store_cannot_hold_is_not_prompted() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    store.outgrow_next(1);
    let sent = h.send("c", "m1").await;
    h.reaches(&sent.task, TaskState::Failed).await;
    // The next task of the context begins when the first one has ended.
    let next = h.send("c", "m2").await;
    assert_eq!(h.turn().await.request.task, next.task);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_found_damaged_fails_and_its_turn_is_stopped() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    store.damage_tasks();
    turn.say("a", "words").await;
    let log = read_all(sent.reader).await;
    let last = log.last().and_then(|entry| entry.event.status()).expect("the task ended");
    assert_eq!(last.state, TaskState::Failed);
    assert_eq!(last.message.as_ref().map(|message| message.parts.len()), Some(1), "it says why");
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_task_that_is_found_damaged_fails() {
    let (mut h, store, _, second) = waiting().await;
    let turn = h.turn().await;
    store.damage_tasks();
    turn.complete().await;
    let log = read_all(second.reader).await;
    let last = log.last().and_then(|entry| entry.event.status()).expect("the task ended");
    assert_eq!(last.state, TaskState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_a_limit_of_the_store_refuses_leaves_nothing_behind() {
    let store = FaultyStore::over(longshore_store::memory());
    let h = start_with(store.clone(), EngineConfig::default());
    store.refuse_next_creates(1);
    refused(&h, message("c", "m1")).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(!store.take_calls().contains(&"head"), "nothing was written, so nothing is looked for");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_turn_that_waits_for_its_context_keeps_its_output() {
    let (h, _, first, second) = waiting().await;
    h.reaches(&first.task, TaskState::Working).await;
    let store = h.stop().await;
    // The second one runs in another session, as a turn of another client may.
    let words = "y".repeat(5_000);
    let events = vec![make::status(TaskState::Working, i64::MAX / 2), make::chunk(&words)];
    let working = make::append(second.task.as_str(), 1, events);
    let turn = Some(make::turn("other", "prompt"));
    store.append(Append { owner: alice(), turn, ..working }).await.expect("it is written");
    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.expect("unfinished tasks are taken up");
    h.turn().await.complete().await;
    let turn = h.turn().await;
    assert_eq!(turn.request.task, second.task);
    let resume = turn.request.resume.as_ref().expect("the turn is resumed");
    assert_eq!(resume.artifacts.len(), 1, "the agent learns what is in the log");
}
