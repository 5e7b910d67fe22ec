//! Workspaces: created by an adapter of OpenCode, used by their ids, and removed.

use std::path::Path;

use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::SLOW;
use crate::client::{PATIENCE, message};
use crate::control::caller::{Caller, Kind};
use crate::control::fixture::{Fixture, SESSION_BINDING};
use crate::frames::state_of;

const LIST: &str = "opencode.workspaces.list";
const CREATE: &str = "opencode.workspaces.create";
const REMOVE: &str = "opencode.workspaces.remove";

pub(super) async fn are_made_and_removed(fixture: &Fixture) {
    for ada in fixture.ada() {
        let id = if ada.version == ProtocolVersion::V1 { "wrk_new" } else { "wrk-old" };
        assert_eq!(ada.result(LIST, json!({})).await, json!({"items": []}));
        assert_refused_by_opencode(&ada, json!({"type": "git", "branch": "main"}), "git").await;
        // OpenCode refuses it, and keeps the workspace nevertheless.
        let taken = json!({"type": "worktree", "branch": "main", "id": "wrk_taken"});
        assert_refused_by_opencode(&ada, taken, "main").await;
        ada.result(REMOVE, json!({"workspace_id": "wrk_taken"})).await;

        let made = ada.result(CREATE, json!({"request": {"type": "worktree", "id": id}})).await;
        let [upstream] = &listed(fixture).await[..] else { panic!("OpenCode has one workspace") };
        let directory = upstream["directory"].as_str().expect("one of worktrees has a directory");
        assert!(Path::new(directory).join(SLOW).exists(), "the answer came before the files");
        let expected = expected(&ada, upstream);
        assert_eq!(without_time(made), json!({"item": expected}));
        assert_eq!(without_time(ada.result(LIST, json!({})).await), json!({"items": [expected]}));
        assert_usable_at_once(fixture, id, directory).await;
        let again = json!({"request": {"type": "worktree", "id": id}});
        ada.invalid(CREATE, again, "request.id").await.assert_says("choose another");
        ada.invalid(CREATE, json!({"request": {"type": "worktree", "id": "mine"}}), "request.id").await;
        assert_eq!(listed(fixture).await.len(), 1);

        let inside = assert_sessions_protect_workspace(fixture, &ada, id).await;
        let removed = ada.result(REMOVE, json!({"workspace_id": id})).await;
        ada.refused("opencode.sessions.get", json!({"session_id": inside}), Kind::NOT_FOUND).await;
        assert_eq!(without_time(removed), json!({"item": expected}));
        assert_eq!(listed(fixture).await, [] as [Value; 0]);
        o09_an_unknown_workspace_is_null(&ada, id).await;
        ada.invalid(REMOVE, json!({"workspace_id": "mine"}), "workspace_id").await;
    }
}

/// The workspaces that OpenCode lists.
async fn listed(fixture: &Fixture) -> Vec<Value> {
    let listed = fixture.harness.opencode.get("/experimental/workspace").await;
    listed.as_array().expect("a list of workspaces").clone()
}

/// What the gateway reports for a workspace of OpenCode.
fn expected(ada: &Caller, upstream: &Value) -> Value {
    let mut fields = vec!["id", "type", "name", "branch"];
    if ada.version == ProtocolVersion::V03 {
        fields.extend(["directory", "projectID"]);
    }
    let fields = fields.into_iter().filter(|field| !upstream[*field].is_null());
    fields.map(|field| (field.to_owned(), upstream[field].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Without the time of the last use, which every query changes.
fn without_time(reported: Value) -> Value {
    match reported {
        Value::Object(members) => {
            let members = members.into_iter().filter(|(name, _)| name != "timeUsed");
            Value::Object(members.map(|(name, value)| (name, without_time(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_time).collect(),
        reported => reported,
    }
}

async fn assert_refused_by_opencode(ada: &Caller, request: Value, why: &str) {
    let refusal = ada.refused(CREATE, json!({"request": request}), Kind::HTTP).await;
    let status = refusal.detail("upstream_status").to_string();
    assert_eq!(status.trim_matches('"'), "400", "{:#}", refusal.body);
    assert!(refusal.detail("detail").to_string().contains(why), "{:#}", refusal.body);
}

async fn assert_usable_at_once(fixture: &Fixture, id: &str, directory: &str) {
    let mut message = message(&format!("scn:write path=tried.txt content=ahoy scn:text n=1 ({id})"));
    message["metadata"] = json!({"opencode": {"workspace": {"id": id}}});
    let task = fixture.harness.client.activating(&[SESSION_BINDING]).send(&message).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    assert!(Path::new(directory).join("tried.txt").exists(), "the agent did not write into {directory}");
}

/// OpenCode deletes the sessions of a workspace with it, so a workspace with the session of another caller, or with a busy
/// session, cannot be removed. Returns the id of a session in it.
async fn assert_sessions_protect_workspace(fixture: &Fixture, ada: &Caller, id: &str) -> String {
    let opencode = &fixture.harness.opencode;
    let inside = opencode.post_json(&format!("/session?workspace={id}"), &json!({})).await;
    let inside = inside["id"].as_str().unwrap_or_else(|| panic!("no session: {inside:#}")).to_owned();
    let remove = json!({"workspace_id": id});
    // A caller that changes an unowned session owns it from then on.
    ada.result("opencode.sessions.unrevert", json!({"session_id": inside})).await;
    for bob in fixture.bob() {
        let refusal = bob.refused(REMOVE, remove.clone(), Kind::FORBIDDEN).await;
        assert!(!refusal.body.to_string().contains(&inside), "{:#}", refusal.body);
    }
    // Another client of OpenCode prompts there.
    let prompt = json!({"parts": [{"type": "text", "text": "scn:forever"}]});
    opencode.post_json(&format!("/session/{inside}/prompt_async"), &prompt).await;
    until_busy(fixture, &inside, true).await;
    ada.refused(REMOVE, remove, Kind::BUSY).await;
    opencode.post_json(&format!("/session/{inside}/abort"), &json!({})).await;
    until_busy(fixture, &inside, false).await;
    inside
}

/// Waits for OpenCode's own status of a session.
async fn until_busy(fixture: &Fixture, session: &str, expected: bool) {
    let directory = fixture.upstream(session).await["directory"].as_str().expect("a directory").to_owned();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let busy = fixture.harness.opencode.get(&format!("/session/status?directory={directory}")).await;
        if busy.get(session).is_some() == expected {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "busy: {expected}, but {busy:#}");
    }
}

/// OpenCode answers `null` for an unknown workspace.
async fn o09_an_unknown_workspace_is_null(ada: &Caller, removed: &str) {
    for id in [removed, "wrk_nobody"] {
        assert_eq!(ada.result(REMOVE, json!({"workspace_id": id})).await, json!({"item": null}), "{id}");
    }
}
