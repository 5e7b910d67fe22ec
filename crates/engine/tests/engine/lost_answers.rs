//! A store that does the work and reports a failure.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::Store;
use longshore_model::{ErrorKind, Seq, TaskId, TaskState};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::StartedTurn;

use crate::asks::{once, request};
use crate::harness::{Harness, alice, message, read_all, start_with};

fn start() -> (Harness, Arc<FaultyStore>) {
    let store = FaultyStore::over(longshore_store::memory());
    (start_with(Arc::clone(&store) as Arc<dyn Store>, EngineConfig::default()), store)
}

#[tokio::test(start_paused = true)]
async fn a_created_task_with_a_reported_failure_runs_and_a_repeated_send_finds_it() {
    let (mut h, store) = start();
    store.lose_next_create_results(1);
    let refused = h.engine.send(&alice(), message("c", "m")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let again = h.engine.send(&alice(), message("c", "m")).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.task, again.task);
    turn.complete().await;
    assert_eq!(read_all(again.reader).await.len(), 3);
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stored_cancel_with_a_reported_failure_reaches_the_agent() {
    let (mut h, store) = start();
    let sent = h.send("c", "m").await;
    let _turn = h.turn().await;
    store.lose_next_append_results(1);
    let canceled = h.engine.cancel(&alice(), &sent.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    assert_eq!(read_all(sent.reader).await.len(), 3);
    h.tasks.stop().await;
    assert_eq!(h.agent.log().aborted.len(), 1);
}

/// A task whose first ask was answered, with a log that is longer than its tail in memory.
async fn answered(h: &mut Harness) -> (TaskId, StartedTurn) {
    let sent = h.send("c", "m").await;
    let turn = h.turn().await;
    turn.say("a", &"long ".repeat(4_000)).await;
    turn.ask("per_1").await;
    h.engine.settled(&alice(), sent.reader).await.expect("it asks");
    h.engine.answer(&alice(), &request("per_1"), once()).await.expect("it is answered");
    while h.task(&sent.task).await.status.state != TaskState::Working {
        tokio::task::yield_now().await;
    }
    (sent.task, turn)
}

/// Waits until the store has this state, which no reader has seen.
async fn until_stored(store: &FaultyStore, task: &TaskId, state: TaskState) {
    let kept = async || store.get(&alice(), task).await.expect("a read").expect("it is there").task;
    while kept().await.status.state != state {
        tokio::task::yield_now().await;
    }
}

async fn settled_from_the_start(h: &Harness, task: &TaskId) -> TaskState {
    let caller = alice();
    let again = h.engine.subscribe(&caller, task, Some(Seq::START.into())).await.expect("a reader");
    let settled = tokio::time::timeout(Duration::from_mins(1), h.engine.settled(&caller, again.reader));
    settled.await.expect("it is settled already").expect("a task").task.status.state
}

#[tokio::test(start_paused = true)]
async fn a_blocking_send_gets_an_ask_before_its_append_is_acknowledged() {
    let (mut h, store) = start();
    let (task, turn) = answered(&mut h).await;
    store.lose_next_append_results(1);
    turn.ask("per_2").await;
    until_stored(&store, &task, TaskState::InputRequired).await;
    assert_eq!(settled_from_the_start(&h, &task).await, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn a_read_task_is_never_older_than_the_store() {
    let (mut h, store) = start();
    let (task, turn) = answered(&mut h).await;
    store.lose_next_append_results(1);
    turn.complete().await;
    until_stored(&store, &task, TaskState::Completed).await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Completed);
    assert_eq!(settled_from_the_start(&h, &task).await, TaskState::Completed);
}
