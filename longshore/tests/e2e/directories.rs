//! Directories that OpenCode closes when another needs the room.

use serde_json::json;

use crate::client::{message, message_in};
use crate::control::fixture::SESSION_BINDING;
use crate::frames::state_of;
use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_closed_works_again() {
    let flags = ["--allow-directory-override=true", "--max-directories=1"];
    let (harness, _model) = Harness::configured(&flags, |_| {}).await;
    for name in ["one", "two"] {
        std::fs::create_dir(harness.gateway.workspace().join(name)).expect("a directory can be made");
    }
    let client = harness.client.activating(&[SESSION_BINDING]);
    let mut contexts = Vec::new();
    for name in ["one", "two"] {
        let mut first = message("scn:text n=2");
        first["metadata"] = json!({"opencode": {"directory": name}});
        let task = client.send(&first).await;
        assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
        contexts.push(task["contextId"].as_str().expect("a task has a context").to_owned());
    }
    for context in contexts {
        let task = harness.client.send(&message_in(&context, "scn:bash cmd=\"pwd\" scn:text n=3")).await;
        assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    }
    let log = harness.gateway.log();
    let closed = log.lines().filter(|line| line.contains("closed an idle directory of OpenCode")).count();
    assert_eq!(closed, 3, "{log}");
}
