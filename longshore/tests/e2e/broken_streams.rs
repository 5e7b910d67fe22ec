//! Replies that break off, and turns that a client or OpenCode stops.

use crate::client::{message, message_in};
use crate::frames::{artifact, nth_text, runs_a_tool, state_of, task_id, text};
use crate::harness::{Harness, Played, context, wait_until_idle};
use crate::upstream::Agreement;

pub(crate) async fn a_broken_reply_is_withdrawn(harness: &Harness) {
    // The reply breaks off in the middle of its text, and OpenCode asks the model again: the first text is withdrawn.
    let played = harness.play("scn:cut mode=fin after=6 delay=60 times=1").await;
    played.ended("COMPLETED", "").has(&[("text", "This attempt went well.")]);
    let seen: Vec<String> = texts_seen(&played);
    assert_eq!(seen.len(), 2, "expected the broken text and the good one: {seen:?}");
    assert_withdrawn(&played);
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
