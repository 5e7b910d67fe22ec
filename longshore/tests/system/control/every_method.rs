//! Every method of the table in both versions: its result, and the requests that it makes to OpenCode.

use std::collections::{BTreeMap, BTreeSet};

use longshore_testkit::fake_opencode::LoggedRequest;
use longshore_wire::methods::{Method, Upstream};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::fixture::{Settings, agent_methods};
use crate::control::populated::{LoggedCall, Populated, SESSION, call_and_log, path_template, valid_params};

/// The valid parameters of a method, and further ones where the method makes other requests with them.
fn calls_of(method: &Method, session: &str) -> Vec<(Value, &'static [Upstream])> {
    let params = valid_params(method, session);
    match method.key {
        "get_session_diff" => {
            let whole = json!({"session_id": session});
            vec![(params, &method.upstream[..1]), (whole, &method.upstream[1..])]
        }
        "prompt_async" => {
            let mut note = params.clone();
            note["request"]["noReply"] = true.into();
            vec![(params, method.upstream), (note, method.upstream)]
        }
        "list_sessions" | "fork" | "summarize" => {
            let mut other = params.clone();
            match method.key {
                "list_sessions" => other = json!({}),
                "fork" => drop(other.as_object_mut().map(|fields| fields.remove("request"))),
                _ => other["request"] = json!({"providerID": "scripted", "modelID": "vision"}),
            }
            vec![(params, method.upstream), (other, method.upstream)]
        }
        "get_session_messages" => {
            // The cursor of the first page.
            let older =
                json!({"session_id": session, "limit": 1, "before": "eyJpZCI6Im1zZ19hMiIsInRpbWUiOjZ9"});
            vec![(params, method.upstream), (older, method.upstream)]
        }
        "remove_workspace" => {
            // The workspace does not exist, so nothing is removed: OpenCode would remove the workspace of another
            // project.
            vec![(params, method.upstream), (json!({"workspace_id": "wrk_none"}), &[])]
        }
        _ => vec![(params, method.upstream)],
    }
}

/// Further requests that a method makes, and why.
pub(crate) const ON_THE_WAY: &[(&str, &[&str], &str)] = &[
    (
        "get_session_diff",
        &["GET /session/{id}"],
        "OpenCode fails at the diff of a session that it does not have, and does not say so",
    ),
    (
        "prompt_async",
        &["GET /session/{id}"],
        "only OpenCode knows whether the session is a sub-agent's or a workspace's, which cannot be prompted",
    ),
    (
        "prompt_async",
        &[
            "GET /event",
            "GET /session/status",
            "GET /session/{id}/message",
            "GET /permission",
            "GET /question",
        ],
        "the turn that it starts: the gateway reads its events from the start, waits until the session is idle, and reads the lists after a gap",
    ),
    (
        "command",
        &["GET /session/{id}", "GET /command"],
        "the same; and OpenCode fails at an unknown command only after it has sent events",
    ),
    (
        "command",
        &[
            "GET /event",
            "GET /session/status",
            "GET /session/{id}/message",
            "GET /permission",
            "GET /question",
        ],
        "the turn that it begins, and its last message, which is the answer",
    ),
    (
        "fork",
        &["GET /session/{id}/message/{message}"],
        "OpenCode copies everything for a message that it does not have",
    ),
    (
        "summarize",
        &["GET /session/status", "GET /session/{id}", "GET /config/providers", "GET /config"],
        "the session must be idle, and OpenCode requires a model: that of the session, or the default",
    ),
    (
        "revert",
        &["GET /session/status", "GET /session/{id}/message/{message}"],
        "the session must be idle, and OpenCode says yes to names that it does not have",
    ),
    ("unrevert", &["GET /session/status"], "the session must be idle"),
    (
        "shell",
        &["GET /session/status", "GET /agent"],
        "the session must be idle, and OpenCode takes agents that it does not have",
    ),
    (
        "delete",
        &["GET /session/status", "GET /session/{id}"],
        "the session must be idle, and only OpenCode knows whether it is a sub-agent's",
    ),
    (
        "create_workspace",
        &["GET /experimental/workspace", "GET /global/event"],
        "only the database of OpenCode refuses a used name, and only this event stream shows when the workspace is ready",
    ),
    (
        "remove_workspace",
        &["GET /experimental/workspace"],
        "OpenCode removes the workspaces of any project by their names",
    ),
    (
        "remove_workspace",
        &["GET /session"],
        "and deletes the sessions of a workspace with it, whosever they are",
    ),
    ("create_worktree", &["GET /global/event"], "only this event stream shows when the worktree is ready"),
    (
        "remove_worktree",
        &["GET /experimental/worktree"],
        "OpenCode deletes any directory that it is given, so only listed worktrees are accepted",
    ),
    (
        "reset_worktree",
        &["GET /experimental/worktree"],
        "names are looked up, and only listed worktrees are accepted",
    ),
];

fn templates(asked: &[LoggedRequest]) -> BTreeSet<String> {
    asked.iter().map(|request| path_template(&format!("{} {}", request.method, request.target))).collect()
}

fn request_of(upstream: &Upstream) -> String {
    format!("{} {}", upstream.verb.as_str(), upstream.path)
}

/// The query has only the names that the table lists for the request.
fn check_query(method: &Method, asked: &[LoggedRequest]) {
    for upstream in method.upstream {
        let is_it = |request: &&LoggedRequest| {
            path_template(&format!("{} {}", request.method, request.target)) == request_of(upstream)
        };
        for request in asked.iter().filter(is_it) {
            for (name, _) in &request.query {
                assert!(upstream.query.contains(&name.as_str()), "{} {}", method.name, request.target);
            }
        }
    }
}

/// The requests of a call are those that the table lists for it, and those of [`ON_THE_WAY`], which are removed from `unused`.
fn check_requests(
    method: &Method,
    upstream: &[Upstream],
    call: &LoggedCall,
    unused: &mut BTreeSet<(&str, &str)>,
) {
    let asked = templates(&call.asked);
    let what = format!("{} {}: {asked:?}", method.name, call.params);
    let mut others = asked.clone();
    for upstream in upstream {
        assert!(others.remove(&request_of(upstream)), "the table has {}: {what}", upstream.path);
    }
    for (key, on_the_way, _) in ON_THE_WAY.iter().filter(|(key, ..)| *key == method.key) {
        for one in *on_the_way {
            others.remove(*one);
            if asked.contains(*one) {
                unused.remove(&(*key, *one));
            }
        }
    }
    assert!(others.is_empty(), "no row explains the requests {others:?}: {what}");
    check_query(method, &call.asked);
}

#[tokio::test]
async fn every_method_returns_its_result_in_both_versions() {
    let mut unused: BTreeSet<(&str, &str)> =
        ON_THE_WAY.iter().flat_map(|(key, asked, _)| asked.iter().map(|one| (*key, *one))).collect();
    // These requests depend on timing: a turn that misses no event makes none of them.
    unused.retain(|(_, asked)| {
        !["GET /permission", "GET /question", "GET /session/{id}/message"].contains(asked)
    });
    let (shared, mut shown) = (Populated::with_places(Settings::default()).await, Vec::new());
    for method in agent_methods() {
        for variant in 0..calls_of(method, SESSION).len() {
            let mut results = BTreeMap::new();
            let mut params = String::new();
            for version in ProtocolVersion::ALL {
                let own = Populated::for_change(method, Settings::default()).await;
                let populated = own.as_ref().unwrap_or(&shared);
                let session = populated.session_for(method).await;
                let (given, upstream) = calls_of(method, &session).swap_remove(variant);
                let call = call_and_log(populated, version, method, given).await;
                check_requests(method, upstream, &call, &mut unused);
                params = populated.redacted(&session, &call.params.to_string());
                results.insert(version.as_str(), populated.redacted(&session, &call.result.to_string()));
                if let Some(own) = own {
                    own.fixture.stop().await;
                }
            }
            let reported = match (&results["1.0"], &results["0.3"]) {
                (new, old) if new == old => format!("  both: {new}"),
                (new, old) => format!("  1.0:  {new}\n  0.3:  {old}"),
            };
            shown.push(format!("{} {params}\n{reported}", method.name));
        }
    }
    shared.fixture.stop().await;
    assert!(unused.is_empty(), "no method makes these requests of ON_THE_WAY: {unused:?}");
    insta::assert_snapshot!(shown.join("\n"));
}
