//! Sessions whose directory is not the root of the workspace.

use std::path::Path;

use longshore_testkit::gateway::until;
use serde_json::{Value, json};

use super::reading::{CHILDREN, GET, LIST, MESSAGES, PLANNED, STATUS, items, of};
use crate::client::PATIENCE;
use crate::control::fixture::{Fixture, OwnedSession};

/// OpenCode has an instance for each directory. (The Python peer asks the wrong one.)
pub(super) async fn o08_a_session_is_read_in_its_own_directory(fixture: &Fixture) -> OwnedSession {
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let ships = root.join("ships").display().to_string();
    let below = assert_read_there(fixture, &ships).await;
    assert_read_there(fixture, &worktree(fixture).await).await;
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

/// Creates a worktree outside of the root in OpenCode, and waits for its files.
async fn worktree(fixture: &Fixture) -> String {
    let made =
        fixture.harness.opencode.post_json("/experimental/worktree", &json!({"name": "elsewhere"})).await;
    let directory = made["directory"].as_str().unwrap_or_else(|| panic!("no worktree: {made:#}")).to_owned();
    let file = Path::new(&directory).join("ships/crew.txt");
    until(PATIENCE, "the worktree has its files", || file.exists()).await;
    directory
}

async fn assert_read_there(fixture: &Fixture, there: &str) -> OwnedSession {
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let root = root.display().to_string();
    let script = "scn:todo items=\"Count the crew\" scn:bash cmd=pwd scn:text text=\"Counted.\" (o08)";
    let own = fixture.session_in(there, script).await;
    let upstream = fixture.upstream(&own.session).await;
    assert_eq!(upstream["directory"], there, "{upstream:#}");
    for ada in fixture.ada() {
        let messages = fixture.harness.opencode.messages(&own.session).await;
        for position in [
            json!({}),
            json!({"metadata": {"opencode": {"directory": root}}}),
            json!({"metadata": {"opencode": {"directory": there}, "shared": {}}}),
        ] {
            let with = |mut params: Value| {
                params["metadata"] = position["metadata"].clone();
                params
            };
            let name = format!("o08 {there} {} {position}", ada.version.as_str());
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
        // A prompt runs in the directory of its session.
        let text = format!("scn:bash cmd=pwd scn:text n=1 (o08 {there} on {})", ada.version.as_str());
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
