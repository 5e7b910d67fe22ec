//! The metrics of tasks, turns, asks and cancels.

use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_meter::label;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Outcome, TaskState};
use longshore_testkit::faulty_store::FaultyStore;

use crate::asks::{once, request};
use crate::harness::{Harness, alice, start, start_with};
use crate::sub_agents::tool;

/// The value of a sample on the metrics page.
fn sample(h: &Harness, name: &str) -> Option<String> {
    h.engine.update_gauges();
    let mut page = String::new();
    h.metrics.render(&mut page);
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map(str::to_owned)
}

fn count(h: &Harness, name: &str) -> String {
    sample(h, name).unwrap_or_else(|| panic!("{name} is not on the page"))
}

fn changes_to(h: &Harness, state: label::TaskState) -> u64 {
    h.metrics.tasks.of(state).get()
}

#[tokio::test]
async fn every_state_change_of_a_task_is_counted() {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    turn.ask("per_1").await;
    h.reaches(&first, TaskState::InputRequired).await;
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    assert_eq!(count(&h, "longshore_tasks_unfinished"), "1");
    turn.complete().await;
    h.reaches(&first, TaskState::Completed).await;
    let second = h.send("c", "m2").await.task;
    h.turn().await.report(AgentEvent::Ended(Outcome::Failed(Failure::new("No.")))).await;
    h.reaches(&second, TaskState::Failed).await;
    let third = h.send("c", "m3").await.task;
    h.turn().await.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
    h.reaches(&third, TaskState::AuthRequired).await;
    h.engine.cancel(&alice(), &third).await.unwrap();
    for (state, changes) in [
        (label::TaskState::Submitted, 3),
        (label::TaskState::Working, 4),
        (label::TaskState::InputRequired, 1),
        (label::TaskState::AuthRequired, 1),
        (label::TaskState::Completed, 1),
        (label::TaskState::Failed, 1),
        (label::TaskState::Canceled, 1),
        (label::TaskState::Rejected, 0),
    ] {
        assert_eq!(changes_to(&h, state), changes, "{state:?}");
    }
    while count(&h, "longshore_tasks_unfinished") != "0" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_counted_when_it_is_in_the_log() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    store.appends.hold();
    let task = h.send("c", "m1").await.task;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(changes_to(&h, label::TaskState::Working), 0, "its append is not done");
    store.appends.release(1);
    let _turn = h.turn().await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    assert_eq!(changes_to(&h, label::TaskState::Working), 1);
}

#[tokio::test(start_paused = true)]
async fn open_asks_and_the_age_of_the_oldest_are_counted_across_a_restart() {
    let mut h = start();
    assert_eq!(count(&h, "interrupt_oldest_age_seconds"), "0");
    let task = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    turn.ask("per_1").await;
    h.reaches(&task, TaskState::InputRequired).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    turn.ask("per_2").await;
    while count(&h, "interrupt_open") != "2" {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&h, "interrupt_requests_total"), "2");
    assert_eq!(count(&h, "interrupt_oldest_age_seconds"), "10");
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    assert_eq!(count(&h, "interrupt_open"), "1");
    assert_eq!(count(&h, "interrupt_oldest_age_seconds"), "0");
    assert_eq!(count(&h, "interrupt_resolved_total"), "1");
    assert_eq!(count(&h, "interrupt_open_seconds_sum"), "10");
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert_eq!(count(&h, "interrupt_open"), "1");
    assert_eq!(count(&h, "interrupt_requests_total"), "0", "it was asked before");
    turn.catch_up().await;
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    while count(&h, "interrupt_resolved_total") != "1" {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&h, "interrupt_open"), "0", "what was asked ended with the task");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_counted_with_the_outcome_of_its_turn() {
    let mut h = start();
    let duration = |outcome: &str| format!("a2a_cancel_duration_ms{{abort_outcome=\"{outcome}\"}}");
    let noted = async |h: &Harness, outcome: &str| {
        while sample(h, &duration(outcome)).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        count(h, &duration(outcome))
    };
    // A running turn stops.
    let first = h.send("c1", "m1").await.task;
    let _turn = h.turn().await;
    h.engine.cancel(&alice(), &first).await.unwrap();
    noted(&h, "success").await;
    // The task is over.
    h.engine.cancel(&alice(), &first).await.unwrap_err();
    noted(&h, "no_running_task").await;
    // The agent refuses to stop the turn, or does not respond.
    let second = h.send("c2", "m2").await.task;
    let _turn = h.turn().await;
    h.agent.refuse_next_abort(Error::new(ErrorKind::Internal, "No."));
    h.engine.cancel(&alice(), &second).await.unwrap();
    noted(&h, "error").await;
    let third = h.send("c3", "m3").await.task;
    let _turn = h.turn().await;
    h.agent.aborts.hold();
    h.engine.cancel(&alice(), &third).await.unwrap();
    let waited: f64 = noted(&h, "timeout").await.parse().unwrap();
    let limit = EngineConfig::default().cancel_abort_timeout.as_secs_f64() * 1000.0;
    assert!((limit..limit + 100.0).contains(&waited), "{waited}");
    // The task has no session yet.
    h.agent.opens.hold();
    let fourth = h.send("c4", "m4").await.task;
    h.engine.cancel(&alice(), &fourth).await.unwrap();
    noted(&h, "no_session_binding").await;
    for (name, times) in [
        ("a2a_cancel_requests_total", "5"),
        ("a2a_cancel_abort_attempt_total", "3"),
        ("a2a_cancel_abort_success_total", "1"),
        ("a2a_cancel_abort_error_total", "1"),
        ("a2a_cancel_abort_timeout_total", "1"),
        ("a2a_cancel_errors_total", "0"),
    ] {
        assert_eq!(count(&h, name), times, "{name}");
    }
}

#[tokio::test]
async fn tool_updates_are_counted_and_other_output_is_not() {
    let mut h = start();
    let task = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    turn.say("prt_1", "words").await;
    turn.report(tool("call_1", "ses_child")).await;
    turn.report(tool("call_2", "ses_other")).await;
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    // The end of the task closed both calls.
    assert_eq!(count(&h, "tool_call_chunks_emitted_total"), "4");
}
