//! OpenCode is away for a moment when a sub-agent's messages are asked for.

use longshore_model::ToolStatus;
use longshore_testkit::fake_opencode::{Delivery, Fault, Gate};

use super::family::{only, turns};
use super::stage::{Stage, on_stage, stage};
use super::*;

const MESSAGES: &str = "/session/ses_child/message";

/// A sub-agent at work, which then comes to its end without anybody hearing it.
async fn unheard_end(bench: &Bench, stage: &Stage<'_>, root: &str, step: &str) {
    stage.create("ses_child", root).await;
    stage.call(root, step, "call_1", "ses_child", "running").await;
    stage.user("ses_child", "msg_c", "told so").await;
    stage.begin("ses_child", "msg_c1", "msg_c").await;
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    stage.text("ses_child", "msg_c1", "all of it").await;
    stage.finish("ses_child", "msg_c1", "msg_c", "stop").await;
    stage.idle("ses_child").await;
    bench.fake.deliver(Delivery::Live);
}

fn check(events: &[AgentEvent]) {
    let child = only(events);
    let (end, text) = (outcome(&child.reports), text_of(&child.reports));
    assert_eq!((end.as_str(), text.as_str()), ("completed", "all of it"));
    assert_eq!(outcome(events), "completed");
}

#[tokio::test]
async fn in_the_middle_of_the_turn() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(30));
    let gate = Gate::new();
    let (session, _, turn, step) = on_stage(&bench, &gate).await;
    let stage = stage(&bench);
    unheard_end(&bench, &stage, session.id.as_str(), &step).await;
    // Three seconds and more.
    bench.fake.fault_times("GET", MESSAGES, Fault::Status(503), 5);
    bench.fake.end_streams();
    bench.fake.requested("GET", MESSAGES, 1).await;
    stage.call(session.id.as_str(), &step, "call_1", "ses_child", "completed").await;
    gate.open();
    check(&all(turn).await);
    bench.stop().await;
}

#[tokio::test]
async fn when_the_turn_ends() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = on_stage(&bench, &gate).await;
    let stage = stage(&bench);
    unheard_end(&bench, &stage, session.id.as_str(), &step).await;
    bench.fake.fault_times("GET", MESSAGES, Fault::CutBefore, 2);
    gate.open();
    check(&all(turn).await);
    bench.stop().await;
}

/// Something is wrong with the one list only, and for good: the turn goes on without it.
#[tokio::test]
async fn for_good() {
    let change = |config: &mut OpenCodeConfig| config.watchdog.strange = Duration::from_secs(1);
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change);
    let gate = Gate::new();
    let (session, _, turn, step) = on_stage(&bench, &gate).await;
    let stage = stage(&bench);
    unheard_end(&bench, &stage, session.id.as_str(), &step).await;
    bench.fake.fault_always("GET", MESSAGES, Fault::Body("{\"no\": \"list\"}"));
    bench.fake.end_streams();
    gate.open();
    let events = all(turn).await;
    let told = outcome(&only(&events).reports);
    assert!(told.starts_with("failed: ") && told.ends_with("may be missing."), "{told}");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

/// The one list never comes, while all else goes on: the agent's own words and its end are told all the same.
#[tokio::test]
async fn without_an_answer() {
    for fault in [Fault::Hang, Fault::CutBefore] {
        let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(1));
        let gate = Gate::new();
        let (session, _, mut turn, step) = on_stage(&bench, &gate).await;
        let stage = stage(&bench);
        unheard_end(&bench, &stage, session.id.as_str(), &step).await;
        bench.fake.fault_always("GET", MESSAGES, fault);
        bench.fake.end_streams();
        // For the agent and for the sub-agent.
        bench.fake.requested("GET", "/session/status", 2).await;
        // While the turn still runs.
        let root = session.id.as_str();
        stage.call(root, &step, "call_1", "ses_child", "completed").await;
        let is_over = |event: &AgentEvent| matches!(event, AgentEvent::Tool { call, .. } if call.status == ToolStatus::Completed);
        let mut events = until(&mut turn, is_over).await;
        gate.open();
        events.extend(all(turn).await);
        let told = outcome(&only(&events).reports);
        assert!(told.starts_with("failed: ") && told.ends_with("may be missing."), "{told}");
        assert_eq!(outcome(&events), "completed");
        bench.stop().await;
    }
}

/// Long after the turn was last read: a sub-agent that its caller left at work is called again, and is asked for as
/// patiently as any other.
#[tokio::test]
async fn long_after_the_last_reading() {
    let patience = Duration::from_secs(2);
    let bench = Bench::on(FakeOpenCode::start(), None, patience);
    let gate = Gate::new();
    let (session, _, mut turn, step) = on_stage(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.create("ses_child", root).await;
    stage.call(root, &step, "call_1", "ses_child", "running").await;
    stage.user("ses_child", "msg_c", "told so").await;
    stage.begin("ses_child", "msg_c1", "msg_c").await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    // Looked into, because it still works.
    bench.fake.requested("GET", MESSAGES, 1).await;
    // Only time makes the reading an old one.
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
