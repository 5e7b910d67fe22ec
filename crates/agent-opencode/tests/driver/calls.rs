//! Unusual calls of sub-agents: in a session from elsewhere, twice at once, or again after a stop.

use longshore_model::{ChildEvent, SessionId};
use longshore_testkit::fake_opencode::Gate;
use serde_json::json;

use super::child_turns::turns;
use super::stage::{stage, start_root};
use super::*;

/// OpenCode accepts any session that a model names, also one that is not below the caller's.
#[tokio::test]
async fn an_ask_of_a_called_session_stays_open_over_a_gap_and_is_rejected_with_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    bench.fake.add_session("ses_old", bench.fake.directory());
    stage.call(root, &step, "call_1", "ses_old", "running").await;
    stage.user("ses_old", "msg_c", "a job").await;
    stage.begin("ses_old", "msg_c1", "msg_c").await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["rm"], "metadata": {}, "always": [],
        "tool": {"messageID": "msg_c1", "callID": "call_x"}});
    stage.emit("permission.asked", "ses_old", ask).await;
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    let reads = |bench: &Bench| bench.fake.log().iter().filter(|request| request.path == "/question").count();
    let before = reads(&bench);
    bench.fake.end_streams();
    bench.fake.wait_for_request("GET", "/question", before + 1).await;
    // The turn reports this text after everything that the lists made it report.
    stage.text("ses_old", "msg_c1", "so far").await;
    let is_text = |event: &AgentEvent| {
        matches!(event, AgentEvent::Child { event, .. }
            if matches!(&**event, ChildEvent::Report(AgentEvent::Text { .. } | AgentEvent::TextReplaced { .. })))
    };
    events.extend(until(&mut turn, is_text).await);
    let closed = |event: &AgentEvent| matches!(event, AgentEvent::AskClosed { .. });
    assert!(!events.iter().any(closed), "{events:#?}");

    assert_eq!(bench.fake.open_asks(), ["per_1"]);
    bench.agent.cancel(&session).await.unwrap();
    assert_eq!(bench.fake.open_asks(), [""; 0], "no ask is left that could end a later turn");
    all(turn).await;
    bench.stop().await;
}

/// Another client stops the sub-agent, and its caller goes on. OpenCode would keep the ask, and a later answer to it would
/// end another turn.
#[tokio::test]
async fn a_sub_agent_that_another_client_stops_leaves_no_ask_behind() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_answering_child(root, &step).await;
    let ask = json!({"id": "per_1", "permission": "bash", "patterns": ["rm"], "metadata": {}, "always": [],
        "tool": {"messageID": "msg_c1", "callID": "call_x"}});
    stage.emit("permission.asked", "ses_child", ask).await;
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    let now = stage.now();
    let aborted = json!({"id": "msg_c1", "role": "assistant", "parentID": "msg_c", "time": {"created": now, "completed": now},
        "error": {"name": "MessageAbortedError", "data": {"message": "Aborted"}}});
    stage.emit("message.updated", "ses_child", json!({"info": aborted})).await;
    stage.idle("ses_child").await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    gate.open();
    events.extend(until(&mut turn, |event| matches!(event, AgentEvent::Ended(_))).await);
    assert_eq!(outcome(&events), "completed");
    assert_eq!(bench.fake.open_asks(), [""; 0], "before the end is reported");
    let [child] = turns(&events, &[]).try_into().expect("one turn");
    assert_eq!(outcome(&child.reports), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

/// A sub-agent that the gateway stopped is called again, and then it ends by itself.
#[tokio::test]
async fn a_new_call_of_a_stopped_sub_agent_is_not_reported_as_stopped() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_answering_child(root, &step).await;
    let works = |event: &AgentEvent| matches!(event, AgentEvent::Child { event, .. } if matches!(&**event, ChildEvent::Working(_)));
    let mut events = until(&mut turn, works).await;
    let child = Session { id: SessionId::parse("ses_child").unwrap(), directory: session.directory.clone() };
    bench.agent.cancel(&child).await.unwrap();
    stage.finish("ses_child", "msg_c1", "msg_c", "tool-calls").await;
    stage.idle("ses_child").await;
    stage.call(root, &step, "call_1", "ses_child", "error").await;
    stage.call(root, &step, "call_2", "ses_child", "running").await;
    stage.user("ses_child", "msg_d", "a job").await;
    stage.begin("ses_child", "msg_d1", "msg_d").await;
    stage.finish("ses_child", "msg_d1", "msg_d", "tool-calls").await;
    stage.idle("ses_child").await;
    stage.call(root, &step, "call_2", "ses_child", "completed").await;
    gate.open();
    events.extend(all(turn).await);
    let ends: Vec<String> = turns(&events, &[]).iter().map(|turn| outcome(&turn.reports)).collect();
    let failed = "failed: OpenCode ended the turn after a tool call, without a reply.";
    assert_eq!(ends, ["canceled: The turn was stopped.", failed]);
    bench.stop().await;
}

/// Both calls share one task, which belongs to the first call.
#[tokio::test]
async fn of_two_simultaneous_calls_only_the_first_gets_the_child_task() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn, step) = start_root(&bench, &gate).await;
    let (stage, root) = (stage(&bench), session.id.as_str());
    stage.start_child(root, &step).await;
    stage.call(root, &step, "call_2", "ses_child", "running").await;
    stage.user("ses_child", "msg_d", "another job").await;
    stage.begin("ses_child", "msg_d1", "msg_d").await;
    stage.text("ses_child", "msg_d1", "both").await;
    stage.finish("ses_child", "msg_d1", "msg_d", "stop").await;
    stage.idle("ses_child").await;
    for call in ["call_1", "call_2"] {
        stage.call(root, &step, call, "ses_child", "completed").await;
    }
    gate.open();
    let events = all(turn).await;
    let [child] = turns(&events, &[]).try_into().expect("one turn");
    assert_eq!(result(&child.reports), ended("completed", "both"));
    for event in &events {
        if let AgentEvent::Tool { call, .. } = event {
            assert_eq!(call.child.is_some(), call.call_id == "call_1", "{call:?}");
        }
    }
    bench.stop().await;
}
