//! The turn limiter: turns over the limit wait, start fairly, and none is forgotten.

use std::sync::Arc;

use longshore_engine::EngineConfig;
use longshore_meter::label::TurnState;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Outcome, Principal, SessionId, TaskState};

use crate::asks::{once, request};
use crate::harness::{Harness, alice, message, reason_of, start_with};

fn with_limits(turns: usize, turns_per_principal: usize) -> Harness {
    let config = EngineConfig { turns, turns_per_principal, ..EngineConfig::default() };
    start_with(Arc::new(longshore_store::memory()), config)
}

fn running(h: &Harness) -> i64 {
    h.metrics.turns.of(TurnState::Running).get()
}

/// Waits until nothing runs.
async fn until_idle(h: &Harness) {
    while running(h) != 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn turns_over_the_limit_wait_as_submitted_tasks_and_start_as_others_end() {
    for (in_all, per_principal) in [(1, 0), (0, 1)] {
        let mut h = with_limits(in_all, per_principal);
        let first = h.send("c1", "m1").await.task;
        let turn = h.turn().await;
        let (second, third) = (h.send("c2", "m2").await.task, h.send("c3", "m3").await.task);
        h.waiting(2).await;
        assert_eq!(h.task(&second).await.status.state, TaskState::Submitted);
        assert_eq!(running(&h), 1);
        assert_eq!(h.agent.log().opened.len(), 1, "a waiting turn opens no session either");
        turn.complete().await;
        for task in [second, third] {
            let turn = h.turn().await;
            assert_eq!(turn.request.task, task);
            turn.complete().await;
            h.reaches(&task, TaskState::Completed).await;
        }
        assert_eq!(h.task(&first).await.status.state, TaskState::Completed);
        until_idle(&h).await;
    }
}

#[tokio::test]
async fn a_flood_of_one_principal_delays_another_by_one_round_at_most() {
    let mut h = with_limits(2, 0);
    for number in 0..40 {
        h.send(&format!("c{number}"), &format!("m{number}")).await;
    }
    let mut running = vec![h.turn().await, h.turn().await];
    h.waiting(38).await;
    let bob = Principal::new("bob");
    let late = h.engine.send(&bob, message("c", "late")).await.unwrap().task;
    h.waiting(39).await;
    for _ in 0..2 {
        running.remove(0).complete().await;
        running.push(h.turn().await);
    }
    assert_eq!(running[1].request.task, late, "one turn of the flood was let in before, and no more");
}

#[tokio::test]
async fn a_task_that_waits_at_the_limiter_is_canceled_at_once_and_delays_no_other() {
    let mut h = with_limits(1, 0);
    h.send("c1", "m1").await;
    let turn = h.turn().await;
    let (second, third) = (h.send("c2", "m2").await.task, h.send("c3", "m3").await.task);
    h.waiting(2).await;
    let canceled = h.engine.cancel(&alice(), &second).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    h.waiting(1).await;
    turn.complete().await;
    assert_eq!(h.turn().await.request.task, third);
    assert!(h.agent.log().aborted.is_empty(), "nothing of it ran");
}

#[tokio::test]
async fn a_turn_that_asks_frees_its_slot_and_continues_over_the_limit_when_answered() {
    let mut h = with_limits(1, 0);
    let first = h.send("c1", "m1").await.task;
    let asking = h.turn().await;
    let second = h.send("c2", "m2").await.task;
    h.waiting(1).await;
    asking.ask("per_1").await;
    let other = h.turn().await;
    assert_eq!(other.request.task, second);
    let third = h.send("c3", "m3").await.task;
    h.waiting(1).await;
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    h.reaches(&first, TaskState::Working).await;
    assert_eq!(running(&h), 2);
    other.complete().await;
    h.reaches(&second, TaskState::Completed).await;
    while running(&h) != 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(h.task(&third).await.status.state, TaskState::Submitted, "the one that was answered counts");
    asking.complete().await;
    assert_eq!(h.turn().await.request.task, third);
}

#[tokio::test]
async fn two_contexts_of_one_session_do_not_deadlock_at_the_limiter() {
    let mut h = with_limits(1, 0);
    let first = h.send("c1", "m1").await.task;
    let turn = h.turn().await;
    let session = turn.request.session.id.clone();
    let naming = |context: &str, text: &str| {
        let mut command = message(context, text);
        command.options.session = Some(SessionId::parse(session.as_str()).unwrap());
        command
    };
    let mut later = Vec::new();
    for (context, text) in [("c2", "m2"), ("c3", "m3")] {
        later.push(h.engine.send(&alice(), naming(context, text)).await.unwrap().task);
    }
    // A third context, without a session, comes in between.
    later.push(h.send("c4", "m4").await.task);
    h.waiting(1).await;
    turn.complete().await;
    h.reaches(&first, TaskState::Completed).await;
    for _ in 0..3 {
        let turn = h.turn().await;
        let task = turn.request.task.clone();
        turn.complete().await;
        h.reaches(&task, TaskState::Completed).await;
        later.retain(|waiting| *waiting != task);
    }
    assert!(later.is_empty(), "{later:?}");
}

#[tokio::test]
async fn every_end_of_a_turn_frees_its_slot() {
    let mut h = with_limits(1, 0);
    // The turn is canceled, its agent goes away for good, fails, panics, or lacks credentials.
    let canceled = h.send("c1", "m1").await.task;
    let _turn = h.turn().await;
    h.engine.cancel(&alice(), &canceled).await.unwrap();
    until_idle(&h).await;

    let silent = h.send("c2", "m2").await.task;
    drop(h.turn().await);
    h.reaches(&silent, TaskState::Failed).await;
    until_idle(&h).await;

    h.agent.refuse_next(Error::new(ErrorKind::Internal, "It broke."));
    let refused = h.send("c3", "m3").await.task;
    assert_eq!(reason_of(&h.reaches(&refused, TaskState::Failed).await), "It broke.");
    until_idle(&h).await;

    h.agent.panic_next();
    let unlucky = h.send("c4", "m4").await.task;
    h.reaches(&unlucky, TaskState::Failed).await;
    until_idle(&h).await;

    // The task waits, perhaps for hours, for credentials.
    let without = h.send("c5", "m5").await.task;
    let refused = Outcome::AuthRequired(Failure::new("No key."));
    h.turn().await.report(AgentEvent::Ended(refused)).await;
    h.reaches(&without, TaskState::AuthRequired).await;
    until_idle(&h).await;

    h.send("c6", "m6").await;
    h.turn().await.complete().await;
    until_idle(&h).await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_waiting_turns_and_the_next_start_runs_them() {
    let mut h = with_limits(1, 0);
    let mut sent = Vec::new();
    for (context, text) in [("c1", "m1"), ("c2", "m2"), ("c3", "m3")] {
        sent.push(h.send(context, text).await.task);
    }
    let _running = h.turn().await;
    h.waiting(2).await;
    let store = h.stop().await;
    let config = EngineConfig { turns: 1, ..EngineConfig::default() };
    let mut h = start_with(store, config);
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 3);
    h.waiting(2).await;
    for task in sent {
        let turn = h.turn().await;
        assert_eq!(turn.request.task, task);
        turn.complete().await;
        h.reaches(&task, TaskState::Completed).await;
    }
    until_idle(&h).await;
}
