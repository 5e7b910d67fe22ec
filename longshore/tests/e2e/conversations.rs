//! Several contexts at once, several messages in one context, and the same message more than once.

use serde_json::json;

use crate::client::{Client, message, message_in};
use crate::frames::{context_id, nth_text, state, state_of, task_id};
use crate::harness::Harness;
use crate::model_log;
use crate::upstream::{self, Agreement};

pub(crate) async fn contexts_run_side_by_side_and_messages_of_one_context_in_order(harness: &Harness) {
    // Two contexts: the second ends while the first still runs.
    let mut slow = harness.client.stream(&message("scn:text n=60 delay=80 size=10")).await;
    let mut frames = slow.until("the first text", nth_text(1)).await;
    let quick = harness.play("scn:text n=2 size=11").await;
    quick.ended("COMPLETED", "");
    assert_eq!(
        state_of(&harness.client.get(&task_id(&frames[0])).await),
        "WORKING",
        "the first did not go on"
    );
    frames.extend(slow.rest().await);
    let slow = harness.check("scn:text n=60 delay=80 size=10", frames, Agreement::Whole).await;
    slow.ended("COMPLETED", "");
    assert_ne!(slow.turn.session, quick.turn.session, "two contexts in one session");

    // Three messages in one context: each waits for the one before, and the model sees the earlier messages.
    let prompts = ["scn:text n=30 delay=40 size=12", "scn:text n=3 size=12", "scn:text n=4 size=12"];
    let mut first = harness.client.stream(&message(prompts[0])).await;
    let mut frames = first.until("the first text", nth_text(1)).await;
    let context = context_id(&frames[0]);
    let mut later = Vec::new();
    for prompt in &prompts[1..] {
        let task = harness.client.submit(&message_in(&context, prompt)).await;
        assert_eq!(state_of(&task), "SUBMITTED", "a message for a busy context waits: {task:#}");
        later.push(task["id"].as_str().expect("a task has an id").to_owned());
    }
    frames.extend(first.rest().await);
    let mut played = vec![harness.check(prompts[0], frames, Agreement::Whole).await];
    for (prompt, task) in prompts[1..].iter().zip(&later) {
        let frames = harness.client.resume(task, 0).await.rest().await;
        played.push(harness.check(prompt, frames, Agreement::Whole).await);
    }
    let session = played[0].turn.session.clone();
    for (index, played) in played.iter().enumerate() {
        played.ended("COMPLETED", "");
        assert_eq!(played.turn.session, session, "one context in two sessions");
        let asked = model_log::asked(&harness.opencode, &played.name).await;
        assert_eq!(asked.len(), 1, "{}: the model was asked {asked:#?}", played.name);
        assert_eq!(
            asked[0]["user_messages"],
            index + 1,
            "{}: what the model saw: {:#}",
            played.name,
            asked[0]
        );
    }
    // No task started before the one before it had ended.
    for pair in played.windows(2) {
        let ended = pair[0].task["status"]["timestamp"].as_str().expect("a status has a time");
        let began = pair[1].frames.iter().find(|frame| state(frame) == Some("WORKING"));
        let began = began.and_then(|frame| frame.json.pointer("/statusUpdate/status/timestamp")?.as_str());
        assert!(
            began.is_some_and(|began| began >= ended),
            "{} began at {began:?}, before {ended}",
            pair[1].name
        );
    }
}

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
