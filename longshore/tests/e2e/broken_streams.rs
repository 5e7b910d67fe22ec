//! Replies that break off, and turns that a client or OpenCode stops.

use serde_json::Value;

use crate::client::{message, message_in};
use crate::frames::{artifact, context_id, nth_text, runs_a_tool, state_of, task_id, text};
use crate::harness::{Harness, Played, context, wait_until_idle};
use crate::upstream::{self, Agreement};

pub(crate) async fn broken_replies_are_withdrawn_or_fail_the_task(harness: &Harness) {
    // The reply breaks off in the middle of its text, and OpenCode asks the model again: the first text is withdrawn.
    for prompt in ["scn:cut mode=fin after=6 delay=60 times=1", "scn:cut mode=rst after=6 delay=60 times=1"] {
        let played = harness.play(prompt).await;
        played.ended("COMPLETED", "").has(&[("text", "This attempt went well.")]);
        let seen: Vec<String> = texts_seen(&played);
        assert_eq!(seen.len(), 2, "{prompt}: expected the broken text and the good one: {seen:?}");
        assert_withdrawn(&played);
    }

    // After a reply without a finish reason OpenCode asks the model again and again.
    let runaway = harness.play_stopped("scn:cut mode=noend after=2").await;
    runaway.ended("FAILED", "without a finish reason");
    wait_until_idle(harness, &runaway.turn.session).await;
    let next = harness.play_message(&message_in(&context(&runaway), "scn:text n=1"), Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, runaway.turn.session, "the conversation went to another session");

    // An error object in the stream that OpenCode does not retry.
    let broken = harness
        .play("scn:sseerror after=2 etype=invalid_request_error code=bad_request body=\"no such thing\"")
        .await;
    assert_eq!(state_of(&broken.task), "FAILED", "{:#}", broken.task);
}

pub(crate) async fn turns_that_are_stopped_end_canceled(harness: &Harness) {
    // Stopped by the client that sent the message.
    let prompt = "scn:forever delay=15 size=9";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("ten texts", nth_text(10)).await;
    let task = task_id(&frames[0]);
    let canceled = harness.client.cancel(&task).await.expect("a working task can be canceled");
    assert_eq!(state_of(&canceled), "CANCELED", "{canceled:#}");
    frames.extend(stream.rest().await);
    let session = {
        let played = harness.check(prompt, frames, Agreement::Stopped).await;
        played.ended("CANCELED", "");
        let again = harness.client.cancel(&task).await.expect_err("a canceled task cannot be canceled");
        assert_eq!(again.code, -32002, "{}", again.body);
        // The next message of the context goes to the same session, once the session is idle.
        let next =
            harness.play_message(&message_in(&context(&played), "scn:text n=2"), Agreement::Whole).await;
        next.ended("COMPLETED", "");
        assert_eq!(next.turn.session, played.turn.session, "the conversation went to another session");
        played.turn.session
    };
    wait_until_idle(harness, &session).await;

    // Stopped while a tool runs.
    let prompt = "scn:bash cmd=\"sleep 120\" scn:text n=1";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("the command runs", runs_a_tool).await;
    harness.client.cancel(&task_id(&frames[0])).await.expect("a working task can be canceled");
    frames.extend(stream.rest().await);
    harness.check(prompt, frames, Agreement::Stopped).await.ended("CANCELED", "");

    // Stopped by another client of OpenCode.
    let prompt = "scn:forever delay=15 size=11";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("ten texts", nth_text(10)).await;
    let session = upstream::turn(&harness.opencode, prompt).await.session;
    let aborted = harness.opencode.post(&format!("/session/{session}/abort")).await;
    assert_eq!(aborted, Value::Bool(true));
    frames.extend(stream.rest().await);
    harness.check(prompt, frames, Agreement::Whole).await.ended("CANCELED", "at OpenCode itself");

    // Stopped while it waits for its turn: OpenCode never sees the message.
    let mut first = harness.client.stream(&message("scn:forever delay=15 size=13")).await;
    let begun = first.until("the first text", nth_text(1)).await;
    let waiting = harness.client.submit(&message_in(&context_id(&begun[0]), "scn:text n=13")).await;
    assert_eq!(state_of(&waiting), "SUBMITTED", "{waiting:#}");
    let waiting = waiting["id"].as_str().expect("a task has an id");
    harness.client.cancel(waiting).await.expect("a waiting task can be canceled");
    harness.client.cancel(&task_id(&begun[0])).await.expect("a working task can be canceled");
    assert_eq!(state_of(&harness.client.get(waiting).await), "CANCELED");
    let reached = upstream::turns(&harness.opencode, "scn:text n=13").await;
    assert!(reached.is_empty(), "a task that was canceled in the queue was prompted: {reached:#?}");
}

/// The ids of the text blocks that had any text.
fn texts_seen(played: &Played) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for frame in played.frames.iter().filter(|frame| text(frame).is_some()) {
        let id = artifact(frame).and_then(|artifact| artifact["artifactId"].as_str()).unwrap_or_default();
        if !seen.iter().any(|known| known == id) {
            seen.push(id.to_owned());
        }
    }
    seen
}

/// Fails unless one update emptied the broken block before the task ended.
fn assert_withdrawn(played: &Played) {
    let withdrawals = played.frames.iter().filter(|frame| {
        let update = &frame.json["artifactUpdate"];
        update["append"] != true && update.pointer("/artifact/parts/0/text").is_some_and(|text| text == "")
    });
    assert_eq!(withdrawals.count(), 1, "{}: expected one withdrawal: {:#?}", played.name, played.frames);
    let emptied = played.task["artifacts"].as_array().into_iter().flatten();
    let emptied = emptied.filter(|artifact| artifact.pointer("/parts/0/text").is_some_and(|text| text == ""));
    assert_eq!(emptied.count(), 1, "{}: expected one emptied block in {:#}", played.name, played.task);
}
