//! Models that fall silent or do not come to an end.

use std::time::Duration;

use longshore_testkit::gateway::Setup;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::client::{message, message_in, message_on};
use crate::harness::{Harness, LONGSHORE, context, wait_until_idle};
use crate::model_log;
use crate::upstream::Agreement;

/// Longer than any step of OpenCode on a busy machine.
const SILENCE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn long_a_silent_model_fails_the_turn_and_a_pause_with_a_reason_does_not() {
    let setup = Setup::demo(LONGSHORE).flag("--turn-silence").flag(SILENCE.as_secs().to_string());
    let harness = Harness::start(setup).await;
    let longer = SILENCE + Duration::from_secs(2);
    wake(&harness).await;

    // A running tool, a pause before a retry, and text in slow drops are not silence.
    for prompt in [
        format!("scn:bash cmd=\"sleep {}; echo woke\" scn:text n=1", longer.as_secs()),
        format!("scn:http status=503 times=1 retry_after={}", longer.as_secs()),
        format!("scn:text n=4 delay={}", SILENCE.as_millis() / 2),
    ] {
        let begun = Instant::now();
        harness.play(&prompt).await.ended("COMPLETED", "");
        assert!(begun.elapsed() >= longer, "{prompt}: it did not take long enough to tell");
    }

    // An unanswered ask is not silence either, in the root or in a sub-agent.
    for prompt in [
        "scn:bash cmd=\"touch waited\" scn:text n=1".to_owned(),
        format!("scn:task prompt={} scn:text n=1", json!("scn:bash cmd=\"touch below\" scn:text n=1")),
    ] {
        let asking = harness.until_asked(&message(&prompt)).await;
        sleep(longer).await;
        harness.client.send(&message_on(&asking.task, &json!({"text": "once"}))).await;
        harness.finished(&prompt, &asking.task).await.ended("COMPLETED", "");
    }

    let begun = Instant::now();
    let silent = harness.play_stopped("scn:stall after=3").await;
    let words = format!("Nothing came from the model for {} s", SILENCE.as_secs());
    silent.ended("FAILED", &words).has(&[("text", "anchor  ballast buoy ca ")]);
    assert!(begun.elapsed() >= SILENCE, "it was given {:?} only", begun.elapsed());
    wait_until_idle(&harness, &silent.turn.session).await;
    assert_eq!(model_log::asked(&harness.opencode, "scn:stall after=3").await.len(), 1, "it was asked again");
    let next = harness.play_message(&message_in(&context(&silent), "scn:text n=1"), Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, silent.turn.session, "the conversation went to another session");
}

/// Plays a turn directly in OpenCode, without the watchdog: the first turn of a new OpenCode may be silent for longer
/// than these tests allow.
async fn wake(harness: &Harness) {
    let session = harness.opencode.post_json("/session", &json!({})).await;
    let path = format!("/session/{}/message", session["id"].as_str().expect("a session has an id"));
    let prompt = json!({"parts": [{"type": "text", "text": "scn:bash scn:text n=1 (awake)"}]});
    harness.opencode.post_json(&path, &prompt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_model_that_makes_too_many_steps_is_stopped() {
    let harness = Harness::start(Setup::demo(LONGSHORE).flag("--turn-max-steps").flag("3")).await;
    harness.play("scn:bash scn:bash scn:text n=1").await.ended("COMPLETED", "");

    let prompt = format!("{}scn:text n=1", "scn:bash cmd=\"echo again\" ".repeat(9));
    let endless = harness.play_stopped(&prompt).await;
    endless.ended("FAILED", "within the 3 steps");
    wait_until_idle(&harness, &endless.turn.session).await;
    let asked = model_log::asked(&harness.opencode, &prompt).await.len();
    assert!((3..=5).contains(&asked), "the model made {asked} steps");
    let next = harness.play_message(&message_in(&context(&endless), "scn:text n=1"), Agreement::Whole).await;
    next.ended("COMPLETED", "");
}
