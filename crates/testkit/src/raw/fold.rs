//! Folds the frames of a stream into a task, as a client does.

use serde_json::{Value, json};

use super::sse::Frame;

/// Folds frames into the task that they describe. Panics on a frame that no client could apply.
pub fn fold(frames: &[Frame]) -> Value {
    let mut task = Value::Null;
    for frame in frames {
        apply(&mut task, &frame.json);
    }
    plain_text(&task)
}

/// The task with adjacent text parts of an artifact joined, because it does not matter where a text was split.
pub fn plain_text(task: &Value) -> Value {
    let mut task = task.clone();
    let artifacts = task.get_mut("artifacts").and_then(Value::as_array_mut);
    for artifact in artifacts.into_iter().flatten() {
        let mut joined: Vec<Value> = Vec::new();
        for part in artifact["parts"].as_array().into_iter().flatten() {
            match (joined.last_mut(), part["text"].as_str()) {
                (Some(last), Some(text)) if last["text"].is_string() && same_but_for_text(last, part) => {
                    let whole = format!("{}{text}", last["text"].as_str().unwrap_or_default());
                    last["text"] = whole.into();
                }
                _ => joined.push(part.clone()),
            }
        }
        artifact["parts"] = joined.into();
    }
    task
}

/// The task without the messages that answered its asks: streams do not contain them.
pub fn without_answers(task: &Value) -> Value {
    let mut task = task.clone();
    if let Some(history) = task.get_mut("history").and_then(Value::as_array_mut) {
        history.truncate(1);
    }
    task
}

fn apply(task: &mut Value, response: &Value) {
    if response["task"].is_object() {
        *task = response["task"].clone();
    } else if let Some(status) = response["statusUpdate"].get("status") {
        assert_eq!(response["statusUpdate"]["taskId"], task["id"], "a frame of another task");
        task["status"] = status.clone();
    } else if response["artifactUpdate"].is_object() {
        assert_eq!(response["artifactUpdate"]["taskId"], task["id"], "a frame of another task");
        apply_artifact(task, &response["artifactUpdate"]);
    } else {
        panic!("unknown frame: {response}");
    }
}

fn apply_artifact(task: &mut Value, update: &Value) {
    if !task["artifacts"].is_array() {
        task["artifacts"] = json!([]);
    }
    let artifacts = task["artifacts"].as_array_mut().expect("artifacts are a list");
    let artifact = &update["artifact"];
    let known = artifacts.iter_mut().find(|known| known["artifactId"] == artifact["artifactId"]);
    match (known, update["append"] == true) {
        (Some(known), true) => {
            let more = artifact["parts"].as_array().cloned().unwrap_or_default();
            known["parts"].as_array_mut().expect("an artifact has parts").extend(more);
        }
        (Some(known), false) => *known = artifact.clone(),
        (None, append) => {
            assert!(!append, "an update appends to an artifact that was never begun: {update}");
            artifacts.push(artifact.clone());
        }
    }
}

fn same_but_for_text(one: &Value, other: &Value) -> bool {
    let without_text = |part: &Value| {
        let mut part = part.clone();
        part.as_object_mut().map(|fields| fields.remove("text"));
        part
    };
    without_text(one) == without_text(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(json: Value) -> Frame {
        Frame { id: None, cursor: None, json }
    }

    fn chunk(text: &str, append: bool) -> Frame {
        let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
        frame(json!({"artifactUpdate": {"taskId": "t", "artifact": artifact, "append": append}}))
    }

    #[test]
    fn chunks_are_appended_and_a_replacement_replaces() {
        let begun = frame(json!({"task": {"id": "t", "status": {"state": "TASK_STATE_SUBMITTED"}}}));
        let ended =
            frame(json!({"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}));
        let check = |chunks: &[Frame], expected: &str| {
            let frames: Vec<Frame> = [&begun].into_iter().chain(chunks).chain([&ended]).cloned().collect();
            let task = fold(&frames);
            assert_eq!(task["artifacts"], json!([{"artifactId": "a", "parts": [{"text": expected}]}]));
            assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        };
        check(&[chunk("one ", false), chunk("two", true)], "one two");
        check(&[chunk("half", false), chunk("", false), chunk("whole", true)], "whole");
    }

    #[test]
    #[should_panic(expected = "never begun")]
    fn an_append_to_an_unknown_artifact_panics() {
        fold(&[frame(json!({"task": {"id": "t"}})), chunk("more", true)]);
    }
}
