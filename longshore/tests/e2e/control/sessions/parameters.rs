//! Optional parameters: each reaches OpenCode, which acts on it.

use longshore_testkit::raw::Frame;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::reading::{GET, LIST, STATUS, items, of};
use crate::client::message;
use crate::control::caller::Caller;
use crate::control::fixture::{Fixture, OwnedSession, SESSION_BINDING};
use crate::control::resources::{self, root};
use crate::frames::{self, state_of};
use crate::upstream::{self, Agreement};

const PROMPT: &str = "opencode.sessions.prompt_async";

#[tokio::test(flavor = "multi_thread")]
async fn long_optional_parameters_reach_opencode_in_both_versions() {
    let fixture = Fixture::prepared(&ProtocolVersion::ALL, resources::switched_on, |configuration| {
        configuration["provider"]["demo"]["models"]["demo"]["variants"] =
            json!({"brisk": {"reasoningEffort": "low"}});
    })
    .await;
    let own = fixture.session("scn:text n=1 (parameters)").await;
    for ada in fixture.ada() {
        o07_no_tool_makes_the_gateway_call_other_agents(&fixture, &ada, &own).await;
        a_prompt_has_its_system_and_its_variant(&fixture, &ada, &own).await;
        a_command_has_its_variant(&fixture, &ada, &own).await;
        a_session_keeps_its_own_directory(&fixture, &ada, &own).await;
        a_workspace_has_its_branch_and_can_be_read(&fixture, &ada, &own).await;
        a_worktree_needs_no_name(&fixture, &ada).await;
    }
}

fn suffix(ada: &Caller) -> &'static str {
    if ada.version == ProtocolVersion::V1 { "new" } else { "old" }
}

/// Sends a native prompt and returns the frames of its task.
async fn prompted(fixture: &Fixture, ada: &Caller, own: &OwnedSession, request: Value) -> Vec<Frame> {
    let begun = ada.result(PROMPT, json!({"session_id": own.session, "request": request})).await;
    let task = begun["task_id"].as_str().unwrap_or_else(|| panic!("no task: {begun:#}"));
    let frames = fixture.harness.client.resume(task, 0).await.rest().await;
    frames::check_log(task, &frames);
    frames
}

/// The Python peer watches for a tool of this name, calls another agent, and prompts again with the result. Here the name is that of
/// an unknown tool: its call fails, and the turn continues.
async fn o07_no_tool_makes_the_gateway_call_other_agents(
    fixture: &Fixture,
    ada: &Caller,
    own: &OwnedSession,
) {
    let asked = fixture.model.journal().turns().len();
    let words = format!(
        "scn:tool name=a2a_call args={{\"url\":\"{}\",\"message\":\"ahoy\"}} scn:text text=\"Nobody was called.\" (o07 {})",
        fixture.harness.gateway.url(),
        suffix(ada),
    );
    let request = json!({"parts": [{"type": "text", "text": words}]});
    let frames = prompted(fixture, ada, own, request).await;
    let played = fixture.harness.check(&words, frames, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.last_text(), "Nobody was called.");
    let blocks = upstream::blocks_of_task(&played.task);
    let [tool, _] = blocks.as_slice() else { panic!("o07: one tool and one text: {blocks:#?}") };
    // OpenCode replaces calls of unknown tools by its tool `invalid`.
    assert_eq!((tool.name.as_str(), &tool.content["input"]["tool"]), ("tool:invalid", &json!("a2a_call")));
    assert!(tool.content["output"].to_string().contains("unavailable tool 'a2a_call'"), "o07: {tool:#?}");
    // Once for the call, and once with its error: the gateway did not prompt again.
    assert_eq!(fixture.model.journal().turns().len(), asked + 2, "o07: the model was asked more often");
    let tasks = fixture.harness.client.call("ListTasks", json!({})).await;
    assert!(!tasks.to_string().contains("\"ahoy\""), "o07: another agent got a message: {tasks:#}");
}

async fn a_prompt_has_its_system_and_its_variant(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let words = format!("scn:text n=1 (system and variant {})", suffix(ada));
    let system = format!("You keep the harbour. ({})", suffix(ada));
    let request = json!({"parts": [{"type": "text", "text": words}], "system": system, "variant": "brisk"});
    let frames = prompted(fixture, ada, own, request).await;
    fixture.harness.check(&words, frames, Agreement::Whole).await.ended("COMPLETED", "");
    assert_eq!(message_text(fixture, own, &words).await["system"], system);
    assert_eq!(message_text(fixture, own, &words).await["model"]["variant"], "brisk");
    let request = json!({"parts": [{"type": "text", "text": "never"}], "variant": "no-such-variant",
        "model": {"providerID": "demo", "modelID": "demo"}});
    let params = json!({"session_id": own.session, "request": request});
    ada.invalid(PROMPT, params, "request.variant").await;
}

async fn a_command_has_its_variant(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let words = format!("scn:text n=1 (a variant of a command {})", suffix(ada));
    let request = json!({"command": "review", "arguments": words, "variant": "brisk", "model": "demo/demo"});
    let params = json!({"session_id": own.session, "request": request});
    ada.result("opencode.sessions.command", params).await;
    let said = message_text(fixture, own, &format!("Look at this. {words}")).await;
    assert_eq!(said["model"]["variant"], "brisk", "{said:#}");
}

/// The message with this text, as OpenCode has it.
async fn message_text(fixture: &Fixture, own: &OwnedSession, words: &str) -> Value {
    let messages = fixture.harness.opencode.messages(&own.session).await;
    let said = messages.into_iter().find(|message| upstream::message_text(message) == words);
    said.unwrap_or_else(|| panic!("no message has the text {words:?}"))["info"].take()
}

/// A directory in the parameters is checked, and the session is read in its own directory.
async fn a_session_keeps_its_own_directory(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let plain = ada.result(GET, of(&own.session)).await;
    for (name, position) in [
        ("directory", json!("ships")),
        ("directory", json!(root(fixture))),
        ("metadata", json!({"opencode": {"directory": "ships"}})),
    ] {
        let mut params = of(&own.session);
        params[name] = position;
        assert_eq!(ada.result(GET, params.clone()).await, plain, "{params}");
    }
    let mut params = of(&own.session);
    params["directory"] = json!("/etc");
    ada.invalid(GET, params, "directory").await;
}

async fn a_workspace_has_its_branch_and_can_be_read(fixture: &Fixture, ada: &Caller, own: &OwnedSession) {
    let (id, branch) = (format!("wrk_of_{}", suffix(ada)), format!("tide-{}", suffix(ada)));
    let request = json!({"type": "worktree", "id": id, "branch": branch, "extra": {"note": "at high tide"}});
    let made = ada.result("opencode.workspaces.create", json!({ "request": request })).await;
    let listed = fixture.harness.opencode.get("/experimental/workspace").await;
    let upstream = listed.as_array().into_iter().flatten().find(|listed| listed["id"] == id.as_str());
    let upstream = upstream.unwrap_or_else(|| panic!("OpenCode does not have {id}: {listed:#}"));
    assert_eq!((&made["item"]["id"], &made["item"]["branch"]), (&json!(id), &json!(branch)), "{made:#}");
    assert_eq!(
        (&upstream["branch"], &upstream["extra"]),
        (&json!(branch), &request["extra"]),
        "{upstream:#}"
    );

    let there = json!({"metadata": {"opencode": {"workspace": {"id": id}}}});
    for method in ["opencode.providers.list", "opencode.models.list"] {
        assert_eq!(ada.result(method, there.clone()).await, ada.result(method, json!({})).await, "{method}");
    }
    // The session of a workspace is listed there, that of the root is not.
    let mut first = message(&format!("scn:text n=1 (in {id})"));
    first["metadata"] = there["metadata"].clone();
    let task = fixture.harness.client.activating(&[SESSION_BINDING]).send(&first).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    let session = task.pointer("/metadata/shared/session/id").and_then(Value::as_str).expect("a session");
    let reported = ada.result(LIST, there.clone()).await;
    let ids: Vec<&str> = items(&reported).iter().filter_map(|item| item["id"].as_str()).collect();
    assert!(ids.contains(&session), "{reported:#}");
    assert_eq!(ada.result(STATUS, there.clone()).await, json!({"items": []}));
    let plain = ada.result(GET, of(&own.session)).await;
    let mut params = of(&own.session);
    params["metadata"] = there["metadata"].clone();
    assert_eq!(ada.result(GET, params).await, plain, "the session of the root, with a workspace beside it");
    ada.result("opencode.workspaces.remove", json!({"workspace_id": id})).await;
}

async fn a_worktree_needs_no_name(fixture: &Fixture, ada: &Caller) {
    for params in [json!({}), json!({"request": {}})] {
        let made = ada.result("opencode.worktrees.create", params.clone()).await;
        let name = made["item"]["name"].as_str().unwrap_or_else(|| panic!("{params}: no name in {made:#}"));
        let listed = fixture.harness.opencode.get("/experimental/worktree").await;
        let ends = format!("/{name}");
        let mut listed = listed.as_array().expect("a list of paths").iter().filter_map(Value::as_str);
        assert!(listed.any(|directory| directory.ends_with(&ends)), "{params}: {made:#}");
        let which = json!({"request": {"name": name}});
        assert_eq!(ada.result("opencode.worktrees.remove", which).await, json!({"ok": true}), "{params}");
    }
}
