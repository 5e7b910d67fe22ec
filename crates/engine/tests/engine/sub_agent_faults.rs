//! Faults around sub-agents: their tasks end, with the right outcome.

use std::time::Duration;

use longshore_engine::port::Store as _;
use longshore_engine::{EngineConfig, SubscriptionStart};
use longshore_meter::label;
use longshore_model::{
    AgentEvent, AgentFile, BlockKind, BlockRef, ChildEvent, Failure, Outcome, Part, RequestId, Resolution,
    SessionId, Task, TaskId, TaskState,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::{StartedTurn, permission, text_block};

use crate::harness::{Harness, alice, all_tasks, message, reason_of, start, start_with, text_of};

/// The first task of a sub-agent in the context, once it exists.
async fn child_of(h: &Harness) -> Task {
    let query = all_tasks(Some("c"));
    loop {
        let listed = h.engine.list(&alice(), query.clone()).await.expect("a list").tasks;
        if let Some(child) = listed.into_iter().find(|task| task.parent.is_some()) {
            return child;
        }
        tokio::task::yield_now().await;
    }
}

async fn ended(turn: &StartedTurn) {
    let end = AgentEvent::Ended(Outcome::Completed { remark: None });
    turn.child("ses_child", ChildEvent::Report(end)).await;
}

async fn over(h: &Harness, task: &TaskId) -> Task {
    let wait = async {
        loop {
            let task = h.task(task).await;
            if task.status.state.is_terminal() {
                return task;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.expect("the task ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_on_a_sub_agents_task_closes_its_ask_there() {
    for _ in 0..20 {
        let mut h = start();
        h.send("c", "m1").await;
        let turn = h.turn().await;
        turn.call_child("ses_child", "call_1", "x").await;
        let child = child_of(&h).await;
        let ask = permission(&SessionId::parse("ses_child").unwrap(), "per_1");
        turn.report(AgentEvent::Asked(Box::new(ask))).await;
        while h.task(&child.id).await.open_asks.is_empty() {
            tokio::task::yield_now().await;
        }
        let mut answer = message("c", "a1");
        answer.message.task_id = Some(child.id.clone());
        answer.message.parts = vec![Part::text("once")];
        let sent = h.engine.send(&alice(), answer).await.unwrap();
        let SubscriptionStart::Snapshot(snapshot) = &sent.opening else { panic!("it was there before") };
        assert_eq!(snapshot.task.status.state, TaskState::Working);
    }
}

#[tokio::test]
async fn a_sub_agent_of_a_task_that_waits_for_credentials_ends_with_the_restart() {
    let mut h = start();
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let child = child_of(&h).await;
    turn.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
    h.reaches(&root.task, TaskState::AuthRequired).await;
    let store = h.stop().await;
    let h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    assert_eq!(over(&h, &child.id).await.status.state, TaskState::Failed);
    assert_eq!(h.task(&root.task).await.status.state, TaskState::AuthRequired);
}

#[tokio::test]
async fn a_short_store_outage_costs_a_sub_agent_nothing() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    // The task is created, but the store reports a failure.
    store.lose_next_create_results(1);
    turn.call_child("ses_child", "call_1", "x").await;
    let child = child_of(&h).await;
    h.reaches(&child.id, TaskState::Working).await;
    assert_eq!(h.metrics.tasks.of(label::TaskState::Submitted).get(), 2);
    store.fail_next_files(1);
    let block = BlockRef { kind: BlockKind::File, ..text_block("prt_file") };
    let file = AgentFile { name: None, media_type: "image/png".to_owned(), bytes: b"x"[..].into() };
    turn.child("ses_child", ChildEvent::Report(AgentEvent::File { block, file })).await;
    let said = AgentEvent::Text { block: text_block("prt_t"), text: "hello".to_owned() };
    turn.child("ses_child", ChildEvent::Report(said)).await;
    ended(&turn).await;
    turn.complete().await;
    h.reaches(&root.task, TaskState::Completed).await;
    let child = over(&h, &child.id).await;
    assert_eq!((child.status.state, text_of(&child).as_str()), (TaskState::Completed, "hello"));
    assert_eq!(child.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::File).count(), 1);
}

#[tokio::test]
async fn a_sub_agent_that_is_called_again_before_its_end_ends_first() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let first = child_of(&h).await;
    turn.call_child("ses_child", "call_2", "y").await;
    ended(&turn).await;
    turn.complete().await;
    let first = over(&h, &first.id).await;
    assert_eq!(first.status.state, TaskState::Failed);
    assert!(reason_of(&first).contains("called again"), "{}", reason_of(&first));
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_not_over_before_the_logs_of_its_sub_agents_are_complete() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let child = child_of(&h).await.id;
    h.reaches(&child, TaskState::Working).await;
    store.appends.hold();
    ended(&turn).await;
    turn.complete().await;
    while !h.task(&root.task).await.status.state.is_terminal() {
        store.appends.release(1);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(h.task(&child).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_damaged_closed_ask_does_not_keep_the_gateway_from_starting() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let root = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let child = child_of(&h).await.id;
    let ask = permission(&SessionId::parse("ses_child").unwrap(), "per_1");
    turn.report(AgentEvent::Asked(Box::new(ask))).await;
    while h.task(&child).await.open_asks.is_empty() {
        tokio::task::yield_now().await;
    }
    // The root task records the closing, and the sub-agent's task does not: the gateway ends in between.
    h.reaches(&child, TaskState::InputRequired).await;
    store.appends.hold();
    let (request_id, resolution) = (RequestId::parse("per_1").unwrap(), Resolution::Elsewhere);
    turn.report(AgentEvent::AskClosed { request_id: request_id.clone(), resolution }).await;
    assert!(turn.reports.emptied().await);
    store.appends.release(1);
    while store.interrupt(&alice(), &request_id).await.unwrap().unwrap().is_open() {
        tokio::task::yield_now().await;
    }
    store.fail_next(usize::MAX);
    store.appends.release(1_000);
    h.stop().await;
    store.fail_next(0);
    assert_eq!(store.get(&alice(), &child).await.unwrap().unwrap().task.open_asks.len(), 1);

    store.damage_asks();
    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.expect("the gateway starts");
    let turn = h.turn().await;
    ended(&turn).await;
    turn.complete().await;
    h.reaches(&root.task, TaskState::Completed).await;
    assert_eq!(over(&h, &child).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_sub_agents_task_can_be_read_at_once() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    let child = child_of(&h).await.id;
    h.reaches(&child, TaskState::Working).await;
    let store = h.stop().await;

    let h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let mut subscription = h.engine.subscribe(&alice(), &child, None).await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(1), subscription.reader.next()).await;
    assert!(next.is_err(), "it waits for what comes: {next:?}");
}
