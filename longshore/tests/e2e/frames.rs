//! Frames of a stream, and the rules that hold for every log of a task.

use serde_json::{Value, json};

/// One event of a stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    pub id: u64,
    /// The data as it was sent, envelope and all.
    pub data: String,
    /// What is in the envelope.
    pub body: Value,
}

impl Frame {
    /// The state that this frame gives the task, without the prefix that all states have.
    pub fn state(&self) -> Option<&str> {
        let status = self.body.pointer("/statusUpdate/status").or_else(|| self.body.pointer("/task/status"))?;
        Some(state_of(status))
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self.state(), Some("COMPLETED" | "FAILED" | "CANCELED" | "REJECTED"))
    }

    /// The artifact that this frame changes.
    pub fn artifact(&self) -> Option<&Value> {
        self.body.pointer("/artifactUpdate/artifact")
    }

    /// The text that this frame brings.
    pub fn text(&self) -> Option<&str> {
        self.artifact()?.pointer("/parts/0/text")?.as_str().filter(|text| !text.is_empty())
    }

    /// The tool call that this frame tells about.
    pub fn tool(&self) -> Option<&Value> {
        self.artifact()?.pointer("/parts/0/data")
    }

    pub fn task_id(&self) -> String {
        let places = ["/task/id", "/statusUpdate/taskId", "/artifactUpdate/taskId"];
        let id = places.iter().find_map(|place| self.body.pointer(place)?.as_str());
        id.unwrap_or_else(|| panic!("a frame without a task: {}", self.data)).to_owned()
    }

    pub fn context_id(&self) -> String {
        let places = ["/task/contextId", "/statusUpdate/contextId", "/artifactUpdate/contextId"];
        let id = places.iter().find_map(|place| self.body.pointer(place)?.as_str());
        id.unwrap_or_else(|| panic!("a frame without a context: {}", self.data)).to_owned()
    }
}

/// The state of a task or of its status.
pub fn state_of(status: &Value) -> &str {
    let state = status.pointer("/status/state").or_else(|| status.get("state"));
    let state = state.and_then(Value::as_str).unwrap_or_else(|| panic!("no state in {status}"));
    state.strip_prefix("TASK_STATE_").unwrap_or(state)
}

/// What the agent says about the state of a task; empty when it says nothing.
pub fn explanation(task: &Value) -> &str {
    task.pointer("/status/message/parts/0/text").and_then(Value::as_str).unwrap_or_default()
}

/// Server-sent events from bytes in any pieces.
#[derive(Debug, Default)]
pub struct Parser {
    bytes: Vec<u8>,
}

impl Parser {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event that has come whole. Comments are left out.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let end = self.bytes.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.bytes.drain(..end + 2).collect();
            let block = String::from_utf8(block).expect("a stream is UTF-8");
            if let Some(frame) = frame(&block) {
                return Some(frame);
            }
        }
    }
}

fn frame(block: &str) -> Option<Frame> {
    let field = |name: &str| {
        let mut values = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next();
        assert!(values.next().is_none(), "a frame with two {name} lines: {block}");
        value
    };
    let data = field("data")?;
    let id = field("id").unwrap_or_else(|| panic!("a frame without an id: {block}"));
    let mut envelope: Value = serde_json::from_str(data).unwrap_or_else(|_| panic!("no JSON: {block}"));
    assert!(envelope.get("error").is_none(), "the stream carries an error: {data}");
    Some(Frame {
        id: id.parse().unwrap_or_else(|_| panic!("an id that is no number: {block}")),
        data: data.to_owned(),
        body: envelope["result"].take(),
    })
}

/// Numbered from 1 without a gap, beginning with the task, ending with its only terminal state.
pub fn check_log(name: &str, frames: &[Frame]) {
    let ids: Vec<u64> = frames.iter().map(|frame| frame.id).collect();
    let expected: Vec<u64> = (1..).take(frames.len()).collect();
    assert_eq!(ids, expected, "{name}: the ids are not gapless from 1");
    assert!(frames.first().is_some_and(|first| first.body.get("task").is_some()), "{name}: {frames:#?}");
    let ends: Vec<u64> = frames.iter().filter(|frame| frame.is_terminal()).map(|frame| frame.id).collect();
    assert_eq!(ends, [ids.len() as u64], "{name}: exactly one terminal event, the last: {frames:#?}");
}

/// The task that a reader of the frames ends with.
pub fn fold(frames: &[Frame]) -> Value {
    let mut task = Value::Null;
    for frame in frames {
        if let Some(first) = frame.body.get("task") {
            task = first.clone();
        } else if let Some(update) = frame.body.get("statusUpdate") {
            task["status"] = update["status"].clone();
        } else if let Some(update) = frame.body.get("artifactUpdate") {
            fold_artifact(&mut task, update);
        } else {
            panic!("a frame of no known kind: {}", frame.data);
        }
    }
    task
}

fn fold_artifact(task: &mut Value, update: &Value) {
    if task.get("artifacts").is_none() {
        task["artifacts"] = json!([]);
    }
    let artifacts = task["artifacts"].as_array_mut().expect("made above");
    let new = &update["artifact"];
    let known = artifacts.iter_mut().find(|known| known["artifactId"] == new["artifactId"]);
    match known {
        None => artifacts.push(new.clone()),
        Some(known) if update["append"] == true => {
            let more = new["parts"].as_array().cloned().unwrap_or_default();
            known["parts"].as_array_mut().expect("an artifact has parts").extend(more);
        }
        Some(known) => *known = new.clone(),
    }
}

/// The task with neighbouring texts of an artifact written as one, as a reader would show them.
pub fn joined(task: &Value) -> Value {
    let mut task = task.clone();
    for artifact in task.get_mut("artifacts").and_then(Value::as_array_mut).into_iter().flatten() {
        let parts = artifact["parts"].as_array_mut().expect("an artifact has parts");
        let mut whole: Vec<Value> = Vec::new();
        for part in parts.drain(..) {
            match (whole.last_mut().and_then(|last| last.get_mut("text")), part.get("text")) {
                (Some(Value::String(last)), Some(Value::String(more))) => last.push_str(more),
                _ => whole.push(part),
            }
        }
        *parts = whole;
    }
    task
}
