//! Text that OpenCode forgot before anybody had all of it: the end of the turn says so, and only then.

use longshore_testkit::fake_opencode::{Gate, Tool, Turn as Script};
use serde_json::{Value, json};

use super::*;

const LOST: &str =
    " Text that OpenCode wrote and did not keep, while the gateway could not hear it, may be missing.";

fn before(gate: &Gate) -> Script {
    Script::new().text("kept ", 1).hold(gate)
}

/// A turn that stands in a text of its own making, without an end.
async fn in_mid_text(bench: &Bench, gate: &Gate, script: Script) -> (Session, Turn, Value) {
    bench.fake.queue(script);
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
    gate.reached().await;
    let messages = bench.fake.messages(session.id.as_str());
    let part = json!({"id": "prt_open", "messageID": messages.last().expect("a step")["info"]["id"],
        "sessionID": session.id.as_str(), "type": "text", "text": "", "time": {"start": 1}});
    bench.fake.emit("message.part.updated", json!({"sessionID": session.id.as_str(), "part": part})).await;
    say(bench, &part, "heard").await;
    (session, turn, part)
}

async fn say(bench: &Bench, part: &Value, text: &str) {
    let delta = json!({"sessionID": part["sessionID"], "messageID": part["messageID"], "partID": part["id"],
        "field": "text", "delta": text});
    bench.fake.emit("message.part.delta", delta).await;
}

/// Whether the end says so for programs too.
fn is_lacking(events: &[AgentEvent]) -> bool {
    matches!(events.last(), Some(AgentEvent::Ended(Outcome::Lacking(_))))
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_text_is_told_as_a_loss() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, mut turn, _) = in_mid_text(&bench, &gate, before(&gate).text("never", 1)).await;
    let heard =
        until(&mut turn, |event| matches!(event, AgentEvent::Text { text, .. } if text == "heard")).await;
    bench.fake.kill().await;
    bench.fake.come_back();
    let rest = all(turn).await;
    let events: Vec<AgentEvent> = heard.into_iter().chain(rest).collect();
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
async fn a_kill_while_a_tool_runs_loses_none() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("kept", 1).guarded_tool(Tool::bash("make", "")).text("never", 1));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.expect("the turn starts");
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
    bench.fake.kill().await;
    bench.fake.come_back();
    events.extend(all(turn).await);
    assert!(outcome(&events).ends_with("the prompt is not sent again."), "{}", outcome(&events));
    assert!(!is_lacking(&events), "{}", outcome(&events));
    bench.stop().await;
}

/// Between two texts OpenCode may have begun the next one after the stream ended and before it was killed.
#[tokio::test]
async fn a_kill_between_texts_may_have_lost_the_next() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("kept", 1).hold(&gate).text("never", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
    gate.reached().await;
    bench.fake.kill().await;
    bench.fake.come_back();
    let events = all(turn).await;
    assert!(outcome(&events).ends_with(LOST), "{}", outcome(&events));
    assert!(is_lacking(&events), "{}", outcome(&events));
    bench.stop().await;
}

/// What was said while nobody listened comes with the text's end.
#[tokio::test]
async fn a_text_that_comes_to_its_end_is_whole() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, turn, mut part) = in_mid_text(&bench, &gate, before(&gate).text("never", 1)).await;
    bench.fake.end_streams();
    say(&bench, &part, " unheard").await;
    bench.fake.streams_opened(2).await;
    part["text"] = "heard unheard".into();
    part["time"]["end"] = 2.into();
    bench.fake.emit("message.part.updated", json!({"sessionID": part["sessionID"], "part": part})).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!(text_of(&events), "kept heard unheardnever");
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

/// Somebody stops the turn at OpenCode, which then writes down what it had said.
#[tokio::test]
async fn an_abort_in_the_middle_of_a_text_loses_none() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, turn, part) = in_mid_text(&bench, &gate, before(&gate).silence()).await;
    bench.fake.end_streams();
    say(&bench, &part, " unheard").await;
    bench.fake.streams_opened(2).await;
    gate.open();
    bench.fake.dispose_instance().await;
    let events = all(turn).await;
    assert_eq!(text_of(&events), "kept heard unheard");
    assert_eq!(outcome(&events), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

/// The gateway was away, and meanwhile somebody deleted the session.
#[tokio::test]
async fn a_session_that_is_gone_may_have_said_more() {
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
