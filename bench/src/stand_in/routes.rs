//! The endpoints of OpenCode that a gateway uses, and four of the bench's own under `/bench`.

use bytes::Bytes;
use longshore_opencode_shapes::VERSION;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Shared;
use super::bus::PROJECT;
use super::session::json as json_text;

#[derive(Debug)]
pub(super) enum Answer {
    Json(String),
    /// A page of the message list, and the cursor of the page before it.
    Messages(String, Option<String>),
    NoContent,
    NotFound(String),
    Events(mpsc::Receiver<Bytes>),
    /// The web page that OpenCode answers unknown paths with.
    WebPage,
}

/// The parts of a request that matter here.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a [(String, String)],
    pub(super) directory: &'a str,
    pub(super) body: &'a [u8],
}

pub(super) async fn answer(shared: &Shared, asked: Asked<'_>) -> Answer {
    let Asked { method, path, directory, body, .. } = asked;
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let body = || serde_json::from_slice::<Value>(body).unwrap_or_default();
    match (method, segments.as_slice()) {
        ("GET", ["global", "health"]) => json(json!({"healthy": true, "version": VERSION})),
        ("GET", ["event"]) => {
            let events = shared.lock().bus.connect(directory);
            // A turn may be waiting for this reader.
            shared.wake();
            Answer::Events(events)
        }
        ("GET", ["global", "event"]) => Answer::Events(shared.lock().bus.connect_global()),
        ("POST", ["session"]) => {
            Answer::Json(shared.lock().make_session(directory, body()["title"].as_str()))
        }
        ("GET", ["session", "status"]) => Answer::Json(shared.lock().statuses(directory)),
        ("GET", ["session", id]) => match shared.lock().session(id) {
            Some(session) => Answer::Json(json_text(&session.info())),
            None => no_session(id),
        },
        ("GET", ["session", _, "children"] | ["permission" | "question"]) => json(json!([])),
        ("GET", ["session", id, "message"]) => messages(shared, id, asked.query),
        ("POST", ["session", id, "prompt_async"]) => match prompt(shared, id, &body()) {
            Some(_) => Answer::NoContent,
            None => no_session(id),
        },
        ("POST", ["session", id, "message"]) => {
            if prompt(shared, id, &body()).is_none() {
                return no_session(id);
            }
            let end = shared.lock().answer_at_end(id);
            end.await.map_or(Answer::WebPage, Answer::Json)
        }
        ("POST", ["session", id, "abort"]) => {
            shared.lock().abort(id);
            json(json!(true))
        }
        ("GET", ["bench", "turn", key]) => match shared.lock().sent_text(key) {
            Some(sent) => json(json!({"deltas": sent.deltas, "bytes": sent.bytes, "sum": sent.sum.0})),
            None => Answer::NotFound(format!("no turn with the key {key} has ended")),
        },
        ("GET", ["bench", "totals"]) => totals(shared),
        ("POST", ["bench", "release"]) => {
            shared.lock().release();
            shared.wake();
            json(json!(true))
        }
        ("POST", ["bench", "reset"]) => {
            shared.lock().totals = super::world::Totals::default();
            json(json!(true))
        }
        ("GET", path) => project(path, directory),
        _ => Answer::WebPage,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn json(value: Value) -> Answer {
    Answer::Json(value.to_string())
}

fn no_session(id: &str) -> Answer {
    Answer::NotFound(format!("Session not found: {id}"))
}

/// Answers what a gateway may ask about the project before it prompts.
fn project(path: &[&str], directory: &str) -> Answer {
    json(match path {
        ["path"] => json!({"directory": directory, "worktree": directory}),
        ["project", "current"] => {
            json!({"id": PROJECT, "worktree": directory, "vcs": "git", "sandboxes": [], "time": {"created": 1}})
        }
        ["config"] => json!({"model": "scripted/scripted"}),
        ["config", "providers"] => json!({"providers": [], "default": {}}),
        ["agent" | "command"] | ["experimental", "worktree" | "workspace"] => json!([]),
        _ => return Answer::WebPage,
    })
}

/// Starts a turn. A prompt for a busy session is accepted and ignored.
fn prompt(shared: &Shared, id: &str, body: &Value) -> Option<bool> {
    let texts = body["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    let text = texts.collect::<Vec<_>>().join("\n");
    let accepted = shared.lock().prompt(id, &text, body["messageID"].as_str());
    shared.wake();
    accepted
}

/// The newest messages up to the limit; with `before`, the messages older than that page.
fn messages(shared: &Shared, id: &str, query: &[(String, String)]) -> Answer {
    let world = shared.lock();
    let Some(session) = world.session(id) else { return no_session(id) };
    let value = |name| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    // The cursor is the number of messages that are older than the page.
    let all = session.messages();
    let end = value("before").and_then(|before| before.parse().ok()).unwrap_or(all.len()).min(all.len());
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let start = end.saturating_sub(limit);
    Answer::Messages(format!("[{}]", all[start..end].join(",")), (start > 0).then(|| start.to_string()))
}

fn totals(shared: &Shared) -> Answer {
    let world = shared.lock();
    let totals = &world.totals;
    json(json!({
        "pid": std::process::id(), "sessions": world.session_count(), "running": world.running(), "readers": world.bus.all_readers(),
        "cut_readers": world.bus.dropped_readers(), "turns": totals.turns, "ended": totals.ended,
        "deltas": totals.deltas, "lag": totals.lag.delays(),
    }))
}
