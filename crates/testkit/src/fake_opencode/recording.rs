//! A recording of the real OpenCode: what a client asked, what it answered, what came on `/event`.

use std::path::PathBuf;

use serde_json::Value;

/// A scenario, as `recordings/http/<name>.jsonl` holds it.
#[derive(Clone, Debug)]
pub struct Recording {
    pub name: String,
    pub lines: Vec<RecordedLine>,
}

/// An answer to an ask.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordedAnswer {
    /// Such as `permission.reply`.
    pub method: String,
    pub request: String,
    pub body: Value,
    /// What was asked before it, this one and others.
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
    /// Reads a recording by name. Panics when there is none: a test that names one needs it.
    pub fn load(name: &str) -> Self {
        let file = folder().join(format!("{name}.jsonl"));
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("the recording {name} cannot be read: {error}"));
        let lines = text.lines().filter_map(|line| parse(name, line)).collect();
        Self { name: name.to_owned(), lines }
    }

    /// The names of all recordings, in order.
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

    /// The session of the first prompt, as OpenCode answered when it was made.
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

    /// The answers to asks that OpenCode took: for each its kind, the ask, what was done and with which words; and the
    /// asks that were open before it.
    pub fn answers(&self) -> Vec<RecordedAnswer> {
        let mut asked: Vec<Value> = Vec::new();
        let mut answers = Vec::new();
        for (place, line) in self.lines.iter().enumerate() {
            match line {
                RecordedLine::Event(event)
                    if matches!(event["type"].as_str(), Some("permission.asked" | "question.asked")) =>
                {
                    asked.push(event["properties"].clone());
                }
                RecordedLine::Request { method, path, body } if method == "POST" && self.was_taken(place) => {
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

    /// Whether the request at this place of the recording did what it asked for.
    pub(super) fn was_taken(&self, place: usize) -> bool {
        let Some(RecordedLine::Request { path: asked, .. }) = self.lines.get(place) else { return false };
        self.lines[place..].iter().any(
            |line| matches!(line, RecordedLine::Response { path, status: 200 | 204, .. } if path == asked),
        )
    }

    /// The last message list of the session that OpenCode gave, and whether events came after it.
    pub fn final_messages(&self, session: &str) -> Option<(Value, bool)> {
        let wanted = format!("/session/{session}/message");
        let place = self.lines.iter().rposition(|line| {
            matches!(line, RecordedLine::Response { method, path, status: 200, .. }
                if method == "GET" && bare(path) == wanted)
        })?;
        let RecordedLine::Response { body, .. } = &self.lines[place] else { return None };
        let changed_after = self.lines[place..].iter().any(|line| match line {
            // The late update of the user's message changes only its summary.
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
    let value: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("the recording {name} is no JSON: {error}"));
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
