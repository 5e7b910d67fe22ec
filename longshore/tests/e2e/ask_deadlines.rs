//! Asks that outlive their gateway, or that nobody answers in time.

use longshore_testkit::gateway::{Setup, kill};
use longshore_testkit::raw;
use serde_json::{Value, json};

use crate::asking::{Answer, By, knowing};
use crate::client::{PATIENCE, message};
use crate::frames::{check_log, explanation, state_of};
use crate::harness::{Harness, LONGSHORE};

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_outlives_a_killed_gateway() {
    let (mut harness, _model) = Harness::with_own_model().await;
    for (by, prompt, answer) in [
        (By::Words, "scn:bash cmd=\"touch kept\" scn:text n=2", Answer::Reply("once")),
        (
            By::Method,
            "scn:question q=\"Still there?\" options=\"Yes|No\" scn:text n=2",
            Answer::Choose(&[&["Yes"]]),
        ),
    ] {
        let mut asking = harness.until_asked(&message(prompt)).await;
        let before = harness.open_asks(&asking.task, 1).await;
        harness.gateway.kill();
        harness.restart().await;
        assert_eq!(harness.open_asks(&asking.task, 1).await, before, "{prompt}: another ask is listed");
        let task = harness.client.get(&asking.task).await;
        assert_eq!(state_of(&task), "INPUT_REQUIRED", "{prompt}: {task:#}");
        harness.answer(&mut asking, &before[0], by, answer).await;
        let played = harness.finished(prompt, &asking.task).await;
        played.ended("COMPLETED", "");
        assert_eq!(played.last_text(), "anchor  ballast ");
    }
    assert!(harness.gateway.workspace().join("kept").exists(), "the command that was allowed did not run");

    // An OpenCode that dies forgets what it asked: the task ends and says so.
    let prompt = "scn:bash cmd=\"touch lost\" scn:text n=1";
    let asking = harness.until_asked(&message(prompt)).await;
    let subscribed = harness.client.subscribe(&asking.task).await;
    kill(harness.opencode.pid());
    subscribed.rest().await;
    let task = harness.client.get(&asking.task).await;
    assert_eq!(state_of(&task), "FAILED", "{task:#}");
    assert!(explanation(&task).contains("OpenCode"), "the reason does not say who failed: {task:#}");
    assert_eq!(harness.listed().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_that_nobody_answers_is_rejected_at_its_deadline() {
    let setup = Setup::demo(LONGSHORE)
        .env("A2A_INTERRUPT_REQUEST_TTL_SECONDS", "2")
        .env("A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS", "2");
    let harness = Harness::start(setup).await;
    for (prompt, method, answer, words) in [
        (
            "scn:bash cmd=\"touch late\" scn:text n=1",
            "a2a.interrupt.permission.reply",
            json!({"reply": "once"}),
            "rejected permission",
        ),
        (
            "scn:question q=\"Anybody?\" options=\"Yes|No\" scn:text n=1",
            "a2a.interrupt.question.reply",
            json!({"answers": [["Yes"]]}),
            "dismissed this question",
        ),
    ] {
        let asking = harness.until_asked(&message(prompt)).await;
        let subscribed = harness.client.subscribe(&asking.task).await;
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        subscribed.rest().await;
        let mut late = answer;
        late["request_id"] = request.into();
        let client = knowing(&harness.client);
        let reason = |refused: &Value| refused["data"][0]["reason"].as_str().unwrap_or_default().to_owned();
        let refused = client.try_call(method, late.clone()).await.expect_err("it is too late").body;
        assert_eq!(reason(&refused), "INTERRUPT_REQUEST_EXPIRED", "{prompt}: {refused:#}");

        // The record of it is kept for a while, and nothing tells when that is over.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let refused = client.try_call(method, late.clone()).await.expect_err("it is too late").body;
            if reason(&refused) == "INTERRUPT_REQUEST_NOT_FOUND" {
                break;
            }
            assert_eq!(reason(&refused), "INTERRUPT_REQUEST_EXPIRED", "{prompt}: {refused:#}");
            assert!(tokio::time::Instant::now() < deadline, "{prompt}: the record is kept for ever");
        }
        let frames = harness.client.resume(&asking.task, 0).await.rest().await;
        check_log(prompt, &frames);
        let task = harness.client.get(&asking.task).await;
        assert_eq!(
            raw::fold(&frames),
            raw::plain_text(&task),
            "{prompt}: the stream folds into another task"
        );
        harness.finished(prompt, &asking.task).await.ended("FAILED", words);
    }
    assert!(!harness.gateway.workspace().join("late").exists(), "a command ran that nobody allowed");
}
