//! The endpoints of OpenCode that a gateway uses, and three of the bench's own under `/bench`.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Shared;
use super::bus::PROJECT;

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Json(String),
    /// A page of the message list, and the cursor of the page before it.
    Messages(String, Option<String>),
    Nothing,
    NotFound(String),
    Events(mpsc::Receiver<Bytes>),
    /// The web page that stands for every unknown path.
    Page,
}

/// A request, as far as it is looked at.
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
        ("GET", ["global", "health"]) => json(r#"{"healthy":true,"version":"1.18.33"}"#),
        ("GET", ["event"]) => {
            let events = shared.lock().bus.connect(directory);
            // A turn may have waited for this reader.
            shared.wake();
            Answer::Events(events)
        }
        ("GET", ["global", "event"]) => Answer::Events(shared.lock().bus.connect_global()),
        ("POST", ["session"]) => {
            Answer::Json(shared.lock().make_session(directory, body()["title"].as_str()))
        }
        ("GET", ["session", "status"]) => Answer::Json(shared.lock().statuses(directory)),
        ("GET", ["session", id]) => match shared.lock().session(id) {
            Some(session) => Answer::Json(session.info()),
            None => no_session(id),
        },
        ("GET", ["session", _, "children"] | ["permission" | "question"]) => json("[]"),
        ("GET", ["session", id, "message"]) => messages(shared, id, asked.query),
        ("POST", ["session", id, "prompt_async"]) => match prompt(shared, id, &body()) {
            Some(_) => Answer::Nothing,
            None => no_session(id),
        },
        ("POST", ["session", id, "message"]) => {
            if prompt(shared, id, &body()).is_none() {
                return no_session(id);
            }
            let end = shared.lock().at_end(id);
            end.await.map_or(Answer::Page, Answer::Json)
        }
        ("POST", ["session", id, "abort"]) => {
            shared.lock().abort(id);
            json("true")
        }
        ("GET", ["bench", "turn", key]) => match shared.lock().truth(key) {
            Some(truth) => Answer::Json(
                json!({"deltas": truth.deltas, "bytes": truth.bytes, "sum": truth.sum.0}).to_string(),
            ),
            None => Answer::NotFound(format!("no turn with the key {key} has ended")),
        },
        ("GET", ["bench", "totals"]) => Answer::Json(totals(shared)),
        ("POST", ["bench", "reset"]) => {
            shared.lock().totals = super::world::Totals::default();
            json("true")
        }
        ("GET", path) => project(path, directory),
        _ => Answer::Page,
    }
}

fn json(text: &str) -> Answer {
    Answer::Json(text.to_owned())
}

fn no_session(id: &str) -> Answer {
    Answer::NotFound(format!("Session not found: {id}"))
}

/// What a gateway may ask about the project before it prompts.
fn project(path: &[&str], directory: &str) -> Answer {
    match path {
        ["path"] => Answer::Json(json!({"directory": directory, "worktree": directory}).to_string()),
        ["project", "current"] => Answer::Json(
            json!({"id": PROJECT, "worktree": directory, "vcs": "git", "sandboxes": [], "time": {"created": 1}})
                .to_string(),
        ),
        ["config"] => json(r#"{"model":"scripted/scripted"}"#),
        ["config", "providers"] => json(r#"{"providers":[],"default":{}}"#),
        ["agent" | "command"] | ["experimental", "worktree" | "workspace"] => json("[]"),
        _ => Answer::Page,
    }
}

/// Starts a turn. A prompt for a session that is busy is taken without a word, as OpenCode does.
fn prompt(shared: &Shared, id: &str, body: &Value) -> Option<bool> {
    let texts = body["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    let text = texts.collect::<Vec<_>>().join("\n");
    let taken = shared.lock().prompt(id, &text, body["messageID"].as_str());
    shared.wake();
    taken
}

/// The newest messages, as many as asked for; with `before`, those that came before that page.
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

fn totals(shared: &Shared) -> String {
    let world = shared.lock();
    let totals = &world.totals;
    json!({
        "sessions": world.known(), "running": world.running(), "readers": world.bus.all_readers(),
        "cut_readers": world.bus.cut(), "turns": totals.turns, "ended": totals.ended, "deltas": totals.deltas,
        "lag": totals.lag.delays(),
    })
    .to_string()
}
