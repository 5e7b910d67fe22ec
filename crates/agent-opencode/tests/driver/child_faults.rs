//! OpenCode is unavailable for a moment when a sub-agent's messages are read.

use longshore_model::ToolStatus;
use longshore_testkit::fake_opencode::{Delivery, Fault, Gate};

use super::child_turns::{only, turns};
use super::stage::{Stage, stage, start_root};
use super::*;

const MESSAGES: &str = "/session/ses_child/message";

/// A sub-agent that ends without an event reaching the gateway.
async fn end_without_events(bench: &Bench, stage: &Stage<'_>, root: &str, step: &str) {
    stage.start_answering_child(root, step).await;
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    stage.text("ses_child", "msg_c1", "all of it").await;
    stage.finish("ses_child", "msg_c1", "msg_c", "stop").await;
    stage.idle("ses_child").await;
    bench.fake.deliver(Delivery::Live);
}

fn check(events: &[AgentEvent]) {
    let child = only(events);
    assert_eq!(result(&child.reports), ended("completed", "all of it"));
    assert_eq!(outcome(events), "completed");
}

#[tokio::test]
async fn a_fault_during_the_turn_is_retried() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(30));
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let stage = stage(&bench);
    end_without_events(&bench, &stage, session.id.as_str(), &step).await;
    // The retries take more than three seconds.
    bench.fake.fault_times("GET", MESSAGES, Fault::Status(503), 5);
    bench.fake.end_streams();
    bench.fake.wait_for_request("GET", MESSAGES, 1).await;
    stage.call(session.id.as_str(), &step, "call_1", "ses_child", "completed").await;
    gate.open();
    check(&all(turn).await);
    bench.stop().await;
}

#[tokio::test]
async fn a_fault_at_the_end_of_the_turn_is_retried() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let stage = stage(&bench);
    end_without_events(&bench, &stage, session.id.as_str(), &step).await;
    bench.fake.fault_times("GET", MESSAGES, Fault::CutBefore, 2);
    gate.open();
    check(&all(turn).await);
    bench.stop().await;
}

/// Only this one list is invalid.
#[tokio::test]
async fn a_turn_ends_without_a_list_that_stays_invalid() {
    let change = |config: &mut OpenCodeConfig| config.watchdog.invalid_responses = Duration::from_secs(1);
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change);
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let stage = stage(&bench);
    end_without_events(&bench, &stage, session.id.as_str(), &step).await;
    bench.fake.fault_always("GET", MESSAGES, Fault::Body("{\"no\": \"list\"}"));
    bench.fake.end_streams();
    gate.open();
    let events = all(turn).await;
    let end = outcome(&only(&events).reports);
    assert!(end.starts_with("failed: ") && end.ends_with("may be missing."), "{end}");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

/// Only this one request gets no response.
#[tokio::test]
async fn the_agents_own_reports_do_not_wait_for_ever_for_a_list_without_a_response() {
    let check = async |fault: Fault| {
        let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(1));
        let gate = Gate::new();
        let (session, _, mut turn, step) = start_root(&bench, &gate).await;
        let stage = stage(&bench);
        end_without_events(&bench, &stage, session.id.as_str(), &step).await;
        bench.fake.fault_always("GET", MESSAGES, fault);
        bench.fake.end_streams();
        // One request for the agent and one for the sub-agent.
        bench.fake.wait_for_request("GET", "/session/status", 2).await;
        // The turn still runs.
        let root = session.id.as_str();
        stage.call(root, &step, "call_1", "ses_child", "completed").await;
        let is_over = |event: &AgentEvent| matches!(event, AgentEvent::Tool { call, .. } if call.status == ToolStatus::Completed);
        let mut events = until(&mut turn, is_over).await;
        gate.open();
        events.extend(all(turn).await);
        let end = outcome(&only(&events).reports);
        assert!(end.starts_with("failed: ") && end.ends_with("may be missing."), "{end}");
        assert_eq!(outcome(&events), "completed");
        bench.stop().await;
    };
    tokio::join!(check(Fault::Hang), check(Fault::CutBefore));
}

/// A sub-agent still runs after its call returned, is called again long after the last read, and its messages are read as
/// patiently as any others.
#[tokio::test]
async fn a_late_read_of_a_sub_agent_gets_the_full_retry_time() {
    let patience = Duration::from_secs(2);
    let bench = Bench::on(FakeOpenCode::start(), None, patience);
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_answering_child(root, &step).await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    // The messages are read, because the sub-agent still runs.
    bench.fake.wait_for_request("GET", MESSAGES, 1).await;
    // Only time makes this read an old one.
    tokio::time::sleep(patience + Duration::from_millis(500)).await;
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    stage.text("ses_child", "msg_c1", "all of it").await;
    stage.finish("ses_child", "msg_c1", "msg_c", "stop").await;
    stage.idle("ses_child").await;
    bench.fake.deliver(Delivery::Live);
    bench.fake.fault_times("GET", MESSAGES, Fault::Status(503), 2);
    stage.call(root, &step, "call_2", "ses_child", "running").await;
    let is_called_again =
        |event: &AgentEvent| matches!(event, AgentEvent::Tool { call, .. } if call.call_id == "call_2");
    let mut events = until(&mut turn, is_called_again).await;
    stage.work("ses_child", "msg_d", "more of it").await;
    stage.call(root, &step, "call_2", "ses_child", "completed").await;
    gate.open();
    events.extend(all(turn).await);
    let texts: Vec<String> = turns(&events, &[]).iter().map(|turn| text_of(&turn.reports)).collect();
    assert_eq!(texts, ["all of it", "more of it"]);
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}
