//! The other ways to start a turn in OpenCode: a message whose answer the client waits for, a command, and a command that
//! starts a sub-agent. (`prompt_async` is tested in the parent module.)

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};

use super::external_client::{ExternalSession, eventually, play_all};
use crate::asking::Answer;
use crate::control::fixture::Fixture;
use crate::frames::{self, state, state_of};
use crate::harness::Harness;
use crate::upstream::Agreement;

#[tokio::test(flavor = "multi_thread")]
async fn long_external_messages_and_commands_become_tasks_with_their_streams_and_asks() {
    let fixture = Fixture::start(&[], &[]).await;
    let harness = &fixture.harness;
    // The first turn of an OpenCode takes seconds, and blocks every other turn.
    harness.play("scn:text n=1").await;
    let said = "scn:bash cmd=\"touch by-message\" scn:text text=\"Said.\" (by a message that is waited for)";
    let message = json!({"parts": [{"type": "text", "text": said}]});
    let words = "scn:bash cmd=\"touch by-command\" scn:text text=\"Reviewed.\" (by a command)";
    let command = json!({"command": "review", "arguments": words});
    let expanded = format!("Look at this. {words}");
    let scenarios: Vec<LocalBoxFuture<'_, ()>> = vec![
        Box::pin(is_shown_and_answered(harness, "message", message, said, "by-message", "Said.")),
        Box::pin(is_shown_and_answered(harness, "command", command, &expanded, "by-command", "Reviewed.")),
        Box::pin(a_command_for_a_sub_agent(harness)),
    ];
    play_all(scenarios).await;
    harness.assert_no_open_asks("after all of it").await;
}

/// The other client posts this. OpenCode stores it as `said`, asks before it creates `made`, and ends with `answer`.
async fn is_shown_and_answered(
    harness: &Harness,
    route: &str,
    body: Value,
    said: &str,
    made: &str,
    answer: &str,
) {
    let name = format!("begun by {route}");
    let external = ExternalSession::open(harness, &name).await;
    let shown = async {
        let task = external.wait_for_newest_of(2).await;
        let id = task["id"].as_str().expect("a task has an id").to_owned();
        assert_eq!(task["history"][0]["parts"][0]["text"], said, "{name}: {task:#}");
        let mut stream = harness.client.subscribe(&id).await;
        let request = external.wait_for_ask(&id).await;
        assert!(!harness.gateway.workspace().join(made).exists(), "{name}: it ran before it was allowed");
        let answered = harness.answer_by_method(&request, Answer::Reply("once")).await;
        answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
        stream.until("the answer", |frame| frames::text(frame).is_some()).await;
        let rest = stream.rest().await;
        assert_eq!(rest.last().and_then(state), Some("COMPLETED"), "{name}: {rest:#?}");
        id
    };
    // The other client gets the answer of OpenCode at the end of the turn.
    let (posted, id) = tokio::join!(external.post(route, &body), shown);
    assert!(posted["parts"].to_string().contains(answer), "{name}: {posted:#}");
    assert!(harness.gateway.workspace().join(made).exists(), "{name}: what was allowed did not run");
    let played = external.finished(said, &id, Agreement::Whole).await;
    played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", answer)]);
    external.wait_until_idle().await;
    external.fence(3).await;
}

/// OpenCode stores the task of the sub-agent instead of a text.
async fn a_command_for_a_sub_agent(harness: &Harness) {
    let name = "begun by a command for a sub-agent";
    let external = ExternalSession::open(harness, name).await;
    let words = "scn:bash cmd=\"touch surveyed\" scn:text text=\"Land.\" (for a sub-agent)";
    let body = json!({"command": "survey", "arguments": words});
    let shown = async {
        let task = external.wait_for_newest_of(2).await;
        let id = task["id"].as_str().expect("a task has an id").to_owned();
        let request = eventually(name, async || {
            let listed = harness.listed().await;
            let ask = listed.iter().find(|ask| ask.to_string().contains("touch surveyed"))?;
            Some(ask["request_id"].as_str().expect("an ask has an id").to_owned())
        })
        .await;
        let answered = harness.answer_by_method(&request, Answer::Reply("once")).await;
        answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
        let frames = harness.client.resume(&id, 0).await.rest().await;
        frames::check_log(name, &frames);
        assert!(frames.iter().any(|frame| state(frame) == Some("INPUT_REQUIRED")), "{name}: {frames:#?}");
        id
    };
    let (_, id) = tokio::join!(external.post("command", &body), shown);
    let task = harness.client.get(&id).await;
    assert_eq!(state_of(&task), "COMPLETED", "{name}: {task:#}");
    assert!(task.to_string().contains("Land."), "{name}: {task:#}");
    assert!(harness.gateway.workspace().join("surveyed").exists(), "{name}: what was allowed did not run");
    external.wait_until_idle().await;
    external.fence(3).await;
}
