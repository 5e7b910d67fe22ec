//! A store that did what it was asked and says that it did not.

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
async fn a_task_that_was_said_not_to_be_made_gets_its_turn_and_the_same_send_finds_it() {
    let (mut h, store) = start();
    store.deny_next_creates(1);
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
async fn a_cancel_that_was_said_not_to_be_kept_is_one_and_reaches_the_agent() {
    let (mut h, store) = start();
    let sent = h.send("c", "m").await;
    let _turn = h.turn().await;
    store.deny_next_appends(1);
    let canceled = h.engine.cancel(&alice(), &sent.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    assert_eq!(read_all(sent.reader).await.len(), 3);
    h.tasks.stop().await;
    assert_eq!(h.agent.log().aborted.len(), 1);
}

/// A task whose first ask was answered, with a log that is longer than what is kept of it in memory.
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

/// Waits until the store has this state, of which nobody has been told.
async fn keeps(store: &FaultyStore, task: &TaskId, state: TaskState) {
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
async fn whoever_waits_for_an_ask_gets_it_also_before_its_append_is_said_to_be_done() {
    let (mut h, store) = start();
    let (task, turn) = answered(&mut h).await;
    store.deny_next_appends(1);
    turn.ask("per_2").await;
    keeps(&store, &task, TaskState::InputRequired).await;
    assert_eq!(settled_from_the_start(&h, &task).await, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_asked_for_is_never_older_than_the_store() {
    let (mut h, store) = start();
    let (task, turn) = answered(&mut h).await;
    store.deny_next_appends(1);
    turn.complete().await;
    keeps(&store, &task, TaskState::Completed).await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Completed);
    assert_eq!(settled_from_the_start(&h, &task).await, TaskState::Completed);
}
