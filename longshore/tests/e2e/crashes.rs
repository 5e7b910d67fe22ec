//! OpenCode or the gateway dies during a turn.

use std::time::Duration;

use longshore_testkit::gateway::{is_alive, kill};
use longshore_testkit::raw;

use crate::client::{message, message_in};
use crate::frames::{self, explanation, id, is_terminal, nth_text, state_of, task_id, text};
use crate::harness::{Harness, context};
use crate::upstream::{self, Agreement};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_opencode_fails_the_turn_and_is_restarted() {
    let mut harness = Harness::demo().await;
    let before = harness.play("scn:text n=1").await;

    let prompt = "scn:long n=2000 delay=10";
    let mut stream = harness.client.stream(&message_in(&context(&before), prompt)).await;
    let mut frames = stream.until("twenty texts", nth_text(20)).await;
    let old = harness.opencode.pid();
    kill(old);
    let next = harness.client.submit(&message("scn:text n=4")).await;
    frames.extend(stream.rest().await);
    frames::check_log(prompt, &frames);

    let task = harness.client.get(&task_id(&frames[0])).await;
    assert_eq!(raw::fold(&frames), raw::plain_text(&task), "the stream folds into another task");
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
    assert!(explanation(&task).contains("OpenCode ended in the middle of the turn"), "{task:#}");
    // OpenCode lost the text; the task keeps what the client has seen.
    let seen: String = frames.iter().filter_map(text).collect();
    let kept = upstream::blocks_of_task(&task);
    assert_eq!(kept.len(), 1, "{kept:#?}");
    assert_eq!(kept[0].content, seen.as_str(), "the task lost text that was seen");

    harness.until_opencode_is_back(old).await;
    let next = next["id"].as_str().expect("a task has an id");
    let ended = harness.client.resume(next, 0).await.rest().await;
    assert_eq!(ended.last().and_then(frames::state), Some("COMPLETED"), "{ended:#?}");
    let log = harness.gateway.log();
    for line in
        ["OpenCode is down; turns wait for it turns=2", "OpenCode is back; turns that waited for it continue"]
    {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    let after = harness.play_message(&message_in(&context(&before), "scn:text n=2"), Agreement::Whole).await;
    after.ended("COMPLETED", "");
    assert_eq!(after.turn.session, before.turn.session, "the conversation went to another session");
    harness.play("scn:text n=3").await.ended("COMPLETED", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_restarted_demo_resumes_its_turn() {
    let mut harness = Harness::demo().await;
    let opencode = harness.opencode.pid();

    // The model dies with the gateway, so OpenCode asks again: the text from before the crash is withdrawn.
    let prompt = "scn:text n=80 delay=25 size=9";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("ten texts", nth_text(10)).await;
    harness.gateway.kill();
    frames.extend(stream.rest().await);
    harness.restart().await;
    assert_eq!(harness.opencode.pid(), opencode, "another OpenCode was started");
    let last = frames.last().expect("frames came before the crash");
    frames.extend(harness.client.resume(&task_id(last), id(last)).await.rest().await);
    let played = harness.check(prompt, frames, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.text().len(), 80 * 9, "the text is not whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_gateway_resumes_its_turn() {
    let (mut harness, model) = Harness::with_own_model().await;
    let opencode = harness.opencode.pid();

    let prompt = "scn:text n=150 delay=30 size=9";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("twenty texts", nth_text(20)).await;
    harness.gateway.kill();
    frames.extend(stream.rest().await);
    assert!(is_alive(opencode), "OpenCode died with the gateway");
    harness.restart().await;
    assert_eq!(harness.opencode.pid(), opencode, "another OpenCode was started");

    let last = frames.last().expect("frames came before the crash");
    assert!(!is_terminal(last), "the turn was over before the crash: {last:#?}");
    frames.extend(harness.client.resume(&task_id(last), id(last)).await.rest().await);
    let played = harness.check(prompt, frames, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.text().len(), 150 * 9, "the text is not whole");
    let asked = model.journal().turns();
    assert_eq!(asked.len(), 1, "the model was asked again: {asked:#?}");

    let next = harness.play_message(&message_in(&context(&played), "scn:text n=2"), Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, played.turn.session, "the conversation went to another session");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_turn_that_ended_without_the_gateway_is_complete_after_its_time_limit() {
    let limit = Duration::from_secs(10);
    let (mut harness, _model) = Harness::configured(&["--turn-timeout", "10"], |_| {}).await;
    let prompt = "scn:text n=100 delay=30 size=9";
    let mut stream = harness.client.stream(&message(prompt)).await;
    let mut frames = stream.until("twenty texts", nth_text(20)).await;
    harness.gateway.kill();
    let killed = tokio::time::Instant::now();
    frames.extend(stream.rest().await);
    while !harness.opencode.busy().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // No event shows that the time of the turn is over.
    tokio::time::sleep_until(killed + limit).await;
    harness.restart().await;

    let last = frames.last().expect("frames came before the crash");
    assert!(!is_terminal(last), "the turn was over before the crash: {last:#?}");
    frames.extend(harness.client.resume(&task_id(last), id(last)).await.rest().await);
    let played = harness.check(prompt, frames, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.text().len(), 100 * 9, "the text is not whole");
}
