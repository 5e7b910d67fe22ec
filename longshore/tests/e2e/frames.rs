//! The content of frames, and the rules for every log of a task.

use longshore_testkit::raw::Frame;
use serde_json::Value;

/// The number of the event in its log.
pub(crate) fn id(frame: &Frame) -> u64 {
    frame.id.unwrap_or_else(|| panic!("a frame without an id: {}", frame.json))
}

/// The state in the frame, without its prefix.
pub(crate) fn state(frame: &Frame) -> Option<&str> {
    let status = frame.json.pointer("/statusUpdate/status").or_else(|| frame.json.pointer("/task/status"))?;
    Some(state_of(status))
}

pub(crate) fn is_terminal(frame: &Frame) -> bool {
    matches!(state(frame), Some("COMPLETED" | "FAILED" | "CANCELED" | "REJECTED"))
}

/// The artifact that the frame changes.
pub(crate) fn artifact(frame: &Frame) -> Option<&Value> {
    frame.json.pointer("/artifactUpdate/artifact")
}

/// The text in the frame.
pub(crate) fn text(frame: &Frame) -> Option<&str> {
    artifact(frame)?.pointer("/parts/0/text")?.as_str().filter(|text| !text.is_empty())
}

/// The tool call in the frame.
pub(crate) fn tool(frame: &Frame) -> Option<&Value> {
    artifact(frame)?.pointer("/parts/0/data")
}

pub(crate) fn task_id(frame: &Frame) -> String {
    field(frame, ["/task/id", "/statusUpdate/taskId", "/artifactUpdate/taskId"])
}

pub(crate) fn context_id(frame: &Frame) -> String {
    field(frame, ["/task/contextId", "/statusUpdate/contextId", "/artifactUpdate/contextId"])
}

/// True for the frame with the `n`-th text.
pub(crate) fn nth_text(n: usize) -> impl FnMut(&Frame) -> bool {
    let mut seen = 0;
    move |frame| {
        seen += usize::from(text(frame).is_some());
        seen == n
    }
}

pub(crate) fn runs_a_tool(frame: &Frame) -> bool {
    tool(frame).is_some_and(|call| call["status"] == "running")
}

/// The state of a task or of its status.
pub(crate) fn state_of(status: &Value) -> &str {
    let state = status.pointer("/status/state").or_else(|| status.get("state"));
    let state = state.and_then(Value::as_str).unwrap_or_else(|| panic!("no state in {status}"));
    state.strip_prefix("TASK_STATE_").unwrap_or(state)
}

/// The message of the status of a task; empty if there is none.
pub(crate) fn explanation(task: &Value) -> &str {
    task.pointer("/status/message/parts/0/text").and_then(Value::as_str).unwrap_or_default()
}

/// Fails unless the numbers of the log grow from 1 on, it begins with the task, and ends with its only terminal state. An update
/// that only repeats the status is not sent, and its number is missing.
pub(crate) fn check_log(name: &str, frames: &[Frame]) {
    let ids: Vec<u64> = frames.iter().map(id).collect();
    assert!(ids.first() == Some(&1) && ids.is_sorted_by(|one, next| one < next), "{name}: {ids:?}");
    assert!(frames.first().is_some_and(|first| first.json.get("task").is_some()), "{name}: {frames:#?}");
    let ends: Vec<u64> = frames.iter().filter(|frame| is_terminal(frame)).map(id).collect();
    assert_eq!(ends, [ids[ids.len() - 1]], "{name}: exactly one terminal event, the last: {frames:#?}");
}

fn field(frame: &Frame, pointers: [&str; 3]) -> String {
    let found = pointers.iter().find_map(|position| frame.json.pointer(position)?.as_str());
    found.unwrap_or_else(|| panic!("expected one of {pointers:?} in {}", frame.json)).to_owned()
}
