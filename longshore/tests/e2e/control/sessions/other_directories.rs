//! Sessions that work in other directories than the root.

use std::path::Path;

use longshore_testkit::gateway::until;
use serde_json::{Value, json};

use super::reading::{CHILDREN, GET, LIST, MESSAGES, PLANNED, STATUS, items, of};
use crate::client::PATIENCE;
use crate::control::fixture::{OwnedSession, Fixture};

/// OpenCode has an instance for each directory; the peer asks the wrong one.
pub(super) async fn o08_a_session_is_looked_at_in_its_own_directory(fixture: &Fixture) -> OwnedSession {
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let ships = root.join("ships").display().to_string();
    let below = is_looked_at_there(fixture, &ships).await;
    is_looked_at_there(fixture, &worktree(fixture).await).await;
    for ada in fixture.ada() {
        for (params, field) in [
            (json!({"directory": "/etc"}), "directory"),
            (json!({"metadata": {"opencode": {"directory": "/etc"}}}), "metadata.opencode.directory"),
        ] {
            ada.invalid(STATUS, params.clone(), field).await;
            ada.invalid(LIST, params, field).await;
        }
    }
    below
}

/// A worktree that OpenCode made, outside of the root, when its files are there.
async fn worktree(fixture: &Fixture) -> String {
    let made =
        fixture.harness.opencode.post_json("/experimental/worktree", &json!({"name": "elsewhere"})).await;
    let directory = made["directory"].as_str().unwrap_or_else(|| panic!("no worktree: {made:#}")).to_owned();
    let file = Path::new(&directory).join("ships/crew.txt");
    until(PATIENCE, "the worktree has its files", || file.exists()).await;
    directory
}

async fn is_looked_at_there(fixture: &Fixture, there: &str) -> OwnedSession {
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let root = root.display().to_string();
    let script = "scn:todo items=\"Count the crew\" scn:bash cmd=pwd scn:text text=\"Counted.\" (o08)";
    let own = fixture.session_in(there, script).await;
    let upstream = fixture.upstream(&own.session).await;
    assert_eq!(upstream["directory"], there, "{upstream:#}");
    for ada in fixture.ada() {
        let messages = fixture.harness.opencode.messages(&own.session).await;
        for place in [
            json!({}),
            json!({"metadata": {"opencode": {"directory": root}}}),
            json!({"metadata": {"opencode": {"directory": there}, "shared": {}}}),
        ] {
            let with = |mut params: Value| {
                params["metadata"] = place["metadata"].clone();
                params
            };
            let name = format!("o08 {there} {} {place}", ada.line.version());
            ada.assert_is_session(&ada.result(GET, with(of(&own.session))).await["item"], &upstream);
            let reported = ada.result(MESSAGES, with(of(&own.session))).await;
            assert_eq!(items(&reported).len(), messages.len(), "{name}: {reported:#}");
            for (reported, upstream) in items(&reported).iter().zip(&messages) {
                ada.assert_is_message(reported, upstream);
            }
            let todo = ada.result(PLANNED, with(of(&own.session))).await;
            assert_eq!(items(&todo)[0]["content"], "Count the crew", "{name}: {todo:#}");
            assert_eq!(ada.result(CHILDREN, with(of(&own.session))).await, json!({"items": []}), "{name}");
        }
        // What is prompted here is carried out here.
        let text = format!("scn:bash cmd=pwd scn:text n=1 (o08 {there} on {})", ada.line.version());
        let request = json!({"parts": [{"type": "text", "text": text}]});
        let params = json!({"session_id": own.session, "request": request});
        let begun = ada.result("opencode.sessions.prompt_async", params).await;
        let task = begun["task_id"].as_str().unwrap_or_else(|| panic!("no task: {begun:#}"));
        fixture.harness.client.resume(task, 0).await.rest().await;
        let reported = fixture.harness.client.get(task).await.to_string();
        assert!(reported.contains(&format!("{there}\\n")), "o08: the command ran elsewhere: {reported}");
    }
    own
}
