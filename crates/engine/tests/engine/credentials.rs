//! A provider that refuses the agent's credentials: the task waits, and a message retries it.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AskConfig, EngineConfig};
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, ModelName, Outcome, TaskId, TaskState, Usage};
use longshore_testkit::scripted_agent::StartedTurn;

use crate::harness::{Harness, alice, input, on, reason_of, start, start_with, text_of};

async fn refuse(turn: StartedTurn) {
    let usage = Usage { input: 3, total: 3, ..Usage::default() };
    turn.report(AgentEvent::Usage(usage)).await;
    turn.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
}

async fn waiting(h: &mut Harness) -> TaskId {
    let sent = h.send("c", "m1").await;
    refuse(h.turn().await).await;
    let settled = h.engine.settled(&alice(), sent.reader).await.expect("the task settles");
    assert_eq!(settled.task.status.state, TaskState::AuthRequired);
    assert_eq!(reason_of(&settled.task), "No key.");
    sent.task
}

#[tokio::test]
async fn a_message_prompts_again_and_the_usage_adds_up() {
    let mut h = start();
    let task = waiting(&mut h).await;
    assert!(h.agent.log().aborted.is_empty(), "nothing runs that could be aborted");
    let sent = h.engine.send(&alice(), on(&task, "m2")).await.unwrap();
    assert_eq!(sent.task, task);
    let turn = h.turn().await;
    assert_eq!(turn.request.input, [input("m2")]);
    assert!(turn.request.resume.is_none());
    refuse(turn).await;
    h.reaches(&task, TaskState::AuthRequired).await;
    while h.task(&task).await.status.state != TaskState::AuthRequired {
        tokio::task::yield_now().await;
    }
    h.engine.send(&alice(), on(&task, "m3")).await.unwrap();
    let turn = h.turn().await;
    turn.say("prt_1", "done").await;
    turn.report(AgentEvent::Usage(Usage { input: 4, total: 4, ..Usage::default() })).await;
    turn.complete().await;
    let task = h.reaches(&task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "done");
    assert_eq!(task.usage.unwrap().input, 3 + 3 + 4);
    assert_eq!(task.history.len(), 3);
}

#[tokio::test]
async fn an_agent_that_wants_a_login_before_it_begins_makes_the_task_wait() {
    let login = || Error::new(ErrorKind::AgentUnavailable, "Log in.").permanent().mark_needs_credentials();
    let mut h = start();
    h.agent.refuse_next_session(login());
    let sent = h.send("c", "m1").await;
    let settled = h.engine.settled(&alice(), sent.reader).await.expect("the task settles");
    assert_eq!(
        (settled.task.status.state, reason_of(&settled.task)),
        (TaskState::AuthRequired, "Log in.".to_owned())
    );

    h.agent.refuse_next(login());
    h.engine.send(&alice(), on(&sent.task, "m2")).await.unwrap();
    h.reaches(&sent.task, TaskState::Working).await;
    while h.task(&sent.task).await.status.state != TaskState::AuthRequired {
        tokio::task::yield_now().await;
    }
    h.engine.send(&alice(), on(&sent.task, "m3")).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.input, [input("m3")]);
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert!(h.agent.log().aborted.is_empty(), "nothing ran that could be aborted");
}

#[tokio::test]
async fn the_retrying_message_may_choose_another_model() {
    let mut h = start();
    let task = waiting(&mut h).await;
    let mut again = on(&task, "m2");
    again.options.prompt.model = ModelName::parse("other/model");
    h.engine.send(&alice(), again).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.options.model, ModelName::parse("other/model"));
}

#[tokio::test]
async fn after_a_restart_a_running_turn_goes_before_a_retry() {
    let mut h = start();
    let old = waiting(&mut h).await;
    let new = h.send("c", "m2").await;
    let _running = h.turn().await;
    h.engine.send(&alice(), on(&old, "m3")).await.unwrap();
    assert_eq!(h.task(&old).await.status.state, TaskState::Submitted);
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.task, new.task);
    turn.complete().await;
    assert_eq!(h.turn().await.request.task, old);
}

#[tokio::test]
async fn the_context_continues_while_a_task_waits_for_credentials() {
    let mut h = start();
    let task = waiting(&mut h).await;
    h.send("c", "m2").await;
    let other = h.turn().await;
    assert_eq!(other.request.input, [input("m2")]);
    // The retried task runs behind the messages that came before its own.
    h.engine.send(&alice(), on(&task, "m3")).await.unwrap();
    assert_eq!(h.task(&task).await.status.state, TaskState::Submitted);
    other.complete().await;
    assert_eq!(h.turn().await.request.task, task);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_asks_ends_the_wait_for_credentials_also_across_a_restart() {
    let asks = AskConfig { time_to_live: Some(Duration::from_mins(1)), ..AskConfig::default() };
    let config = EngineConfig { asks, ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config.clone());
    let task = waiting(&mut h).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let store = h.stop().await;

    let h = start_with(store, config);
    h.engine.recover().await.unwrap();
    // The test's clock starts again with the engine, and is not behind.
    tokio::time::sleep(Duration::from_secs(61)).await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "The agent was not given its credentials in time.");
    assert!(h.agent.log().prompted.is_empty());
}

#[tokio::test]
async fn a_task_that_waits_for_credentials_can_be_canceled_and_survives_a_restart() {
    let mut h = start();
    let task = waiting(&mut h).await;
    h.engine.send(&alice(), on(&task, "m2")).await.unwrap();
    refuse(h.turn().await).await;
    while h.task(&task).await.status.state != TaskState::AuthRequired {
        tokio::task::yield_now().await;
    }
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    h.engine.send(&alice(), on(&task, "m3")).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.input, [input("m3")]);
    assert!(turn.request.resume.is_none(), "nothing of it runs");
    refuse(turn).await;
    while h.task(&task).await.status.state != TaskState::AuthRequired {
        tokio::task::yield_now().await;
    }
    let canceled = h.engine.cancel(&alice(), &task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
}
