//! Extensions: the metadata that each reader gets, and the extensions that a response names.

use longshore_edge::Extension;
use longshore_model::{
    AgentEvent, BlockKind, BlockRef, Cost, Json, MessageId, Progress, ProgressKind, SessionNote, ToolCall,
    ToolStatus, Usage,
};
use longshore_testkit::scripted_agent::{StartedTurn, text_block};
use serde_json::{Value, json};

use crate::support::{Frame, Gateway, HINTS, INTERRUPT, RECOVERY, SESSION, message, redacted};

const TOOLS: &str = "urn:iac-code:a2a:artifact-metadata:v1";
const THINKING: &str = "urn:iac-code:a2a:thinking-exposure:v1";

/// All extensions with metadata.
fn all() -> String {
    [SESSION, HINTS, INTERRUPT].join(",")
}

/// Plays a turn with every kind of report of an agent.
async fn play(turn: StartedTurn) {
    let mut block = text_block("prt_1");
    block.kind = BlockKind::Reasoning;
    block.message = Some(MessageId::parse("msg_1").unwrap());
    let call = ToolCall {
        title: Some("List".to_owned()),
        subtitle: Some("2 files".to_owned()),
        output: Some("ok".to_owned()),
        ..ToolCall::new("call_1", "bash", ToolStatus::Completed)
    };
    let session = SessionNote { id: turn.request.session.id.clone(), title: Some("A title".to_owned()) };
    let details = Json::parse(r#"{"reason":"stop"}"#);
    let usage = Usage { input: 3, output: 2, total: 5, cost: Cost(1_500_000), ..Usage::default() };
    turn.report(AgentEvent::Session(session)).await;
    turn.report(AgentEvent::Text { block, text: "Hm.".to_owned() }).await;
    let block = BlockRef { kind: BlockKind::ToolCall, ..text_block("prt_2") };
    turn.report(AgentEvent::Tool { block, call: Box::new(call) }).await;
    turn.report(AgentEvent::Progress(Progress { kind: ProgressKind::StepFinished, details })).await;
    turn.report(AgentEvent::Usage(usage)).await;
    turn.complete().await;
}

/// A value without the metadata of extensions.
fn without_notes(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_notes).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key, without_notes(value)))
            .filter(|(key, value)| *key != "shared" && (*key != "metadata" || *value != json!({})))
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        other => other.clone(),
    }
}

fn plain<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Vec<(Option<u64>, Value)> {
    frames.into_iter().map(|frame| (frame.id, without_notes(&frame.data))).collect()
}

fn states(frames: &[Frame]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame.data["statusUpdate"]["status"]["state"].as_str()).collect()
}

#[tokio::test]
async fn two_readers_of_one_task_get_the_same_events_with_and_without_the_metadata() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");
    let subscribe = |extensions: &str| {
        gateway.call("GET", &path).header("last-event-id", "0").header("a2a-extensions", extensions)
    };
    let mut bare = subscribe("").stream().await;
    let mut full = subscribe(&all()).stream().await;
    let mut partly = subscribe(HINTS).stream().await;
    play(turn).await;
    let (bare, full, partly) = (bare.rest().await, full.rest().await, partly.rest().await);
    // The others get further updates that only repeat the status and have notes.
    for more in [&full, &partly] {
        let is_common = |frame: &&Frame| bare.iter().any(|shown| shown.id == frame.id);
        let (common, repeated): (Vec<_>, Vec<_>) = more.iter().partition(is_common);
        assert_eq!(plain(common), plain(&bare));
        assert!(repeated.iter().all(|frame| frame.data["statusUpdate"]["metadata"]["shared"].is_object()));
    }
    assert_eq!((bare.len(), partly.len(), full.len()), (5, 6, 7));
    assert_eq!(states(&bare), ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
    assert!(bare.iter().all(|frame| !frame.raw.contains("shared")), "{bare:?}");
    assert!(partly.iter().all(|frame| !frame.raw.contains("ses_1")), "{partly:?}");
    let shown: Vec<Value> = full.into_iter().map(|frame| redacted(frame.data)).collect();
    insta::assert_snapshot!(shown.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));

    // From the log, after the end of the task: again each reader gets its own view.
    for (extensions, before) in [("", &bare), (HINTS, &partly)] {
        assert_eq!(&subscribe(extensions).stream().await.rest().await, before);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn every_response_with_a_task_has_its_metadata() {
    let mut gateway = Gateway::manual().await;
    let body = json!({"message": message("m1", "go")});
    let sending = gateway.rpc("SendMessage", &body).header("a2a-extensions", &all()).send();
    let (sent, ()) = tokio::join!(sending, async { play(gateway.turns.recv().await.unwrap()).await });
    let sent = sent.json()["result"]["task"].clone();
    assert_eq!(sent["metadata"]["shared"]["session"], json!({"id": "ses_1", "title": "A title"}));
    assert_eq!(sent["metadata"]["shared"]["usage"]["total_tokens"], 5);
    assert_eq!(sent["artifacts"][0]["metadata"]["shared"]["stream"]["block_type"], "reasoning");

    let id = sent["id"].as_str().unwrap();
    let ways = [
        (gateway.call("GET", &format!("/tasks/{id}")), ""),
        (gateway.rpc("GetTask", &json!({"id": id})), "/result"),
        (gateway.call("GET", "/tasks?includeArtifacts=true"), "/tasks/0"),
        (gateway.rpc("ListTasks", &json!({"includeArtifacts": true})), "/result/tasks/0"),
        (gateway.call("POST", "/message:send").json(&body), "/task"),
    ];
    for (call, pointer) in ways {
        let full = call.clone().header("x-a2a-extensions", &all()).send().await.json();
        let bare = call.send().await.json();
        let (mut full, mut bare) =
            (full.pointer(pointer).unwrap().clone(), bare.pointer(pointer).unwrap().clone());
        for task in [&mut full, &mut bare] {
            // Lists leave the history out.
            task["history"] = sent["history"].clone();
        }
        assert_eq!(full, sent, "{pointer}");
        assert_eq!(bare, without_notes(&sent), "{pointer}");
    }

    // A task that is canceled, and one that is only read.
    let (id, turn) = gateway.working_task("m2").await;
    let session = SessionNote { id: turn.request.session.id.clone(), title: None };
    let path = format!("/tasks/{id}:subscribe");
    let mut events = gateway.call("GET", &path).header("a2a-extensions", SESSION).stream().await;
    events.next().await.unwrap();
    turn.report(AgentEvent::Session(session)).await;
    events.next().await.unwrap();
    let mut full = gateway.call("GET", &path).header("a2a-extensions", SESSION).stream().await;
    let opening = full.next().await.unwrap();
    let expected = json!({"shared": {"session": {"id": turn.request.session.id.as_str()}}});
    assert_eq!(opening.data["task"]["metadata"], expected);
    let canceled =
        gateway.rpc("CancelTask", &json!({"id": id})).header("a2a-extensions", SESSION).send().await;
    assert_eq!(canceled.json()["result"]["metadata"], expected);
    gateway.stop().await;
}

#[tokio::test]
async fn a_response_names_the_extensions_that_applied() {
    let gateway = Gateway::echoing().await;
    let body = json!({"message": message("m1", "hi")});
    // Each in the spelling of the request.
    let session = Extension::SessionBinding.uri_v03();
    let core = format!("{session},{HINTS}");
    let all_asked = format!("{session},{HINTS},{RECOVERY}");
    let asked = format!(" {HINTS} , urn:x,{RECOVERY}, {session}");
    let cases = [
        // Cacheable documents do not depend on the extensions of one client.
        (gateway.call("GET", "/.well-known/agent-card.json"), ""),
        (gateway.call("HEAD", "/.well-known/agent-card.json"), ""),
        (gateway.call("GET", "/openapi.json").header("authorization", ""), ""),
        (gateway.call("GET", "/livez"), ""),
        (gateway.call("GET", "/extendedAgentCard"), all_asked.as_str()),
        (gateway.call("POST", "/message:send").json(&body), core.as_str()),
        (gateway.call("POST", "/message:stream").json(&body), &core),
        (gateway.rpc("SendMessage", &body), &core),
        (gateway.rpc("SendStreamingMessage", &body), &core),
        (gateway.call("GET", "/tasks"), &core),
        (gateway.rpc("GetTask", &json!({"id": "nope"})), &core),
        (gateway.rpc("nonsense", &json!({})), &core),
        (gateway.rpc("opencode.questions.list", &json!({})), RECOVERY),
        (gateway.rpc("opencode.questions.list", &json!({"x": 1})), RECOVERY),
        (gateway.rpc("a2a.interrupt.question.reject", &json!({})), ""),
        (gateway.call("GET", "/tasks/nope"), ""),
        (gateway.call("GET", "/nope"), ""),
        (gateway.rpc("ListTasks", &json!({})).header("authorization", ""), ""),
    ];
    for (index, (call, expected)) in cases.into_iter().enumerate() {
        let silent = call.clone().send().await;
        assert_eq!(silent.headers.get("a2a-extensions"), None, "case {index}");
        for name in ["a2a-extensions", "x-a2a-extensions"] {
            let answer = call.clone().header(name, &asked).send().await;
            assert_eq!(answer.header("a2a-extensions"), expected, "case {index}");
        }
    }
    gateway.stop().await;
}

/// The `metadata.iac_code` of each event that has one.
fn details(frames: &[Frame]) -> Vec<Value> {
    let updates = frames.iter().filter_map(|frame| frame.data.as_object()?.values().next());
    updates.filter_map(|update| update["metadata"].get("iac_code").cloned()).collect()
}

#[tokio::test]
async fn callers_that_activate_the_extensions_of_iac_code_get_its_details() {
    let mut gateway = Gateway::manual().await;
    let (id, turn) = gateway.working_task("m1").await;
    let path = format!("/tasks/{id}:subscribe");
    let subscribe = |extensions: &str| {
        gateway.call("GET", &path).header("last-event-id", "0").header("a2a-extensions", extensions)
    };
    let both = [TOOLS, THINKING].join(",");
    let sets = ["", TOOLS, THINKING, &both];
    let mut streams = Vec::new();
    for set in sets {
        streams.push(subscribe(set).stream().await);
    }
    play(turn).await;
    let tool =
        json!({"tool": {"status": "completed", "toolUseId": "call_1", "name": "bash", "result": "ok"}});
    let thinking = json!({"thinking": {"type": "raw_thinking", "text": "Hm."}});
    let usage = json!({"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}});
    let expected = [vec![], vec![&tool, &usage], vec![&thinking], vec![&thinking, &tool, &usage]];
    for ((set, stream), expected) in sets.into_iter().zip(&mut streams).zip(expected) {
        let frames = stream.rest().await;
        assert_eq!(details(&frames).iter().collect::<Vec<_>>(), expected, "{set}");
        assert_eq!(subscribe(set).stream().await.rest().await, frames, "{set}, from the log");
    }
    let got = gateway.call("GET", &format!("/tasks/{id}")).header("a2a-extensions", TOOLS).send().await;
    assert_eq!(got.json()["metadata"]["iac_code"], usage);
    assert_eq!(got.header("a2a-extensions"), TOOLS);
    // No client of 0.3 knows these names.
    let old = gateway.call("GET", &format!("/v1/tasks/{id}")).header("x-a2a-extensions", &both).send().await;
    assert!(!String::from_utf8_lossy(&old.body).contains("iac_code"));
    gateway.stop().await;
}
