//! A store that did what it was asked and says that it did not.

use std::sync::Arc;

use longshore_engine::EngineConfig;
use longshore_engine::port::Store;
use longshore_model::{ErrorKind, TaskState};
use longshore_testkit::faulty_store::FaultyStore;

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
