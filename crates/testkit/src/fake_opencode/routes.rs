//! The endpoints of OpenCode that a gateway uses.

use std::sync::Arc;

use longshore_opencode_shapes::{Cost, Session, SessionTime, Tokens, to_value};
use serde_json::{Value, json};

use super::answer::{Answer, failure, not_found, ok, with_status};
use super::control;
use super::ids::{fresh, now_ms};
use super::project::PROJECT_ID;
use super::prompting;
use super::reads;
use super::request_log::LoggedRequest;
use super::state::{Shared, State};
use super::worktrees;
use super::world::{event, text};

/// Logs the request and answers it.
pub(super) async fn answer(shared: &Arc<Shared>, request: LoggedRequest) -> Answer {
    let path = request.path.clone();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let (position, asked) = log(shared, request.clone(), &segments);
    dispatch(shared, &request, position, asked).await
}

/// Answers a request that is at `position` in the log.
async fn dispatch(
    shared: &Arc<Shared>,
    request: &LoggedRequest,
    position: usize,
    asked: Option<Asked>,
) -> Answer {
    let body = &request.body;
    let segments: Vec<&str> = request.path.split('/').skip(1).collect();
    if let Some(refused) = reads::unknown_workspace(shared, request) {
        return refused;
    }
    let workspace = request.value("workspace");
    let of_workspace = workspace.and_then(|id| shared.lock().project.workspace(id).map(str::to_owned));
    let directory = of_workspace.as_deref().unwrap_or(&request.directory);
    match (request.method.as_str(), segments.as_slice()) {
        ("GET", ["global", "health"]) => ok(json!({"healthy": true, "version": shared.lock().version})),
        ("GET", ["event"]) => Answer::Events(shared.connect(directory, workspace).await),
        ("GET", ["global", "event"]) => Answer::Events(shared.change(|state| state.globals.connect())),
        ("GET", ["path"]) => ok(json!({"directory": directory, "worktree": directory})),
        ("GET", ["session"]) => reads::sessions(shared, request),
        ("POST", ["session"]) => ok(make_session(shared, directory, workspace, body).await),
        ("GET", ["session", "status"]) => ok(shared.lock().world.statuses(directory)),
        ("GET", ["permission"]) => {
            let state = shared.lock();
            ok(state.world.asks(&state.world.permissions, directory))
        }
        ("GET", ["question"]) => {
            let state = shared.lock();
            ok(state.world.asks(&state.world.questions, directory))
        }
        ("POST", [kind @ "permission", id, "reply"] | [kind @ "question", id, "reply" | "reject"]) => {
            reply(shared, kind, id, asked, body).await
        }
        // OpenCode checks the prefix of a session id before it looks the session up.
        (_, ["session", id, ..]) if !id.starts_with("ses") => failure(500),
        ("POST", ["session", _, "abort"]) => ok(json!(true)),
        ("GET", ["session", id, "diff"]) => reads::diff(shared, id, request),
        // OpenCode looks a message up without its session.
        ("GET", ["session", id, "message", message]) => reads::message(shared, id, message),
        (_, ["session", id, ..]) if shared.lock().world.session(id).is_none() => {
            not_found(&format!("Session not found: {id}"))
        }
        ("GET", ["session", id]) => ok(shared.lock().world.session(id).cloned().unwrap_or_default()),
        ("PATCH", ["session", id]) => ok(shared.change(|state| state.world.patch_session(id, body)).into()),
        ("DELETE", ["session", id]) => {
            delete_session(shared, id).await;
            ok(json!(true))
        }
        ("GET", ["session", id, "children"]) => ok(shared.lock().world.children(id)),
        ("GET", ["session", id, "todo"]) => reads::todo(shared, id),
        ("GET", ["session", id, "message"]) => reads::messages(shared, id, request),
        (method @ ("POST" | "DELETE"), ["session", id, action]) => {
            act(shared, (method, *action), id, body, position).await
        }
        ("POST", ["instance", "dispose"]) => {
            dispose(shared, directory).await;
            ok(json!(true))
        }
        ("POST", ["experimental", "worktree"]) => worktrees::create_worktree(shared, directory, body).await,
        ("DELETE", ["experimental", "worktree"]) => worktrees::remove_worktree(shared, body).await,
        ("POST", ["experimental", "worktree", "reset"]) => worktrees::reset_worktree(shared, body).await,
        ("POST", ["experimental", "workspace"]) => worktrees::create_workspace(shared, directory, body).await,
        ("DELETE", ["experimental", "workspace", id]) => worktrees::remove_workspace(shared, id).await,
        ("GET", path) => match shared.lock().project.answer(path, &shared.directory, directory) {
            Some(answer) => ok(answer),
            None => Answer::Page,
        },
        _ => Answer::Page,
    }
}

/// Operations on a session that exists.
async fn act(
    shared: &Arc<Shared>,
    action: (&str, &str),
    session: &str,
    body: &Value,
    position: usize,
) -> Answer {
    match action {
        ("POST", "prompt_async") => prompting::prompt(shared, session, body, position, false).await,
        ("POST", "message") => prompting::prompt(shared, session, body, position, true).await,
        ("POST", "command") => prompting::command(shared, session, body, position).await,
        ("POST", "fork") => control::fork(shared, session, body).await,
        ("POST", "share") => control::share(shared, session).await,
        ("DELETE", "share") => control::unshare(shared, session).await,
        ("POST", "summarize") => control::summarize(shared, session, body, position).await,
        ("POST", "revert") => control::revert(shared, session, body).await,
        ("POST", "unrevert") => control::unrevert(shared, session).await,
        ("POST", "shell") => control::shell(shared, session, body, position).await,
        _ => Answer::Page,
    }
}

/// Aborts all turns of the directory, then ends its streams.
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

/// The description of a new session.
pub(super) fn new_session(shared: &Shared, id: &str, directory: &str) -> Value {
    let state = shared.lock();
    let (project, path) = match state.project.path_of(&shared.directory, directory) {
        Some(path) => (PROJECT_ID, path),
        None => ("global", directory.trim_start_matches('/')),
    };
    let now = now_ms();
    to_value(&Session {
        id,
        slug: "quiet-harbor",
        project,
        directory,
        path,
        title: "New session",
        agent: None,
        model: None,
        version: &state.version,
        summary: None,
        cost: Cost::Nothing,
        tokens: Tokens::NONE,
        time: SessionTime { created: now, updated: now },
    })
}

/// Deletes a session and its descendants.
pub(super) async fn delete_session(shared: &Shared, id: &str) {
    let mut going = vec![id.to_owned()];
    while let Some(id) = going.pop() {
        let (info, children) = {
            let state = shared.lock();
            (state.world.session(&id).cloned(), state.world.children(&id))
        };
        let children = children.as_array().into_iter().flatten();
        going.extend(children.map(|child| text(child, "id").to_owned()));
        shared.emit(&event("session.deleted", json!({"sessionID": id, "info": info}))).await;
    }
}

/// Logs the request and returns the position after it, and the ask that it answers, if any. The ask is read now: once the request
/// is in the log, a script that waits for it may continue and close the ask.
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

async fn make_session(shared: &Shared, directory: &str, workspace: Option<&str>, body: &Value) -> Value {
    let recorded = shared.change(|state| state.sessions.pop_front());
    let mut info = recorded.unwrap_or_else(|| new_session(shared, &fresh("ses"), directory));
    info["directory"] = directory.into();
    for field in ["title", "parentID", "agent", "model", "metadata", "permission"] {
        if !body[field].is_null() {
            info[field] = body[field].clone();
        }
    }
    if let Some(workspace) = workspace {
        info["workspaceID"] = workspace.into();
    }
    let created = json!({"sessionID": info["id"], "info": info});
    shared.emit(&event("session.created", created)).await;
    info
}

/// An open permission request or question.
struct Asked {
    ask: Value,
    /// A script is waiting for the answer.
    running: bool,
}

/// OpenCode finds an ask only in its own directory.
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

/// The script that waits for the answer sends the `replied` event. If the turn was aborted and no script waits any more, the
/// event is sent here, as the real OpenCode does.
async fn reply(shared: &Shared, kind: &str, id: &str, asked: Option<Asked>, body: &Value) -> Answer {
    let Some(Asked { ask, running }) = asked else {
        let name = if kind == "permission" { "Permission" } else { "Question" };
        let body = json!({
            "_tag": format!("{name}NotFoundError"), "requestID": id, "message": format!("{name} request not found: {id}"),
        });
        return with_status(404, body);
    };
    if !running {
        let replied = json!({"sessionID": ask["sessionID"], "requestID": id, "reply": body["reply"]});
        shared.emit(&event(&format!("{kind}.replied"), replied)).await;
    }
    ok(json!(true))
}
