//! The endpoints of OpenCode that a gateway uses, in the shape of the real one's answers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ids::{fresh, now_ms};
use super::player;
use super::request_log::LoggedRequest;
use super::script::Prompt;
use super::state::{Shared, State};
use super::streams::Connection;
use super::world::{event, text};

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// A null body is an empty one. `stored`: the prompt that this answer is for.
    Json {
        status: u16,
        body: Value,
        stored: Option<(String, String)>,
    },
    /// A page of the message list, and the cursor of the page before it.
    Messages {
        page: Vec<Value>,
        cursor: Option<String>,
    },
    Events(Connection),
    /// The web page that stands for every unknown path.
    Page,
}

pub(super) async fn answer(shared: &Arc<Shared>, request: LoggedRequest) -> Answer {
    let path = request.path.clone();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let method = request.method.clone();
    let (directory, body, query) = (request.directory.clone(), request.body.clone(), request.query.clone());
    let (position, asked) = log(shared, request, &segments);
    match (method.as_str(), segments.as_slice()) {
        ("GET", ["global", "health"]) => ok(json!({"healthy": true, "version": shared.lock().version})),
        ("GET", ["event"]) => Answer::Events(shared.connect(&directory).await),
        ("GET", ["path"]) => ok(json!({"directory": directory, "worktree": directory})),
        ("GET", ["session"]) => ok(shared.lock().world.sessions()),
        ("POST", ["session"]) => ok(make_session(shared, &directory, &body).await),
        ("GET", ["session", "status"]) => ok(shared.lock().world.statuses(&directory)),
        ("GET", ["permission"]) => {
            let state = shared.lock();
            ok(state.world.asks(&state.world.permissions, &directory))
        }
        ("GET", ["question"]) => {
            let state = shared.lock();
            ok(state.world.asks(&state.world.questions, &directory))
        }
        ("POST", [kind @ "permission", id, "reply"] | [kind @ "question", id, "reply" | "reject"]) => {
            reply(shared, kind, id, asked, &body).await
        }
        // Session ids are checked by their prefix before anything is looked up.
        (_, ["session", id, ..]) if !id.starts_with("ses") => failure(500),
        ("POST", ["session", _, "abort"]) => ok(json!(true)),
        (_, ["session", id, ..]) if shared.lock().world.session(id).is_none() => {
            not_found(&format!("Session not found: {id}"))
        }
        ("GET", ["session", id]) => ok(shared.lock().world.session(id).cloned().unwrap_or_default()),
        ("PATCH", ["session", id]) => ok(shared.change(|state| state.world.patch_session(id, &body)).into()),
        ("DELETE", ["session", id]) => {
            let info = shared.lock().world.session(id).cloned();
            shared.emit(&event("session.deleted", json!({"sessionID": id, "info": info}))).await;
            ok(json!(true))
        }
        ("GET", ["session", id, "children"]) => ok(shared.lock().world.children(id)),
        ("GET", ["session", id, "message"]) => page(shared, id, &query),
        ("GET", ["session", id, "message", message]) => one_message(shared, id, message),
        ("POST", ["session", id, "prompt_async"]) => prompt(shared, id, &body, position, false).await,
        ("POST", ["session", id, "message"]) => prompt(shared, id, &body, position, true).await,
        ("POST", ["instance", "dispose"]) => {
            dispose(shared, &directory).await;
            ok(json!(true))
        }
        ("GET", path) => match shared.lock().project.answer(path, &directory) {
            Some(told) => ok(told),
            None => Answer::Page,
        },
        _ => Answer::Page,
    }
}

/// A failure in the shape of the real one: 401 has no body.
pub(super) fn failure(status: u16) -> Answer {
    let body = match status {
        401 => Value::Null,
        _ => json!({"name": "UnknownError", "data": {
            "message": "Unexpected server error. Check server logs for details.", "ref": "err_0021d745",
        }}),
    };
    Answer::Json { status, body, stored: None }
}

/// Waits until the prompt's message is in the list, or its script is over without one.
pub(super) async fn until_stored(shared: &Shared, session: &str, message: &str) {
    shared
        .wait_for(|state| {
            let messages = state.world.messages(session).unwrap_or_default();
            let stored = messages.iter().any(|listed| listed["info"]["id"] == message);
            let over = state.turns.get(session) == Some(&0);
            (stored || over).then_some(())
        })
        .await;
}

/// All turns of the directory are aborted, then its streams end.
pub(super) async fn dispose(shared: &Shared, directory: &str) {
    let running = shared.lock().world.statuses(directory);
    for session in running.as_object().into_iter().flatten().map(|(session, _)| session.as_str()) {
        let events = shared.lock().world.abort_events(session, now_ms());
        for event in &events {
            shared.emit(event).await;
        }
    }
    shared.emit(&event("server.instance.disposed", json!({"directory": directory}))).await;
}

fn ok(body: Value) -> Answer {
    Answer::Json { status: 200, body, stored: None }
}

fn not_found(message: &str) -> Answer {
    let body = json!({"name": "NotFoundError", "data": {"message": message}});
    Answer::Json { status: 404, body, stored: None }
}

/// Writes the request down and gives the place behind it, and the ask that it answers if it answers one: as soon as it is
/// written down a script may go on that waited for it, and the ask is gone.
fn log(shared: &Shared, mut request: LoggedRequest, segments: &[&str]) -> (usize, Option<Asked>) {
    shared.change(|state| {
        let asked = match segments {
            [kind @ ("permission" | "question"), id, ..] => asked(state, kind, id, &request.directory),
            _ => None,
        };
        if let ["session", id, "prompt_async" | "message"] = segments
            && request.method == "POST"
        {
            request.while_busy = state.turns.get(*id).is_some_and(|turns| *turns > 0);
        }
        (state.log.push(request), asked)
    })
}

async fn make_session(shared: &Shared, directory: &str, body: &Value) -> Value {
    let (recorded, version) = shared.change(|state| (state.sessions.pop_front(), state.version.clone()));
    let mut info = recorded.unwrap_or_else(|| {
        let now = now_ms();
        json!({
            "id": fresh("ses"), "slug": "quiet-harbor", "projectID": "global", "directory": directory, "path": "",
            "cost": 0, "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
            "title": "New session", "version": version, "time": {"created": now, "updated": now},
        })
    });
    info["directory"] = directory.into();
    if let Some(title) = body["title"].as_str() {
        info["title"] = title.into();
    }
    let created = json!({"sessionID": info["id"], "info": info});
    shared.emit(&event("session.created", created)).await;
    info
}

/// The newest messages, as many as asked for; with `before`, those that came before that page.
fn page(shared: &Shared, session: &str, query: &[(String, String)]) -> Answer {
    let value = |name| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let mut page = shared.lock().world.messages(session).unwrap_or_default();
    if let Some(before) = value("before") {
        let end = page.iter().position(|message| message["info"]["id"] == before).unwrap_or_default();
        page.truncate(end);
    }
    let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
    let page = page.split_off(page.len().saturating_sub(limit));
    let older = shared.lock().world.messages(session).unwrap_or_default().first().cloned();
    let oldest = page.first().map(|message| message["info"]["id"].clone());
    let more = oldest.filter(|oldest| older.is_some_and(|first| first["info"]["id"] != *oldest));
    Answer::Messages { cursor: more.and_then(|id| Some(id.as_str()?.to_owned())), page }
}

fn one_message(shared: &Shared, session: &str, message: &str) -> Answer {
    let messages = shared.lock().world.messages(session).unwrap_or_default();
    match messages.into_iter().find(|listed| listed["info"]["id"] == message) {
        Some(found) => ok(found),
        None => not_found(&format!("Message not found: {message}")),
    }
}

async fn prompt(
    shared: &Arc<Shared>,
    session: &str,
    body: &Value,
    position: usize,
    blocking: bool,
) -> Answer {
    let Some(parts) = body["parts"].as_array() else {
        let message = "Missing key\n  at [\"parts\"]";
        let body = json!({"name": "BadRequest", "data": {"message": message, "kind": "Payload"}});
        return Answer::Json { status: 400, body, stored: None };
    };
    let message = body["messageID"].as_str().map_or_else(|| fresh("msg"), str::to_owned);
    let (script, directory) = {
        let mut state = shared.lock();
        let directory = state.world.directory(session).unwrap_or_default().to_owned();
        state.truth.prompted(session, &message, parts);
        (state.next_script(), directory)
    };
    let prompt = Prompt {
        session: session.to_owned(),
        message: message.clone(),
        parts: Value::Array(parts.clone()),
        directory,
        logged_at: position,
    };
    let playing = shared.tasks.spawn("fake opencode turn", player::play(Arc::clone(shared), prompt, script));
    if blocking {
        // A script that panics fails the test by itself.
        let _ = playing.await;
        let messages = shared.lock().world.messages(session).unwrap_or_default();
        return ok(messages.into_iter().next_back().unwrap_or_default());
    }
    Answer::Json { status: 204, body: Value::Null, stored: Some((session.to_owned(), message)) }
}

/// An ask that is open.
struct Asked {
    ask: Value,
    /// A script waits for the answer.
    running: bool,
}

/// An ask is found only in its own directory.
fn asked(state: &State, kind: &str, id: &str, directory: &str) -> Option<Asked> {
    let asks = if kind == "permission" { &state.world.permissions } else { &state.world.questions };
    let ask = asks.iter().find(|ask| ask["id"] == id)?.clone();
    let session = text(&ask, "sessionID");
    if state.world.directory(session) != Some(directory) {
        return None;
    }
    let running = state.turns.get(state.world.root(session)).is_some_and(|turns| *turns > 0);
    Some(Asked { ask, running })
}

/// The script that waits for the answer sends the `replied` event; when none does any more (the turn was aborted), it is sent
/// here, as the real one does.
async fn reply(shared: &Shared, kind: &str, id: &str, asked: Option<Asked>, body: &Value) -> Answer {
    let Some(Asked { ask, running }) = asked else {
        let name = if kind == "permission" { "Permission" } else { "Question" };
        let body = json!({
            "_tag": format!("{name}NotFoundError"), "requestID": id, "message": format!("{name} request not found: {id}"),
        });
        return Answer::Json { status: 404, body, stored: None };
    };
    if !running {
        let replied = json!({"sessionID": ask["sessionID"], "requestID": id, "reply": body["reply"]});
        shared.emit(&event(&format!("{kind}.replied"), replied)).await;
    }
    ok(json!(true))
}
