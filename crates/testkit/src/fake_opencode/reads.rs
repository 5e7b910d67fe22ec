//! Requests about sessions that change nothing: lists, messages, todos and diffs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::answer::{Answer, Kind, bad_request, failure, not_found, ok, tagged_bad_request};
use super::project::PROJECT_ID;
use super::request_log::LoggedRequest;
use super::state::Shared;
use super::world::text;

/// How many sessions are listed without a limit in the query.
const DEFAULT_LIMIT: usize = 100;

/// The sessions of the directory that the query names, else of the whole project, the newest first.
pub(super) fn sessions(shared: &Shared, request: &LoggedRequest) -> Answer {
    let roots = match request.value("roots") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("Expected \"true\" | \"false\", got {}\n  at [\"roots\"]", json!(other));
            return bad_request(Kind::Query, &message);
        }
    };
    let limit = match request.value("limit").map(str::parse::<f64>) {
        None => DEFAULT_LIMIT,
        Some(Ok(limit)) if limit.fract() != 0.0 => return failure(500),
        Some(Ok(limit)) if limit >= 0.0 => format!("{limit:.0}").parse().unwrap_or(usize::MAX),
        // OpenCode ignores a limit that is negative or not a number.
        Some(_) => usize::MAX,
    };
    let start = request.value("start").and_then(|start| start.parse::<f64>().ok());
    let of_directory = request.value("directory").is_some() && request.value("scope") != Some("project");
    let pattern: Option<Vec<char>> =
        request.value("search").map(|search| format!("%{search}%").chars().collect());
    let wanted = |info: &Value| {
        let path = text(info, "path");
        let title: Vec<char> = text(info, "title").chars().collect();
        let in_path = |wanted: &str| path == wanted || path.starts_with(&format!("{wanted}/"));
        let is_of_project = matches!(info["projectID"].as_str(), None | Some(PROJECT_ID));
        (if of_directory { info["directory"] == request.directory.as_str() } else { is_of_project })
            && (!roots || info["parentID"].is_null())
            && start.is_none_or(|start| info["time"]["updated"].as_f64().unwrap_or_default() >= start)
            && request.value("path").is_none_or(in_path)
            && pattern.as_ref().is_none_or(|pattern| is_like(&title, pattern))
    };
    let Value::Array(mut listed) = shared.lock().world.sessions() else { return failure(500) };
    listed.retain(wanted);
    listed.reverse();
    listed.sort_by_key(|info| std::cmp::Reverse(info["time"]["updated"].as_u64()));
    listed.truncate(limit);
    ok(listed.into())
}

/// The newest messages up to the limit; with `before`, the messages older than that page.
pub(super) fn messages(shared: &Shared, session: &str, request: &LoggedRequest) -> Answer {
    let limit = match request.value("limit").map(str::parse::<i64>) {
        None => 0,
        Some(Ok(limit)) if limit < 0 => {
            let message =
                format!("Expected a value greater than or equal to 0, got {limit}\n  at [\"limit\"]");
            return bad_request(Kind::Query, &message);
        }
        Some(Ok(limit)) => usize::try_from(limit).unwrap_or(usize::MAX),
        Some(Err(_)) => return bad_request(Kind::Query, "Expected an integer, got NaN\n  at [\"limit\"]"),
    };
    let mut page = shared.lock().world.messages(session).unwrap_or_default();
    if let Some(before) = request.value("before") {
        let Some(end) = position_of(&page, before).filter(|_| limit > 0) else { return tagged_bad_request() };
        page.truncate(end);
    }
    if limit == 0 {
        return Answer::Messages { page, cursor: None };
    }
    let older = page.len().saturating_sub(limit);
    let page = page.split_off(older);
    Answer::Messages { cursor: page.first().filter(|_| older > 0).map(cursor), page }
}

pub(super) fn message(shared: &Shared, session: &str, message: &str) -> Answer {
    if let Some(refused) = wrong_id(Kind::Params, "messageID", "msg", message) {
        return refused;
    }
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    match messages.into_iter().find(|listed| listed["info"]["id"] == message) {
        Some(found) => ok(found),
        None => not_found(&format!("Message not found: {message}")),
    }
}

/// The changes of a user's message. Without a message the list is empty, even for an unknown session.
pub(super) fn diff(shared: &Shared, session: &str, request: &LoggedRequest) -> Answer {
    let Some(message) = request.value("messageID") else { return ok(json!([])) };
    if let Some(refused) = wrong_id(Kind::Query, "messageID", "msg", message) {
        return refused;
    }
    let Some(messages) = shared.lock().world.messages(session) else { return failure(500) };
    let found = messages.into_iter().find(|listed| listed["info"]["id"] == message);
    // The summary of a reply is only `true`.
    let diffs = found.as_ref().and_then(|found| found.pointer("/info/summary/diffs"));
    ok(diffs.filter(|diffs| diffs.is_array()).cloned().unwrap_or_else(|| json!([])))
}

pub(super) fn todo(shared: &Shared, session: &str) -> Answer {
    ok(shared.lock().world.todos(session))
}

/// Every request that names an unknown workspace fails.
pub(super) fn unknown_workspace(shared: &Shared, request: &LoggedRequest) -> Option<Answer> {
    let workspace = request.value("workspace")?;
    if !workspace.starts_with("wrk") {
        return Some(failure(500));
    }
    if shared.lock().project.workspace(workspace).is_some() {
        return None;
    }
    let body = format!("Workspace not found: {workspace}");
    Some(Answer::Raw { status: 500, kind: "text/plain; charset=utf-8", body })
}

/// The refusal of an id with the wrong prefix.
pub(super) fn wrong_id(kind: Kind, name: &str, prefix: &str, id: &str) -> Option<Answer> {
    let got = json!(id);
    let message = format!("Expected a string starting with \"{prefix}\", got {got}\n  at [\"{name}\"]");
    (!id.starts_with(prefix)).then(|| bad_request(kind, &message))
}

/// The cursor of the page before this message.
fn cursor(message: &Value) -> String {
    let (id, time) = (&message["info"]["id"], &message["info"]["time"]["created"]);
    URL_SAFE_NO_PAD.encode(json!({"id": id, "time": time}).to_string())
}

/// How many messages come before the one that the cursor names. `None`: this is not a cursor.
fn position_of(messages: &[Value], cursor: &str) -> Option<usize> {
    let decoded: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (id, time) = (decoded["id"].as_str()?, decoded["time"].as_u64()?);
    let is_named = |message: &Value| message["info"]["id"] == id;
    let is_later = |message: &Value| {
        let created = message["info"]["time"]["created"].as_u64().unwrap_or_default();
        (created, text(&message["info"], "id")) >= (time, id)
    };
    let position = messages.iter().position(is_named).or_else(|| messages.iter().position(is_later));
    Some(position.unwrap_or(messages.len()))
}

/// SQL's `LIKE`: `%` matches any text, `_` any character, and case makes no difference.
fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        Some((wanted, rest)) => text.split_first().is_some_and(|(first, tail)| {
            (*wanted == '_' || first.eq_ignore_ascii_case(wanted)) && is_like(tail, rest)
        }),
    }
}
