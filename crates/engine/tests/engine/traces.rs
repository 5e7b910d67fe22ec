//! The trace of a send reaches the agent, and is not stored.

use longshore_engine::EngineConfig;
use longshore_engine::port::Steering;
use longshore_model::{AgentEvent, Failure, Outcome, SendMessage, TaskId, TaskState, TraceContext};

use crate::harness::{alice, message, start, start_with};

fn trace(number: u8) -> TraceContext {
    TraceContext::parse(&format!("00-{number:032x}-{number:016x}-01")).expect("a traceparent")
}

fn traced(text: &str, number: u8) -> SendMessage {
    SendMessage { trace: Some(trace(number)), ..message("c", text) }
}

fn on(task: &TaskId, text: &str, number: u8) -> SendMessage {
    let mut command = traced(text, number);
    command.message.task_id = Some(task.clone());
    command
}

#[tokio::test]
async fn a_turn_has_the_trace_of_its_send_and_a_joined_message_its_own() {
    let mut h = start();
    let sent = h.engine.send(&alice(), traced("m1", 1)).await.unwrap();
    let mut turn = h.turn().await;
    assert_eq!(turn.request.trace, Some(trace(1)));
    let (engine, joining) = (h.engine.clone(), on(&sent.task, "m2", 2));
    let joined = h.tasks.spawn("test", async move { engine.send(&alice(), joining).await.map(drop) });
    let Steering { trace: of_join, expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
    assert_eq!(of_join, Some(trace(2)));
    expected.send(()).unwrap();
    go.await.unwrap();
    confirm.send(Ok(())).unwrap();
    joined.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_retrying_message_brings_its_own_trace() {
    let mut h = start();
    let sent = h.engine.send(&alice(), traced("m1", 1)).await.unwrap();
    h.turn().await.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
    h.reaches(&sent.task, TaskState::AuthRequired).await;
    h.engine.send(&alice(), on(&sent.task, "m2", 2)).await.unwrap();
    assert_eq!(h.turn().await.request.trace, Some(trace(2)));
}

#[tokio::test]
async fn a_resumed_turn_has_no_trace() {
    let mut h = start();
    h.engine.send(&alice(), traced("m1", 1)).await.unwrap();
    let _turn = h.turn().await;
    let store = h.stop().await;
    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    assert_eq!(h.turn().await.request.trace, None);
}
