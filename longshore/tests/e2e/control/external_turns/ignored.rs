//! Actions of another client of OpenCode that make no task, and native prompts over A2A, which make one task and not two.

use futures_util::future::LocalBoxFuture;
use longshore_testkit::chaos::ClientProtocol;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::external_client::{ExternalSession, eventually, play_all, speaks};
use crate::asking::Answer;
use crate::client::{Client, PATIENCE, message_in};
use crate::frames::{check_log, state, state_of};
use crate::harness::Harness;
use crate::upstream::{self, Agreement};

const MANAGEMENT: &str = "urn:opencode-a2a:extension:session-management:v1";

#[tokio::test(flavor = "multi_thread")]
async fn long_calls_without_a_reply_make_no_task_and_native_prompts_make_one() {
    let commands = |configuration: &mut Value| {
        configuration["command"] = json!({
            "say": {"template": "$ARGUMENTS"},
            "send-out": {"template": "$ARGUMENTS", "agent": "general", "subtask": true},
        });
    };
    let (harness, _model) = Harness::configured(&["--session-share"], commands).await;
    harness.play("scn:text n=1").await;
    let mut scenarios: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
    for what in IGNORED_ACTIONS {
        scenarios.push(Box::pin(ignored_action(&harness, what)));
    }
    for way in [Way::Prompt, Way::PromptThatAsks, Way::Command, Way::CommandOfSubAgent] {
        scenarios.push(Box::pin(native_prompt(&harness, way)));
    }
    scenarios.push(Box::pin(compacted_by_itself(&harness)));
    scenarios.push(Box::pin(unowned_session(&harness)));
    play_all(scenarios).await;
    harness.assert_no_open_asks("after all of it").await;
}

/// Actions of another client that make no task.
const IGNORED_ACTIONS: [&str; 5] = ["a note", "a shell", "a summary", "a summary that goes on", "a fork"];

async fn ignored_action(harness: &Harness, what: &str) {
    let external = ExternalSession::open(harness, what).await;
    let model = |auto: bool| json!({"providerID": "demo", "modelID": "demo", "auto": auto});
    match what {
        "a note" => {
            let parts = json!([{"type": "text", "text": "scn:text n=1 (nobody is to answer)"}]);
            external.post("prompt_async", &json!({"noReply": true, "parts": parts})).await;
        }
        "a shell" => {
            let ran = external.post("shell", &json!({"agent": "build", "command": "echo by-hand"})).await;
            assert!(ran.to_string().contains("by-hand"), "{ran:#}");
        }
        "a summary" => {
            assert_eq!(external.post("summarize", &model(false)).await, json!(true));
        }
        "a summary that goes on" => {
            assert_eq!(external.post("summarize", &model(true)).await, json!(true));
        }
        "a fork" => {
            let fork = external.post("fork", &json!({})).await;
            let fork = fork["id"].as_str().expect("a session has an id").to_owned();
            assert_ne!(fork, external.session);
            // The fork is unowned.
            let copy =
                ExternalSession::at(harness, "in a fork", &fork, &format!("ctx:opencode-session:{fork}"));
            copy.type_prompt("scn:text n=1 (typed in a fork)").await;
            upstream::settled_turn(&harness.opencode, "scn:text n=1 (typed in a fork)").await;
            external.fence(2).await;
            copy.assert_task_count(0).await;
            return;
        }
        other => panic!("nobody does {other}"),
    }
    external.wait_until_idle().await;
    external.fence(2).await;
}

/// OpenCode compacts the session during an external turn: it stays one turn.
async fn compacted_by_itself(harness: &Harness) {
    let external = ExternalSession::open(harness, "compacted in mid-turn").await;
    let prompt = "scn:overflow times=1 (typed, and too long)";
    external.type_prompt(prompt).await;
    let task = external.wait_for_newest_of(2).await;
    let id = task["id"].as_str().expect("a task has an id");
    let ended = harness.client.resume(id, 0).await.rest().await;
    check_log("compacted in mid-turn", &ended);
    external.wait_until_idle().await;
    external.fence(3).await;
}

/// The kinds of native prompts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Prompt,
    PromptThatAsks,
    Command,
    CommandOfSubAgent,
}

async fn native_prompt(harness: &Harness, way: Way) {
    let name = format!("{way:?}");
    let external = ExternalSession::open(harness, &name).await;
    let client = manager(harness);
    let words = match way {
        Way::PromptThatAsks => format!("scn:bash cmd=\"touch {name}\" scn:text n=2 (ordered: {name})"),
        _ => format!("scn:text n=2 (ordered: {name})"),
    };
    let session = &external.session;
    let ordered = match way {
        Way::Prompt | Way::PromptThatAsks => {
            let request = json!({"parts": [{"type": "text", "text": words}]});
            let params = json!({"session_id": session, "request": request});
            client.call("opencode.sessions.prompt_async", params).await
        }
        Way::Command | Way::CommandOfSubAgent => {
            let command = if way == Way::Command { "say" } else { "send-out" };
            let request = json!({"command": command, "arguments": words});
            // The command returns at the end of its turn, which takes as long as several answers.
            let client = speaks(harness, ClientProtocol::ALL[0]).activating(&[MANAGEMENT]);
            let params = json!({"session_id": session, "request": request});
            let answered = timeout(4 * PATIENCE, client.rpc("opencode.sessions.command", params)).await;
            answered.unwrap_or_else(|_| panic!("{name}: the command does not end")).result().clone()
        }
    };
    let task = ordered["task_id"].as_str().unwrap_or_else(|| panic!("{name}: no task in {ordered:#}"));
    if way == Way::PromptThatAsks {
        let request = external.wait_for_ask(task).await;
        let answered = harness.answer_by_method(&request, Answer::Reply("once")).await;
        answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    }
    if way == Way::CommandOfSubAgent {
        // OpenCode continues with its own message, so no single message has all answers.
        let frames = harness.client.resume(task, 0).await.rest().await;
        check_log(&name, &frames);
        assert_eq!(frames.last().and_then(state), Some("COMPLETED"), "{name}: {frames:#?}");
    } else {
        external.finished(&words, task, Agreement::Whole).await.ended("COMPLETED", "");
    }
    external.wait_until_idle().await;
    external.fence(3).await;
}

/// A session of another client is ignored until a caller owns it. Then its running turn becomes a task at once.
async fn unowned_session(harness: &Harness) {
    let name = "of nobody";
    let owned = ExternalSession::open(harness, "beside the session of nobody").await;
    let made = harness.opencode.post_json("/session", &json!({"title": "made elsewhere"})).await;
    let session = made["id"].as_str().expect("a session has an id");
    let external = ExternalSession::at(harness, name, session, &format!("ctx:opencode-session:{session}"));
    external.type_prompt("scn:text n=1 (typed in a session of nobody)").await;
    upstream::settled_turn(&harness.opencode, "scn:text n=1 (typed in a session of nobody)").await;
    let prompt = "scn:bash cmd=\"touch of-nobody\" scn:text n=2 (typed before it was claimed)";
    external.type_prompt(prompt).await;
    asked_at_opencode(harness, session).await;
    owned.fence(2).await;
    external.assert_task_count(0).await;
    let looked = manager(harness).call("opencode.sessions.get", json!({"session_id": session})).await;
    assert_eq!(looked["item"]["id"], session, "{looked:#}");
    owned.assert_task_count(2).await;
    external.assert_task_count(0).await;

    // A change claims the session.
    manager(harness).call("opencode.sessions.unshare", json!({"session_id": session})).await;
    let task = external.wait_for_newest_of(1).await;
    let id = task["id"].as_str().expect("a task has an id");
    let request = external.wait_for_ask(id).await;
    let asking = harness.client.get(id).await;
    assert_eq!(state_of(&asking), "INPUT_REQUIRED", "{name}: {asking:#}");
    let answered = harness.answer_by_method(&request, Answer::Reply("once")).await;
    answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    let played = external.finished(prompt, id, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    external.fence(2).await;

    // A session that a message claims is watched as well.
    let made = harness.opencode.post_json("/session", &json!({"title": "claimed by a message"})).await;
    let session = made["id"].as_str().expect("a session has an id");
    let name = format!("ctx:opencode-session:{session}");
    let sent = message_in(&name, "scn:text n=1 (claims a session of nobody)");
    let played = harness.play_message(&sent, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.turn.session, session);
    let external = ExternalSession::at(harness, "claimed by a message", session, &name);
    external.wait_until_idle().await;
    external.fence(2).await;

    // A fork over A2A is watched as well.
    let forked = manager(harness).call("opencode.sessions.fork", json!({"session_id": session})).await;
    let fork = forked["item"]["id"].as_str().expect("a fork has an id");
    let external =
        ExternalSession::at(harness, "forked over A2A", fork, &format!("ctx:opencode-session:{fork}"));
    external.fence(1).await;
}

/// Waits until the session has an open ask in OpenCode.
async fn asked_at_opencode(harness: &Harness, session: &str) {
    eventually(&format!("{session} asks"), async || {
        let asks = harness.opencode.get("/permission").await;
        let mut asks = asks.as_array().expect("a list of asks").iter();
        asks.any(|ask| ask["sessionID"] == session).then_some(())
    })
    .await;
}

fn manager(harness: &Harness) -> Client {
    harness.client.activating(&[MANAGEMENT])
}
