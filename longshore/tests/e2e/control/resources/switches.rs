//! What changes places is off until the operator switches it on, and then everywhere at once.

use serde_json::{Value, json};

use super::{card, is_change, rows};
use crate::control::caller::{Caller, Kind};
use crate::control::fixture::Fixture;

const TOGGLE: &str = "A2A_ENABLE_WORKSPACE_MUTATIONS";

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_off_until_they_are_switched_on() {
    let mut fixture = Fixture::start(&[]).await;
    follows(&fixture, false).await;
    assert_eq!(worktrees(&fixture).await, json!([]), "something was made");

    fixture.harness.gateway.terminate().await;
    let started = fixture.harness.gateway.try_restart(Some((TOGGLE, "true"))).await;
    started.expect("the gateway starts again");
    fixture.harness.opencode = fixture.harness.gateway.opencode().await;
    follows(&fixture, true).await;
    an_opencode_without_workspaces_makes_none(&fixture).await;
}

async fn worktrees(fixture: &Fixture) -> Value {
    fixture.harness.opencode.get("/experimental/worktree").await
}

/// The documents say what is so, and what is called follows them.
async fn follows(fixture: &Fixture, is_on: bool) {
    for ada in fixture.ada() {
        let card = card(fixture, ada.line).await.body;
        let all = member(&card, "all_jsonrpc_methods").expect("the card has a contract");
        let conditional = member(&card, "conditionally_available_methods").expect("the card has them");
        for (method, params) in rows().into_iter().filter(|(method, _)| is_change(method)) {
            let is_listed = all.as_array().expect("a list").contains(&json!(method));
            assert_eq!(is_listed, is_on, "{method} {:?}: {all}", ada.line);
            assert_eq!(conditional.get(method).is_some(), !is_on, "{method} {:?}: {conditional}", ada.line);
            if !is_on {
                assert_eq!(conditional[method]["toggle"], TOGGLE, "{conditional:#}");
                let refusal = ada.refused(method, params, Kind::DISABLED).await;
                assert_eq!(refusal.detail("toggle"), TOGGLE, "{:#}", refusal.body);
            }
        }
        let served = ada.served("opencode.worktrees.").await;
        assert_eq!(served.len(), if is_on { 4 } else { 1 }, "{served:?}");
        let unknown = json!({"workspace_id": "wrk_nobody"});
        if is_on {
            let reported = ada.result("opencode.workspaces.remove", unknown).await;
            assert_eq!(reported, json!({"item": null}));
        }
        // Reads are not concerned.
        assert_eq!(ada.result("opencode.worktrees.list", json!({})).await, json!({"items": []}));
    }
}

/// Without its own switch, OpenCode lists no workspaces, and says after some time that it made none.
async fn an_opencode_without_workspaces_makes_none(fixture: &Fixture) {
    let [ada, old]: [Caller; 2] = fixture.ada();
    for caller in [&ada, &old] {
        assert_eq!(caller.result("opencode.workspaces.list", json!({})).await, json!({"items": []}));
    }
    let request = json!({"request": {"type": "worktree"}});
    let refusal = ada.refused("opencode.workspaces.create", request, Kind::HTTP).await;
    let status = refusal.detail("upstream_status").to_string();
    assert_eq!(status.trim_matches('"'), "400", "{:#}", refusal.body);
}

/// The first member of this name, however deep.
fn member<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    match document {
        Value::Object(members) => {
            members.get(name).or_else(|| members.values().find_map(|inner| member(inner, name)))
        }
        Value::Array(items) => items.iter().find_map(|item| member(item, name)),
        _ => None,
    }
}
