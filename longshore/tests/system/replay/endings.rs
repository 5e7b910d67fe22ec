//! Recordings that need an action of the test: the client cancels, OpenCode dies, the session is deleted, the prompt is
//! refused.

use longshore_testkit::fake_opencode::{Gate, Play};
use serde_json::json;

use crate::replay::fixture::{Fixture, check};
use crate::replay::recordings::assert_snapshot;

#[tokio::test]
async fn stall_ends_when_the_client_cancels() {
    let fixture = Fixture::new().await;
    let play = Play::new("stall");
    fixture.fake.play(&play);
    let mut stream = fixture.open(&play.prompts()[0]).await;
    let mut frames = Vec::new();
    while let Some(frame) = stream.next().await {
        let silent = frame.json["artifactUpdate"]["artifact"]["parts"][0]["text"]
            .as_str()
            .is_some_and(|text| text.ends_with("charlie "));
        frames.push(frame);
        if silent {
            break;
        }
    }
    let task = frames[0].json["task"]["id"].clone();
    let canceled = fixture.client().rpc("CancelTask", json!({"id": task})).await;
    assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED");
    frames.extend(stream.all().await);
    let seen = check(fixture.client(), frames).await;
    // The model is stopped as well, and later events of OpenCode change nothing.
    fixture.fake.wait_for_request("POST", "/abort", 1).await;
    fixture.fake.wait_until_idle().await;
    assert_snapshot("stall", &fixture.fake, &seen);
    assert_eq!(
        fixture.client().task(task.as_str().expect("an id")).await["status"]["state"],
        "TASK_STATE_CANCELED"
    );
}

#[tokio::test]
async fn restart_sigterm_fails_the_turn_and_keeps_what_was_seen() {
    let fixture = Fixture::new().await;
    let play = Play::new("restart_sigterm");
    fixture.fake.play(&play);
    let stream = fixture.open(&play.prompts()[0]).await;
    let reading = async {
        fixture.fake.wait_for_request("POST", "/prompt_async", 1).await;
        fixture.fake.wait_until_idle().await;
        fixture.fake.kill().await;
        fixture.fake.restart();
    };
    let (frames, ()) = tokio::join!(stream.all(), reading);
    let seen = check(fixture.client(), frames).await;
    assert_snapshot("restart_sigterm", &fixture.fake, &seen);
    assert_eq!(seen.state(), "FAILED");
    assert_eq!(fixture.fake.prompts().len(), 1, "the prompt is not sent again");
}

#[tokio::test]
async fn an_unknown_model_fails_the_turn_without_a_stack_trace() {
    let fixture = Fixture::new().await;
    let play = Play::new("error_model_not_found").only_prompts(&[1]);
    fixture.fake.play(&play);
    let seen = fixture.send(&play.prompts()[0]).await;
    assert_snapshot("error_model_not_found", &fixture.fake, &seen);
    assert_eq!(seen.state(), "FAILED");
}

#[tokio::test]
async fn an_unknown_agent_fails_the_turn_without_an_idle_event() {
    let fixture = Fixture::new().await;
    let play = Play::new("error_model_not_found").only_prompts(&[2]);
    fixture.fake.play(&play);
    let seen = fixture.send(&play.prompts()[0]).await;
    assert_snapshot("error_agent_not_found", &fixture.fake, &seen);
    assert_eq!(seen.state(), "FAILED");
}

#[tokio::test]
async fn delete_while_busy_ends_the_turn() {
    let fixture = Fixture::new().await;
    let play = Play::new("delete_while_busy").foreign_aborts();
    fixture.fake.play(&play);
    let seen = fixture.send(&play.prompts()[0]).await;
    assert_snapshot("delete_while_busy", &fixture.fake, &seen);
    assert!(matches!(seen.state(), "CANCELED" | "FAILED"), "{}", seen.state());
}

/// Another client aborts while the agent asks. The late answer of the recording changes nothing.
#[tokio::test]
async fn permission_abort_ends_the_ask_with_the_turn() {
    let fixture = Fixture::new().await;
    let play = Play::new("permission_abort").foreign_aborts().foreign_replies();
    fixture.fake.play(&play);
    let seen = fixture.send(&play.prompts()[0]).await;
    assert_snapshot("permission_abort", &fixture.fake, &seen);
    assert_eq!(seen.state(), "CANCELED");
    let listed =
        fixture.client_with_extensions().activating(&["urn:opencode-a2a:extension:interrupt-recovery:v1"]);
    let open = listed.rpc("opencode.permissions.list", json!({})).await;
    assert_eq!(open.result()["items"], json!([]));
}

#[tokio::test]
async fn an_asking_task_can_be_canceled_and_the_next_turn_works() {
    let fixture = Fixture::new().await;
    fixture.fake.play(&Play::new("permission_once"));
    let asked = fixture.send_until_asked("remove it").await;
    let reported = asked["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(reported.contains("rm -f gone.txt"), "{reported}");
    let canceled = fixture.client().rpc("CancelTask", json!({"id": asked["id"]})).await;
    assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED");
    fixture.fake.wait_for_request("POST", "/abort", 1).await;
    let next = fixture.send_in(asked["contextId"].as_str(), "message-2", "go on").await;
    assert_eq!((next.state(), next.text().as_str()), ("COMPLETED", "unscripted"));
}

#[tokio::test]
async fn a_canceled_turn_ends_before_the_next_prompt_is_sent() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    // OpenCode answers the abort at once, but the session stays busy until the gate opens.
    fixture.fake.play(&Play::new("abort_stream").hold_after("session.error", 1, &gate).only_prompts(&[0]));
    let mut stream = fixture.open("go").await;
    let first = stream.next().await.expect("the task");
    fixture.fake.wait_for_request("POST", "/prompt_async", 1).await;
    let (task, context) = (&first.json["task"]["id"], first.json["task"]["contextId"].clone());
    fixture.client().rpc("CancelTask", json!({"id": task})).await.result();
    gate.reached().await;
    let next = fixture.send_in(context.as_str(), "message-2", "again");
    let release = async {
        // The second turn checks whether the session is idle, and it is not.
        fixture.fake.wait_for_request("GET", "/session/status", 2).await;
        assert_eq!(fixture.fake.prompts().len(), 1);
        gate.open();
    };
    let (next, ()) = tokio::join!(next, release);
    assert_eq!(next.state(), "COMPLETED");
    assert!(fixture.fake.prompts().iter().all(|prompt| !prompt.while_busy));
}
