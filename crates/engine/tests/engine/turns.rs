//! The life of a turn: order, cancel, time limit, asks, faults of the agent.

use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Json, Metadata, Outcome, TaskEvent, TaskState};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::text_block;
use serde_json::json;

use crate::harness::{alice, input, read_all, reason_of, start, start_with, text_of};

#[tokio::test]
async fn a_turn_goes_from_submitted_over_working_to_completed() {
    let mut h = start();
    let sent = h.send("c", "hello").await;
    let turn = h.turn().await;
    turn.say("a", "one ").await;
    turn.say("a", "two").await;
    turn.complete().await;

    let log = read_all(sent.reader).await;
    assert!(matches!(log[0].event, TaskEvent::Submitted { .. }));
    let numbers: Vec<u64> = log.iter().map(|entry| entry.seq.0).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "no gaps");
    let states: Vec<_> =
        log.iter().filter_map(|entry| entry.event.status()).map(|status| status.state).collect();
    assert_eq!(states, [TaskState::Working, TaskState::Completed]);

    let task = h.task(&sent.task).await;
    assert_eq!(text_of(&task), "one two");
    assert_eq!(h.agent.log().prompted[0].input, [input("hello")]);
}

#[tokio::test]
async fn messages_of_one_context_run_one_at_a_time_and_in_order() {
    let mut h = start();
    let (first, second, third) = (h.send("c", "m1").await, h.send("c", "m2").await, h.send("c", "m3").await);
    for (sent, text) in [(&first, "m1"), (&second, "m2"), (&third, "m3")] {
        let turn = h.turn().await;
        assert_eq!(turn.request.input, [input(text)]);
        assert!(h.turns.is_empty(), "no other turn was started");
        assert_eq!(h.task(&sent.task).await.status.state, TaskState::Working);
        turn.complete().await;
        h.reaches(&sent.task, TaskState::Completed).await;
    }
    assert_eq!(h.agent.log().opened.len(), 1, "one session for the context");
}

#[tokio::test]
async fn contexts_run_in_parallel() {
    let mut h = start();
    h.send("c1", "m1").await;
    h.send("c2", "m2").await;
    let (one, two) = (h.turn().await, h.turn().await);
    assert_ne!(one.request.session, two.request.session);
}

#[tokio::test]
async fn cancel_ends_the_task_first_then_aborts_and_the_session_stays() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "half").await;
    let canceled = h.engine.cancel(&alice(), &sent.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);

    let next = h.send("c", "m2").await;
    let second = h.turn().await;
    assert_eq!(
        h.agent.log().aborted,
        std::slice::from_ref(&turn.request.session),
        "aborted before the next turn began"
    );
    assert_eq!(second.request.session, turn.request.session, "the conversation goes on in its session");
    second.complete().await;
    h.reaches(&next.task, TaskState::Completed).await;
}

#[tokio::test]
async fn a_waiting_task_is_canceled_without_touching_the_agent() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let turn = h.turn().await;
    let waiting = h.send("c", "m2").await;
    let canceled = h.engine.cancel(&alice(), &waiting.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    assert!(h.agent.log().aborted.is_empty());
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test]
async fn the_first_terminal_state_wins() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    h.turn().await.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    let error = h.engine.cancel(&alice(), &sent.task).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);

    let sent = h.send("c", "m2").await;
    let turn = h.turn().await;
    h.engine.cancel(&alice(), &sent.task).await.unwrap();
    turn.say("a", "too late").await;
    turn.complete().await;
    let task = h.task(&sent.task).await;
    assert_eq!((task.status.state, text_of(&task)), (TaskState::Canceled, String::new()));
}

#[tokio::test]
async fn many_cancels_at_once_cancel_once() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let _turn = h.turn().await;
    let alice = alice();
    let cancels = (0..10).map(|_| h.engine.cancel(&alice, &sent.task));
    let outcomes = futures_util::future::join_all(cancels).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_too_long_is_aborted_and_fails() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    let mut h = start_with(std::sync::Arc::new(longshore_store::memory()), config);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    h.send("c", "m2").await;
    h.turn().await;
    let stopped = h.agent.log().stopped;
    assert_eq!(stopped.len(), 1);
    assert_eq!(
        (&stopped[0][0].session, &stopped[0][0].prompt),
        (&turn.request.session, &turn.request.prompt)
    );
}

#[tokio::test]
async fn a_driver_that_breaks_off_fails_the_task() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    drop(h.turn().await);
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("not known"), "{}", reason_of(&task));
}

#[tokio::test]
async fn a_forgotten_session_is_replaced_once() {
    let mut h = start();
    let gone = || Error::new(ErrorKind::SessionGone, "The session is gone.");
    h.agent.refuse_next(gone());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    assert_eq!(h.agent.log().opened.len(), 2);
    assert_eq!(turn.request.session, h.agent.log().opened[1]);
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;

    h.agent.refuse_next(gone());
    h.agent.refuse_next(gone());
    let sent = h.send("c", "m2").await;
    h.reaches(&sent.task, TaskState::Failed).await;
}

#[tokio::test]
async fn a_withdrawn_block_is_replaced_and_an_ended_one_is_marked() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "first try").await;
    turn.report(AgentEvent::TextReplaced { block: text_block("a"), text: String::new() }).await;
    turn.say("b", "kept").await;
    turn.report(AgentEvent::TextEnded { block: text_block("b") }).await;
    turn.complete().await;
    let log = read_all(sent.reader).await;
    assert_eq!(text_of(&h.task(&sent.task).await), "kept");
    let last_chunks =
        log.iter().filter(|entry| matches!(&entry.event, TaskEvent::Artifact(update) if update.last_chunk));
    assert_eq!(last_chunks.count(), 1);
}

#[tokio::test]
async fn deltas_that_wait_for_the_store_are_merged() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    store.appends.hold();
    for _ in 0..50 {
        turn.say("a", "x").await;
    }
    turn.complete().await;
    store.appends.release(1000);
    let log = read_all(sent.reader).await;
    let updates = log.iter().filter(|entry| matches!(entry.event, TaskEvent::Artifact(_))).count();
    assert!(updates < 50, "{updates} events for 50 deltas");
    assert_eq!(text_of(&h.task(&sent.task).await), "x".repeat(50));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_loses_nothing() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    store.fail_next(5);
    turn.say("a", "kept").await;
    turn.complete().await;
    read_all(sent.reader).await;
    let task = h.task(&sent.task).await;
    assert_eq!((task.status.state, text_of(&task).as_str()), (TaskState::Completed, "kept"));
}

/// Like every end, except for the metadata.
#[tokio::test]
async fn an_end_with_missing_text_is_marked_in_its_metadata() {
    let metadata = Metadata::try_from(Json::from_value(&json!({"agent": {"code": 7}}))).ok();
    let failed = Failure { metadata, ..Failure::new("some words") };
    let lost = json!({"longshore": {"lost": "text"}});
    let cases = [
        (Outcome::Completed { remark: Some("some words".into()) }, TaskState::Completed, lost.clone()),
        (Outcome::Canceled { reason: "some words".into() }, TaskState::Canceled, lost.clone()),
        (Outcome::Failed(Failure::new("some words")), TaskState::Failed, lost),
        (
            Outcome::Failed(failed),
            TaskState::Failed,
            json!({"agent": {"code": 7}, "longshore": {"lost": "text"}}),
        ),
    ];
    for (outcome, state, expected) in cases {
        let mut h = start();
        let sent = h.send("c", "m1").await;
        h.turn().await.report(AgentEvent::Ended(Outcome::Incomplete(Box::new(outcome)))).await;
        let task = h.reaches(&sent.task, state).await;
        assert_eq!(reason_of(&task), "some words");
        let log = read_all(sent.reader).await;
        let Some(TaskEvent::Status(end)) = log.last().map(|entry| &entry.event) else { panic!("{log:?}") };
        let metadata = end.metadata.as_ref().map(|metadata| metadata.json().to_value());
        assert_eq!(metadata, Some(expected), "{state}");
    }
}

#[tokio::test]
async fn remarks_and_aborts_by_other_clients_are_reported() {
    let cases = [
        (
            Outcome::Completed { remark: Some("cut at its limit".into()) },
            TaskState::Completed,
            "cut at its limit",
        ),
        (
            Outcome::Canceled { reason: "aborted in the agent".into() },
            TaskState::Canceled,
            "aborted in the agent",
        ),
    ];
    for (outcome, state, words) in cases {
        let mut h = start();
        let sent = h.send("c", "m1").await;
        h.turn().await.report(AgentEvent::Ended(outcome)).await;
        let task = h.reaches(&sent.task, state).await;
        assert_eq!(reason_of(&task), words);
    }
}
