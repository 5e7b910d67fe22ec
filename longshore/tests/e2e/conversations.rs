//! The same message more than once, and of two principals.

use serde_json::json;

use crate::client::{Client, message};
use crate::frames::state_of;
use crate::harness::Harness;
use crate::model_log;
use crate::upstream::{self, Agreement};

/// The gateway must have no task yet. `bob` is another principal.
pub(crate) async fn the_same_message_makes_one_task_and_one_prompt(harness: &Harness, bob: &Client) {
    let client = &harness.client;

    let prompt = "scn:text n=20 delay=30";
    let same = message(prompt);
    let (first, second, streamed) = tokio::join!(client.send(&same), client.send(&same), async {
        client.stream(&same).await.rest().await
    });
    let third = client.send(&same).await;
    for task in [&first, &second, &third] {
        assert_eq!(state_of(task), "COMPLETED", "{task:#}");
    }
    assert_eq!(first["id"], second["id"], "two tasks for one message at the same time");
    assert_eq!(first["id"], third["id"], "another task for the same message after the end");
    let played = harness.check(prompt, streamed, Agreement::Whole).await;
    assert_eq!(played.task["id"], first["id"], "another task for the stream");
    let asked = model_log::asked(&harness.opencode, prompt).await;
    assert_eq!(asked.len(), 1, "one message asked the model {} times", asked.len());
    let listed = client.call("ListTasks", json!({})).await;
    assert_eq!(listed["totalSize"], 1, "{listed:#}");

    // The same id and text of another principal is another message, and the first task is hidden from that principal.
    let id = first["id"].as_str().expect("a task has an id");
    for error in [
        bob.try_call("GetTask", json!({ "id": id })).await,
        bob.cancel(id).await,
        bob.try_call("SendMessage", json!({"message": {"messageId": "x", "role": "ROLE_USER", "taskId": id, "parts": [{"text": "hi"}]}})).await,
    ] {
        let error = error.expect_err("a task of another principal was shown");
        assert_eq!(error.code, -32001, "{}", error.body);
    }
    let mut theirs = same.clone();
    theirs["contextId"] = first["contextId"].clone();
    let theirs = bob.send(&theirs).await;
    assert_ne!(theirs["id"], first["id"], "another principal got the task");
    let sessions: Vec<String> =
        upstream::turns(&harness.opencode, prompt).await.into_iter().map(|turn| turn.session).collect();
    assert_eq!(sessions.len(), 2, "expected a prompt for each of the two");
    assert_ne!(sessions[0], sessions[1], "two principals in one session");
}
