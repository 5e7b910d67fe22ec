//! Tests `metadata.iac_code` for each extension that shows a part of it.

use longshore_model::{
    AskKind, AskOptions, Expired, InterruptNote, InterruptPhase, Notes, PermissionReply, Progress,
    ProgressKind, RequestId, Resolution, SessionId, SessionNote, Usage,
};
use serde_json::{Value, json};

use super::*;
use crate::extension::Extension;

const BOTH: [Extension; 2] = [Extension::ThinkingExposure, Extension::ArtifactMetadata];

fn frame(event: TaskEvent, extensions: &[Extension]) -> Option<Value> {
    let entry = Entry { seq: Seq(7), epoch: Epoch(1), event };
    let view = View { activated: extensions.iter().copied().collect(), ..View::default() };
    let task = bare_task();
    let frame = stream_entry(&task.id, &task.context_id, &entry, view, &OutputModes::default())?;
    Some(serde_json::from_slice(&frame).unwrap())
}

/// The `metadata.iac_code` of an event.
fn details(event: TaskEvent, extensions: &[Extension]) -> Value {
    let frame = frame(event, extensions).unwrap();
    let update = frame.get("statusUpdate").unwrap_or(&frame["artifactUpdate"]);
    update["metadata"]["iac_code"].clone()
}

fn block(kind: BlockKind, part: Part) -> TaskEvent {
    let artifact = Artifact { kind, ..artifact("prt_1", vec![part]) };
    TaskEvent::Artifact(ArtifactUpdate { artifact, append: false, last_chunk: false, metadata: None })
}

fn tool(call: &Value) -> TaskEvent {
    block(BlockKind::ToolCall, Part::data(Json::from_value(call)))
}

fn noted(notes: Notes, repeats: bool) -> TaskEvent {
    let status = TaskStatus { state: TaskState::Working, at: Timestamp(2), message: None };
    TaskEvent::Status(Box::new(StatusUpdate { notes, repeats, ..StatusUpdate::new(status) }))
}

fn ask(kind: AskKind, phase: InterruptPhase, answer: Option<PermissionReply>) -> Notes {
    let request_id = RequestId::parse("per_1").unwrap();
    let expired = answer.map(|answer| Expired { deadline: Timestamp(1), answer, call: None });
    let (details, options) = (None, AskOptions::default());
    let note = InterruptNote { request_id, kind, phase, details, options, expired };
    Notes { interrupt: Some(note), ..Notes::default() }
}

#[test]
fn a_tool_call_has_the_states_of_iac_code() {
    let input = json!({"command": "ls"});
    let call = |status: &str, more: Value| {
        let mut call = json!({"call_id": "call_1", "tool": "bash", "status": status});
        call.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        call
    };
    let expected = |status: &str, more: Value| {
        let mut tool = json!({"status": status, "toolUseId": "call_1", "name": "bash"});
        tool.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        json!({"tool": tool})
    };
    for (call, expected) in [
        (call("pending", json!({})), expected("started", json!({}))),
        (call("running", json!({"input": input})), expected("input_complete", json!({"input": input}))),
        (call("running", json!({"output": "a"})), Value::Null),
        (
            call("completed", json!({"input": input, "output": "a\nb"})),
            expected("completed", json!({"result": "a\nb"})),
        ),
        (call("error", json!({"error": "No."})), expected("failed", json!({"result": "No."}))),
        (json!({"other": 1}), Value::Null),
    ] {
        assert_eq!(details(tool(&call), &BOTH), expected, "{call}");
        assert_eq!(details(tool(&call), &[Extension::ArtifactMetadata]), expected, "{call}");
        assert_eq!(details(tool(&call), &[Extension::ThinkingExposure]), Value::Null, "{call}");
    }
}

#[test]
fn each_text_is_cut_after_4000_characters() {
    let (long, short) = ("é".repeat(5000), "é".repeat(4000));
    let number = "1".repeat(5000);
    let input = Json::parse(&format!(
        r#"{{"b":"{long}","a":["{long}",{{"c":"{short}"}},null],"number":{number},"d":"x"}}"#
    ))
    .unwrap();
    let call = json!({"call_id": "c", "tool": "write", "status": "running"});
    let call = call.to_string().replacen('}', &format!(r#","input":{}}}"#, input.get()), 1);
    let event = block(BlockKind::ToolCall, Part::data(Json::parse(&call).unwrap()));
    let entry = Entry { seq: Seq(7), epoch: Epoch(1), event };
    let view = View { activated: BOTH.into_iter().collect(), ..View::default() };
    let expected = format!(
        r#""input":{{"a":["{short}",{{"c":"{short}"}},null],"b":"{short}","d":"x","number":{number}}}"#
    );
    let written = frame_of(&entry, view);
    let (_, metadata) = written.rsplit_once(r#""metadata":"#).unwrap();
    assert!(metadata.contains(&expected), "{metadata}");

    let completed = json!({"call_id": "c", "tool": "read", "status": "completed", "output": long});
    assert_eq!(details(tool(&completed), &BOTH)["tool"]["result"], short);
    let thought = block(BlockKind::Reasoning, Part::text(long));
    assert_eq!(details(thought, &BOTH)["thinking"]["text"], short);

    let deep = "[".repeat(40) + &format!("\"{}\"", "x".repeat(5000)) + &"]".repeat(40);
    let call = format!(r#"{{"call_id":"c","tool":"x","status":"running","input":{deep}}}"#);
    let mut found = details(block(BlockKind::ToolCall, Part::data(Json::parse(&call).unwrap())), &BOTH);
    found = found["tool"]["input"].take();
    for _ in 0..32 {
        found = found[0].take();
    }
    assert_eq!(found, "[omitted]");
}

#[test]
fn reasoning_needs_the_extension_for_thinking() {
    let thought = || block(BlockKind::Reasoning, Part::text("Hm."));
    let expected = json!({"thinking": {"type": "raw_thinking", "text": "Hm."}});
    assert_eq!(details(thought(), &BOTH), expected);
    assert_eq!(details(thought(), &[Extension::ThinkingExposure]), expected);
    assert_eq!(details(thought(), &[Extension::ArtifactMetadata]), Value::Null);
    assert_eq!(details(block(BlockKind::Reasoning, Part::text("")), &BOTH), Value::Null);
    assert_eq!(details(block(BlockKind::Text, Part::text("Hm.")), &BOTH), Value::Null);
}

#[test]
fn a_permission_says_who_decided() {
    use InterruptPhase::{Asked, Resolved};
    use PermissionReply::{Once, Reject};

    for (phase, answer, expected) in [
        (Asked, None, json!({"autoApproved": false, "pending": true})),
        (Resolved(Resolution::Approved), None, json!({"autoApproved": true})),
        (Resolved(Resolution::Expired), Some(Once), json!({"autoApproved": true})),
        (Resolved(Resolution::Expired), Some(Reject), json!({"autoApproved": false})),
        (Resolved(Resolution::Rejected), None, json!({"autoApproved": false})),
        (Resolved(Resolution::RejectedElsewhere), None, json!({"autoApproved": false})),
        (Resolved(Resolution::Dropped), None, json!({"autoApproved": false})),
        // A person granted these permissions, so nothing is shown.
        (Resolved(Resolution::Replied), None, Value::Null),
        (Resolved(Resolution::Elsewhere), None, Value::Null),
    ] {
        let of = |kind| details(noted(ask(kind, phase, answer), false), &[Extension::ArtifactMetadata]);
        assert_eq!(of(AskKind::Permission)["permission"], expected, "{phase:?} {answer:?}");
        assert_eq!(of(AskKind::Question), Value::Null, "{phase:?}");
    }
    let pending = ask(AskKind::Permission, Asked, None).interrupt.unwrap();
    let task = Task { open_asks: vec![pending], ..bare_task() };
    let view = View { activated: BOTH.into_iter().collect(), ..View::default() };
    assert!(written(super::task(&task, view)).contains(r#""iac_code":{"permission":{"autoApproved":false,"#));
}

#[test]
fn a_reader_without_the_tool_trace_sees_only_pending_permissions() {
    let read = |notes: Notes, repeats: bool| -> Option<Value> {
        let entry = Entry { seq: Seq(7), epoch: Epoch(1), event: noted(notes, repeats) };
        let exposure = Exposure { tool_trace: false, ..Exposure::default() };
        let view = View { activated: BOTH.into_iter().collect(), exposure, ..View::default() };
        let task = bare_task();
        let frame = stream_entry(&task.id, &task.context_id, &entry, view, &OutputModes::default())?;
        let frame: Value = serde_json::from_slice(&frame).unwrap();
        Some(frame["statusUpdate"]["metadata"]["iac_code"].clone())
    };
    let asked = ask(AskKind::Permission, InterruptPhase::Asked, None);
    let approved = ask(AskKind::Permission, InterruptPhase::Resolved(Resolution::Approved), None);
    let pending = json!({"permission": {"autoApproved": false, "pending": true}});
    assert_eq!(read(asked, true), Some(pending));
    assert_eq!(read(approved.clone(), false), Some(Value::Null));
    assert_eq!(read(approved.clone(), true), None, "such a reader does not learn that a tool was approved");
    let used = read(Notes { usage: Some(Usage::default()), ..approved }, true).unwrap();
    assert_eq!((used.get("permission"), used["usage"]["totalTokens"].as_u64()), (None, Some(0)));
}

#[test]
fn usage_is_on_the_last_status_and_on_the_task() {
    let usage = Usage { input: 10, output: 20, total: 30, ..Usage::default() };
    let expected = json!({"usage": {"inputTokens": 10, "outputTokens": 20, "totalTokens": 30}});
    let notes = || Notes { usage: Some(usage), ..Notes::default() };
    assert_eq!(details(noted(notes(), false), &[Extension::ArtifactMetadata]), expected);
    assert_eq!(details(noted(notes(), false), &[Extension::ThinkingExposure]), Value::Null);
    let used = Task { usage: Some(usage), ..bare_task() };
    let read = |extensions: &[Extension]| -> Value {
        let view = View { activated: extensions.iter().copied().collect(), ..View::default() };
        serde_json::from_slice(&task(&used, view)).unwrap()
    };
    assert_eq!(read(&BOTH)["metadata"]["iac_code"], expected);
    assert_eq!(read(&[]).get("metadata"), None);
}

#[test]
fn a_repeated_status_is_sent_only_for_a_note_that_the_reader_sees() {
    let session = SessionNote { id: SessionId::parse("ses_1").unwrap(), title: None };
    let progress = Progress { kind: ProgressKind::StepStarted, details: None };
    let asked = || ask(AskKind::Permission, InterruptPhase::Asked, None);
    let notes = [
        (Notes::default(), &[][..]),
        (Notes { session: Some(session), ..Notes::default() }, &[Extension::SessionBinding]),
        (Notes { progress: Some(progress), ..Notes::default() }, &[Extension::StreamHints]),
        (
            Notes { usage: Some(Usage::default()), ..Notes::default() },
            &[Extension::StreamHints, Extension::ArtifactMetadata],
        ),
        (asked(), &[Extension::InteractiveInterrupt, Extension::ArtifactMetadata]),
    ];
    let extensions = [
        Extension::SessionBinding,
        Extension::StreamHints,
        Extension::InteractiveInterrupt,
        Extension::ThinkingExposure,
        Extension::ArtifactMetadata,
    ];
    for (notes, showing) in notes {
        for extension in extensions {
            let is_shown = frame(noted(notes.clone(), true), &[extension]).is_some();
            assert_eq!(is_shown, showing.contains(&extension), "{notes:?} {extension:?}");
            assert!(
                frame(noted(notes.clone(), false), &[extension]).is_some(),
                "a new status is always sent"
            );
        }
        assert!(frame(noted(notes, true), &[]).is_none());
    }
}
