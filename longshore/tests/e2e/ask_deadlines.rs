//! Asks that survive their gateway, that end with their OpenCode, or that are not answered in time.

use longshore_testkit::gateway::{Setup, kill};

use crate::asking::{Answer, AskingTask, By, interrupt_field, phase, request_id, with_interrupts};
use crate::client::{Binding, PATIENCE, message, message_in};
use crate::frames::{check_log, explanation, state_of, task_id};
use crate::harness::{Harness, LONGSHORE};
use crate::upstream::Agreement;

/// A permission, a question, and the permission of a sub-agent, with their answers.
const ASKS: [(Binding, By, &str, Answer<'static>); 3] = [
    (Binding::JsonRpc, By::Words, "scn:bash cmd=\"touch kept\" scn:text n=2", Answer::Reply("once")),
    (
        Binding::Rest,
        By::Method,
        "scn:question q=\"Still there?\" options=\"Yes|No\" scn:text n=2",
        Answer::Choose(&[&["Yes"]]),
    ),
    (
        Binding::Rest,
        By::Data,
        "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch errand\\\" scn:text n=1\" scn:text n=2",
        Answer::Reply("once"),
    ),
];

/// Starts tasks that wait for the answers to all of [`ASKS`]. Returns them with the ids of their asks.
async fn ask_all(harness: &mut Harness) -> Vec<(AskingTask, String)> {
    let mut waiting = Vec::new();
    for (binding, _, prompt, _) in ASKS {
        harness.client = harness.client.over(binding);
        let asking = harness.until_asked(&message(prompt)).await;
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        waiting.push((asking, request));
    }
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_survives_a_killed_gateway() {
    let (mut harness, _model) = Harness::with_own_model().await;
    let mut waiting = ask_all(&mut harness).await;
    harness.gateway.kill();
    harness.restart().await;
    for ((binding, by, prompt, answer), (asking, request)) in ASKS.into_iter().zip(&mut waiting) {
        harness.client = harness.client.over(binding);
        let listed = harness.open_asks(&asking.task, 1).await;
        assert_eq!(listed, [request.as_str()], "{prompt}: another ask is listed");
        let task = harness.client.get(&asking.task).await;
        assert_eq!(state_of(&task), "INPUT_REQUIRED", "{prompt}: {task:#}");
        harness.answer(asking, request, by, answer).await;
    }
    for ((_, _, prompt, _), (asking, _)) in ASKS.into_iter().zip(&waiting) {
        let played = harness.finished(prompt, &asking.task).await;
        played.ended("COMPLETED", "");
        assert_eq!(played.last_text(), "anchor  ballast ");
    }
    for file in ["kept", "errand"] {
        assert!(harness.gateway.workspace().join(file).exists(), "{file} was allowed but not made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_an_ask_ends_with_its_opencode() {
    let (mut harness, _model) = Harness::with_own_model().await;
    // A running gateway notices it at once, one that died as well at its restart.
    for gateway_dies in [false, true] {
        let waiting = ask_all(&mut harness).await;
        let old = harness.opencode.pid();
        if gateway_dies {
            harness.gateway.kill();
            kill(old);
            harness.restart().await;
            assert_ne!(harness.opencode.pid(), old, "OpenCode was not restarted");
        } else {
            kill(old);
            harness.until_opencode_is_back(old).await;
        }
        for ((binding, _, prompt, answer), (asking, request)) in ASKS.into_iter().zip(&waiting) {
            let name = format!("{prompt}, and the gateway dies: {gateway_dies}");
            harness.client = harness.client.over(binding);
            let log = harness.client.resume(&asking.task, 0).await.rest().await;
            check_log(&name, &log);
            let task = harness.client.get(&asking.task).await;
            assert_eq!(state_of(&task), "FAILED", "{name}: {task:#}");
            assert!(explanation(&task).contains("OpenCode"), "{name}: it does not say who failed: {task:#}");
            harness.assert_ask_not_found(&name, &asking.task, request, answer).await;

            let context = task["contextId"].as_str().expect("a task has a context");
            let next = message_in(context, &format!("scn:text n=2 text=\"{}\"", asking.task));
            let next = harness.play_message(&next, Agreement::Whole).await;
            next.ended("COMPLETED", "").has(&[("text", &asking.task)]);
        }
        harness.assert_no_open_asks("OpenCode died").await;
    }
    for file in ["kept", "errand"] {
        assert!(!harness.gateway.workspace().join(file).exists(), "{file} was made though nobody allowed it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_an_unanswered_ask_is_rejected_at_its_deadline() {
    let setup = Setup::demo(LONGSHORE)
        .env("A2A_INTERRUPT_REQUEST_TTL_SECONDS", "1")
        .env("A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS", "5");
    let mut harness = Harness::start(setup).await;
    // A task waits for credentials equally long.
    let unpaid = "scn:auth body=\"no such key\"";
    let refused = harness.client.send(&message(unpaid)).await;
    assert_eq!(state_of(&refused), "AUTH_REQUIRED", "{refused:#}");
    assert!(explanation(&refused).contains("no such key"), "{refused:#}");

    let ends = [("FAILED", "Nobody answered"), ("FAILED", "Nobody answered"), ("COMPLETED", "")];
    let mut expired = Vec::new();
    for ((binding, _, prompt, answer), (state, words)) in ASKS.into_iter().zip(ends) {
        harness.client = harness.client.over(binding);
        let mut stream = with_interrupts(&harness.client).stream(&message(prompt)).await;
        let closed = stream.until("the deadline", |frame| phase(frame) == Some("resolved")).await;
        let closed = closed.last().expect("a frame was found");
        assert_eq!(interrupt_field(closed, "outcome"), "expired", "{prompt}: {:#}", closed.json);
        assert_eq!(interrupt_field(closed, "answer"), "reject", "{prompt}: {:#}", closed.json);
        let (task, request) = (task_id(closed), request_id(closed).to_owned());
        let late = harness.answer_by_method(&request, answer).await.expect_err("it is too late");
        assert_eq!(late.reason(), "INTERRUPT_REQUEST_EXPIRED", "{prompt}: {}", late.body);
        stream.rest().await;
        harness.finished(prompt, &task).await.ended(state, words);
        expired.push((prompt, answer, task, request));
    }
    for (prompt, answer, task, request) in expired {
        // The gateway remembers an expired ask for a while; nothing shows when that time is over.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let late = harness.answer_by_method(&request, answer).await.expect_err("it is too late");
            if late.reason() == "INTERRUPT_REQUEST_NOT_FOUND" {
                break;
            }
            assert_eq!(late.reason(), "INTERRUPT_REQUEST_EXPIRED", "{prompt}: {}", late.body);
            assert!(tokio::time::Instant::now() < deadline, "{prompt}: the record is kept for ever");
        }
        harness.assert_ask_not_found(prompt, &task, &request, answer).await;
    }
    let refused = refused["id"].as_str().expect("a task has an id");
    harness.finished(unpaid, refused).await.ended("FAILED", "credentials in time");
    for file in ["kept", "errand"] {
        assert!(!harness.gateway.workspace().join(file).exists(), "{file} was made though nobody allowed it");
    }
}
