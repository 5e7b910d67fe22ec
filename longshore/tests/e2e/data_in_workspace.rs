//! A data directory in the workspace, and OpenCode's snapshots of the workspace.

use longshore_testkit::gateway::{Setup, TOKEN};
use serde_json::{Value, json};

use crate::client::{PATIENCE, message};
use crate::frames::state_of;
use crate::harness::{Harness, LONGSHORE};

/// Without the ignore file that the start writes, OpenCode reports the store, the token and its own password as changes.
#[tokio::test]
async fn snapshots_leave_out_the_data_directory() {
    let harness = Harness::start(Setup::demo(LONGSHORE).data_in_workspace()).await;
    let data = harness.gateway.data_dir();
    let prompt = "scn:write path=made.txt content=\"made\\n\" scn:bash cmd=\"date +%N > clock\" scn:text n=1";
    let task = harness.client.send(&message(prompt)).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    let client = harness.client.activating(&["urn:opencode-a2a:extension:session-management:v1"]);
    let sessions = client.call("opencode.sessions.list", json!({})).await;
    let session = sessions["items"][0]["id"].as_str().unwrap_or_else(|| panic!("no session: {sessions:#}"));
    // OpenCode computes the changes of a turn after its end.
    let reported = async {
        loop {
            let diffs = client.call("opencode.sessions.diff", json!({"session_id": session})).await;
            let items = diffs["items"].as_array().expect("a list").clone();
            if items.iter().any(|diff| diff["file"] == "made.txt") {
                break items;
            }
        }
    };
    let changed = tokio::time::timeout(PATIENCE, reported).await.expect("OpenCode reports the new file");
    let files: Vec<&str> = changed.iter().filter_map(|diff| diff["file"].as_str()).collect();
    assert!(files.iter().all(|file| !file.contains(".longshore")), "{files:?}");
    let shown = Value::from(changed.clone()).to_string();
    assert!(!shown.contains(TOKEN), "{shown}");
    let password = std::fs::read_to_string(data.join("managed.json")).expect("OpenCode is managed");
    let password: Value = serde_json::from_str(&password).expect("the record is JSON");
    assert!(!shown.contains(password["password"].as_str().expect("a record has a password")), "{shown}");
}
