//! Text that OpenCode lost before the gateway received all of it: then, and only then, the end of the turn mentions it.

use longshore_testkit::fake_opencode::{Gate, Tool, Turn as Script};
use serde_json::{Value, json};

use super::*;

const LOST: &str =
    " Text that OpenCode wrote and did not keep, while the gateway could not hear it, may be missing.";

fn before(gate: &Gate) -> Script {
    Script::new().text("kept ", 1).hold(gate)
}

/// A turn that stops in an unfinished text.
async fn in_mid_text(bench: &Bench, gate: &Gate, script: Script) -> (Session, Turn, Value) {
    let (session, _, turn) = bench.start_held(script, gate).await;
    let messages = bench.fake.messages(session.id.as_str());
    let part = json!({"id": "prt_open", "messageID": messages.last().expect("a step")["info"]["id"],
        "sessionID": session.id.as_str(), "type": "text", "text": "", "time": {"start": 1}});
    bench.fake.emit("message.part.updated", json!({"sessionID": session.id.as_str(), "part": part})).await;
    append(bench, &part, "heard").await;
    (session, turn, part)
}

async fn append(bench: &Bench, part: &Value, text: &str) {
    let delta = json!({"sessionID": part["sessionID"], "messageID": part["messageID"], "partID": part["id"],
        "field": "text", "delta": text});
    bench.fake.emit("message.part.delta", delta).await;
}

/// Whether the end marks the loss for programs too.
fn is_lacking(events: &[AgentEvent]) -> bool {
    matches!(events.last(), Some(AgentEvent::Ended(Outcome::Incomplete(_))))
}

#[tokio::test]
async fn a_kill_during_a_text_is_reported_as_a_loss() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, mut turn, _) = in_mid_text(&bench, &gate, before(&gate).text("never", 1)).await;
    let received =
        until(&mut turn, |event| matches!(event, AgentEvent::Text { text, .. } if text == "heard")).await;
    bench.fake.kill().await;
    bench.fake.restart();
    let rest = all(turn).await;
    let events: Vec<AgentEvent> = received.into_iter().chain(rest).collect();
    assert_eq!(text_of(&events), "kept heard");
    let end = outcome(&events);
    assert!(
        end.starts_with("failed: OpenCode stopped in the middle of the turn") && end.ends_with(LOST),
        "{end}"
    );
    assert!(is_lacking(&events), "{end}");
    bench.stop().await;
}

#[tokio::test]
async fn a_kill_while_a_tool_runs_loses_no_text() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("kept", 1).guarded_tool(Tool::bash("make", "")).text("never", 1));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.expect("the turn starts");
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    bench.fake.kill().await;
    bench.fake.restart();
    events.extend(all(turn).await);
    assert!(outcome(&events).ends_with("the prompt is not sent again."), "{}", outcome(&events));
    assert!(!is_lacking(&events), "{}", outcome(&events));
    bench.stop().await;
}

/// Between two texts OpenCode may have begun the next one after the stream ended and before it was killed.
#[tokio::test]
async fn a_kill_between_two_texts_may_have_lost_the_second() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, _, turn) =
        bench.start_held(Script::new().text("kept", 1).hold(&gate).text("never", 1), &gate).await;
    bench.fake.kill().await;
    bench.fake.restart();
    let events = all(turn).await;
    let end = outcome(&events);
    assert!(
        end.starts_with("failed: OpenCode stopped in the middle of the turn") && end.ends_with(LOST),
        "{end}"
    );
    assert_eq!(text_of(&events), "kept");
    assert_eq!(bench.fake.prompts().len(), 1, "never a second prompt");
    assert!(is_lacking(&events), "{}", outcome(&events));
    bench.stop().await;
}

/// The end of a text brings what was missed.
#[tokio::test]
async fn a_text_that_ends_after_a_gap_is_complete() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, turn, mut part) = in_mid_text(&bench, &gate, before(&gate).text("never", 1)).await;
    bench.fake.end_streams();
    append(&bench, &part, " unheard").await;
    bench.fake.wait_for_streams(2).await;
    part["text"] = "heard unheard".into();
    part["time"]["end"] = 2.into();
    bench.fake.emit("message.part.updated", json!({"sessionID": part["sessionID"], "part": part})).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!(text_of(&events), "kept heard unheardnever");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

/// Another client stops the turn, and OpenCode then stores the text that it had.
#[tokio::test]
async fn an_abort_during_a_text_loses_no_text() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, turn, part) = in_mid_text(&bench, &gate, before(&gate).silence()).await;
    bench.fake.end_streams();
    append(&bench, &part, " unheard").await;
    bench.fake.wait_for_streams(2).await;
    gate.open();
    bench.fake.dispose_instance().await;
    let events = all(turn).await;
    assert_eq!(text_of(&events), "kept heard unheard");
    assert_eq!(outcome(&events), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

/// Events were missed, and meanwhile the session was deleted.
#[tokio::test]
async fn a_deleted_session_may_have_lost_text() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, turn, _) = in_mid_text(&bench, &gate, before(&gate).text("never", 1)).await;
    bench.fake.forget_session(session.id.as_str());
    bench.fake.end_streams();
    let events = all(turn).await;
    assert!(outcome(&events).ends_with(LOST), "{}", outcome(&events));
    assert!(is_lacking(&events), "{}", outcome(&events));
    bench.stop().await;
}
