//! Answers the asks of a recording as they were answered originally.

use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Play, RecordedAnswer};
use longshore_testkit::raw::{Frame, Frames};
use serde_json::{Value, json};

use crate::replay::fixture::{Fixture, extension_notes, until_settled};

/// How long a test waits for a frame.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer, and the gate at which the recording waits.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    answer: RecordedAnswer,
    gate: Gate,
}

/// Stops the recording after each answer, so that the effects of the answer and the next events always have the same
/// order.
pub(crate) fn hold(mut play: Play) -> (Play, Vec<HeldAnswer>) {
    let mut held = Vec::new();
    for answer in play.recording().answers() {
        let gate = Gate::new();
        play = play.hold_after_answer(&answer.request, &gate);
        held.push(HeldAnswer { answer, gate });
    }
    (play, held)
}

/// Reads the stream until the task settles. Answers each ask by the method of the extension, once everything before the
/// recorded answer has arrived.
pub(crate) async fn answer(fixture: &Fixture, mut stream: Frames, answers: Vec<HeldAnswer>) -> Vec<Frame> {
    let mut frames = Vec::new();
    for HeldAnswer { answer, gate } in answers {
        while !stands_at(&frames, &answer) {
            frames.push(next(&mut stream, &frames).await);
        }
        wait_for_sub_agents(fixture, &frames, &answer).await;
        let mut params = answer.body.clone();
        params["request_id"] = answer.request.as_str().into();
        let answered =
            fixture.client_with_extensions().rpc(&format!("a2a.interrupt.{}", answer.method), params).await;
        assert_eq!(*answered.result(), json!({"ok": true, "request_id": answer.request}));
        while !frames.iter().any(|frame| phase_of(frame, &answer.request) == Some("resolved")) {
            frames.push(next(&mut stream, &frames).await);
        }
        gate.open();
    }
    frames.extend(until_settled(stream).await);
    frames
}

/// Waits for the tool calls of sub-agents, which appear in the streams of their own tasks.
async fn wait_for_sub_agents(fixture: &Fixture, frames: &[Frame], answer: &RecordedAnswer) {
    let calls = frames.iter().filter_map(tool_call);
    let Some(child) = calls.filter_map(|call| call.get("child_task_id")).next_back() else { return };
    let log =
        fixture.client_with_extensions().rpc_stream("SubscribeToTask", json!({"id": child}), Some(0)).await;
    let mut log = log.unwrap_or_else(|answer| panic!("no log but {}", answer.body));
    let mut seen = Vec::new();
    let runs =
        |call: &Value, ask: &Value| call["call_id"] == ask["tool"]["callID"] && call["status"] == "running";
    while !answer.asked.iter().all(|ask| seen.iter().filter_map(tool_call).any(|call| runs(call, ask))) {
        let frame = next(&mut log, &seen).await;
        seen.push(frame);
    }
}

/// The next frame of a stream that must not have ended.
async fn next(stream: &mut Frames, seen: &[Frame]) -> Frame {
    let next = tokio::time::timeout(PATIENCE, stream.next()).await;
    next.ok().flatten().unwrap_or_else(|| panic!("the stream stands or has ended at an ask: {seen:#?}"))
}

/// Fails unless OpenCode got the recorded answers, with `once` for `always`. Asks that an abort left open are rejected after them.
pub(crate) fn as_recorded(fake: &FakeOpenCode, play: &Play) {
    let is_answer = |path: &str| path.starts_with("/permission/") || path.starts_with("/question/");
    let log = fake.log().into_iter().filter(|request| request.method == "POST" && is_answer(&request.path));
    let reported: Vec<(String, Value)> = log
        .map(|request| (request.path, if request.body.is_null() { json!({}) } else { request.body }))
        .collect();
    let recorded: Vec<(String, Value)> = play
        .recording()
        .answers()
        .into_iter()
        .map(|answer| {
            let (kind, action) = answer.method.split_once('.').expect("a method has two words");
            let mut body = answer.body;
            // The gateway keeps the approval itself.
            if body["reply"] == "always" {
                body["reply"] = "once".into();
            }
            (format!("/{kind}/{}/{action}", answer.request), body)
        })
        .collect();
    let (reported, rest) = reported.split_at(recorded.len().min(reported.len()));
    assert_eq!(reported, recorded, "OpenCode got other answers");
    for (path, body) in rest {
        let is_left =
            recorded.iter().all(|(answered, _)| path.split('/').nth(2) != answered.split('/').nth(2));
        let is_rejection = path.ends_with("/reject") || body["reply"] == "reject";
        assert!(is_left && is_rejection, "OpenCode got another answer: {path} {body}");
    }
}

/// Whether the stream has reached the answer: the asks, and the tool calls that wait for it.
fn stands_at(frames: &[Frame], answer: &RecordedAnswer) -> bool {
    answer.asked.iter().all(|ask| {
        let request = ask["id"].as_str().unwrap_or_default();
        let is_asked = frames.iter().any(|frame| phase_of(frame, request) == Some("asked"));
        // The calls of sub-agents are not in this stream.
        let calls = |call: &Value| call["call_id"] == ask["tool"]["callID"];
        let is_shown = frames.iter().filter_map(tool_call).any(calls);
        let runs = |call: &Value| calls(call) && call["status"] == "running";
        is_asked && (!is_shown || frames.iter().filter_map(tool_call).any(runs))
    })
}

fn tool_call(frame: &Frame) -> Option<&Value> {
    frame.json.pointer("/artifactUpdate/artifact/parts/0/data")
}

fn phase_of<'a>(frame: &'a Frame, request: &str) -> Option<&'a str> {
    let interrupt = extension_notes(frame)?.get("interrupt")?;
    (interrupt["request_id"] == request).then(|| interrupt["phase"].as_str()).flatten()
}
