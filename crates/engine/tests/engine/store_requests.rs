//! The store requests of a turn: each one costs the waiting caller time.

use longshore_engine::EngineConfig;
use longshore_model::{ErrorKind, Principal, Seq, TaskState};
use longshore_testkit::faulty_store::FaultyStore;

use crate::harness::{alice, message, start_with, text_of};

#[tokio::test]
async fn a_whole_turn_reads_the_store_once() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let mut command = message("c", "m1");
    command.message.context_id = None;
    let sent = h.engine.send(&alice(), command).await.unwrap();
    let turn = h.turn().await;
    turn.say("a", "hello").await;
    turn.complete().await;
    let done = h.engine.settled(&alice(), sent.reader).await.unwrap();
    assert_eq!((done.task.status.state, text_of(&done.task)), (TaskState::Completed, "hello".to_owned()));
    let mut calls = store.take_calls();
    // The text may be written before its end has come.
    calls.dedup();
    assert_eq!(calls, ["earlier_send", "create", "bind", "append"]);
}

#[tokio::test]
async fn a_settled_task_is_served_from_memory_to_its_owner_only() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "look: ").await;
    turn.ask("per_1").await;
    let asked = h.engine.settled(&alice(), sent.reader).await.unwrap();
    store.take_calls();
    let now = h.engine.get(&alice(), &sent.task).await.unwrap();
    assert_eq!(now, asked);
    assert_eq!(store.take_calls(), [""; 0]);
    let foreign = h.engine.get(&Principal::new("bob"), &sent.task).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);

    // More output: the cached task is outdated.
    turn.say("a", "more").await;
    let mut reader = h.engine.subscribe(&alice(), &sent.task, Some(asked.id())).await.unwrap().reader;
    while reader.cursor() <= asked.seq {
        reader.next().await.unwrap();
    }
    let now = h.engine.get(&alice(), &sent.task).await.unwrap();
    assert_eq!((now.seq, text_of(&now.task).as_str()), (Seq(asked.seq.0 + 1), "look: more"));
}
