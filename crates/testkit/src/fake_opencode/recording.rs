//! A recording of the real OpenCode: the requests of a client, the responses, and the events of `/event`.

use std::path::PathBuf;

use serde_json::Value;

/// One recorded scenario: `recordings/http/<name>.jsonl`.
#[derive(Clone, Debug)]
pub struct Recording {
    pub name: String,
    pub lines: Vec<RecordedLine>,
}

/// A recorded answer to a permission request or a question.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedAnswer {
    /// Such as `permission.reply`.
    pub method: String,
    pub request: String,
    pub body: Value,
    /// All asks up to this answer, including this one.
    pub asked: Vec<Value>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum RecordedLine {
    Event(Value),
    Request { method: String, path: String, body: Value },
    Response { method: String, path: String, status: u64, body: Value },
    Note(String),
}

impl Recording {
    /// Reads a recording by name. Panics if it cannot be read.
    pub fn load(name: &str) -> Self {
        let file = folder().join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("cannot read the recording {name}: {error}"));
        let lines = text.lines().filter_map(|line| parse(name, line)).collect();
        Self { name: name.to_owned(), lines }
    }

    /// The names of all recordings, sorted.
    pub fn names() -> Vec<String> {
        let files = std::fs::read_dir(folder()).expect("the recordings are part of this crate");
        let mut names: Vec<String> =
            files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned())).collect();
        names.sort();
        names
    }

    pub fn events(&self) -> impl Iterator<Item = &Value> {
        self.lines.iter().filter_map(|line| match line {
            RecordedLine::Event(event) => Some(event),
            _ => None,
        })
    }

    /// The texts of the prompts, in order.
    pub fn prompts(&self) -> Vec<String> {
        self.lines
            .iter()
            .filter_map(RecordedLine::prompt)
            .map(|(_, body)| body["parts"][0]["text"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The session of the first prompt, as OpenCode returned it when it was created.
    pub fn session(&self) -> Option<Value> {
        let (id, _) = self.lines.iter().find_map(RecordedLine::prompt)?;
        self.lines.iter().find_map(|line| match line {
            RecordedLine::Response { method, path, body, .. }
                if method == "POST" && bare(path) == "/session" && body["id"] == id =>
            {
                Some(body.clone())
            }
            _ => None,
        })
    }

    /// The answers to asks that OpenCode accepted.
    pub fn answers(&self) -> Vec<RecordedAnswer> {
        let mut asked: Vec<Value> = Vec::new();
        let mut answers = Vec::new();
        for (index, line) in self.lines.iter().enumerate() {
            match line {
                RecordedLine::Event(event)
                    if matches!(event["type"].as_str(), Some("permission.asked" | "question.asked")) =>
                {
                    asked.push(event["properties"].clone());
                }
                RecordedLine::Request { method, path, body }
                    if method == "POST" && self.was_accepted(index) =>
                {
                    let segments: Vec<&str> = bare(path).split('/').skip(1).collect();
                    if let [kind @ ("permission" | "question"), request, action] = segments.as_slice() {
                        answers.push(RecordedAnswer {
                            method: format!("{kind}.{action}"),
                            request: (*request).to_owned(),
                            body: body.clone(),
                            asked: asked.clone(),
                        });
                    }
                }
                _ => {}
            }
        }
        answers
    }

    /// Whether OpenCode did what the request at this index asks for.
    pub(super) fn was_accepted(&self, index: usize) -> bool {
        let Some(RecordedLine::Request { path: asked, .. }) = self.lines.get(index) else { return false };
        self.lines[index..].iter().any(
            |line| matches!(line, RecordedLine::Response { path, status: 200 | 204, .. } if path == asked),
        )
    }

    /// The last message list of the session that OpenCode returned, and whether events changed it later.
    pub fn final_messages(&self, session: &str) -> Option<(Value, bool)> {
        let wanted = format!("/session/{session}/message");
        let index = self.lines.iter().rposition(|line| {
            matches!(line, RecordedLine::Response { method, path, status: 200, .. }
                if method == "GET" && bare(path) == wanted)
        })?;
        let RecordedLine::Response { body, .. } = &self.lines[index] else { return None };
        let changed_after = self.lines[index..].iter().any(|line| match line {
            // The late update of a user's message changes only its summary.
            RecordedLine::Event(event) => {
                event["type"].as_str().is_some_and(|kind| kind.starts_with("message."))
                    && event["properties"]["info"]["role"] != "user"
            }
            _ => false,
        });
        Some((body.clone(), changed_after))
    }
}

impl RecordedLine {
    /// The session and the body, if this is a prompt.
    pub fn prompt(&self) -> Option<(&str, &Value)> {
        let Self::Request { method, path, body } = self else { return None };
        let (session, action) = path.strip_prefix("/session/")?.split_once('/')?;
        (method == "POST" && matches!(action, "prompt_async" | "message")).then_some((session, body))
    }
}

/// A path without its query.
pub(super) fn bare(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recordings/http")
}

fn parse(name: &str, line: &str) -> Option<RecordedLine> {
    let value: Value = serde_json::from_str(line)
        .unwrap_or_else(|error| panic!("the recording {name} is not JSON: {error}"));
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    match value["kind"].as_str() {
        Some("sse") => Some(RecordedLine::Event(value["data"].clone())),
        Some("request") => Some(RecordedLine::Request {
            method: text("method"),
            path: text("path"),
            body: value["body"].clone(),
        }),
        Some("response") => Some(RecordedLine::Response {
            method: text("method"),
            path: text("path"),
            status: value["status"].as_u64().unwrap_or_default(),
            body: value["body"].clone(),
        }),
        Some("note") => Some(RecordedLine::Note(text("text"))),
        _ => None,
    }
}
