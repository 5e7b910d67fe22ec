//! Prompts with options, commands and subtasks, and prompts that name ids of another session.

use serde_json::{Value, json};

use super::*;

fn words(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

async fn made(fake: &FakeOpenCode) -> String {
    let made = post(fake, "/session", json!({})).await.1;
    made["id"].as_str().expect("an id").to_owned()
}

async fn prompt(fake: &FakeOpenCode, session: &str, body: Value) -> u16 {
    let status = post(fake, &format!("/session/{session}/prompt_async"), body).await.0;
    fake.wait_until_idle().await;
    status
}

async fn event_kinds(fake: &FakeOpenCode, events: &mut Events) -> Vec<String> {
    fake.emit("test.mark", json!({})).await;
    let received = until(events, "test.mark").await;
    let kinds = received.iter().map(|event| {
        let kind = event["type"].as_str().unwrap_or_default();
        match kind {
            "session.status" => event["properties"]["status"]["type"].as_str().unwrap_or_default(),
            kind => kind,
        }
    });
    let kinds = kinds.filter(|kind| !["test.mark", "server.connected", "message.part.delta"].contains(kind));
    kinds.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_prompt_can_write_to_a_message_of_another_session() {
    let fake = FakeOpenCode::start();
    let (ada, bob) = (made(&fake).await, made(&fake).await);
    prompt(&fake, &ada, json!({"parts": words("hers")})).await;
    let hers = fake.messages(&ada)[0].clone();
    let mut events = subscribe(&fake).await;
    let body = json!({"messageID": hers["info"]["id"], "parts": words("his")});
    assert_eq!(prompt(&fake, &bob, body).await, 204);
    let spoilt = fake.messages(&ada)[0].clone();
    assert_eq!(spoilt["info"]["sessionID"], ada.as_str());
    assert_eq!(spoilt["parts"][0], hers["parts"][0]);
    assert_eq!(spoilt["parts"][1]["text"], "his");
    assert_eq!(fake.messages(&bob), <[Value; 0]>::default(), "his session has no message to answer");
    let expected =
        ["message.updated", "message.part.updated", "busy", "idle", "session.idle", "session.error"];
    assert_eq!(event_kinds(&fake, &mut events).await, expected);
}

#[tokio::test]
async fn a_prompt_can_overwrite_a_part_of_another_session() {
    let fake = FakeOpenCode::start();
    let (ada, bob) = (made(&fake).await, made(&fake).await);
    prompt(&fake, &ada, json!({"parts": words("hers")})).await;
    let part = fake.messages(&ada)[0]["parts"][0]["id"].clone();
    let body = json!({"parts": [{"id": part, "type": "text", "text": "his"}]});
    assert_eq!(prompt(&fake, &bob, body).await, 204);
    let spoilt = fake.messages(&ada)[0]["parts"].clone();
    assert_eq!(
        (&spoilt[0]["id"], &spoilt[0]["text"], spoilt.as_array().map(Vec::len)),
        (&part, &json!("his"), Some(1))
    );
    let his = fake.messages(&bob);
    assert_eq!((his.len(), &his[0]["parts"]), (2, &json!([])), "his own message is empty, and answered");
}

#[tokio::test]
async fn the_tools_of_a_prompt_change_the_session_permanently() {
    let fake = FakeOpenCode::start();
    let session = made(&fake).await;
    let rules = async || get(&fake, &format!("/session/{session}")).await.1["permission"].clone();
    prompt(&fake, &session, json!({"noReply": true, "tools": {"bash": false}, "parts": words("a")})).await;
    assert_eq!(rules().await, json!([{"permission": "bash", "pattern": "*", "action": "deny"}]));
    prompt(&fake, &session, json!({"parts": words("b")})).await;
    prompt(&fake, &session, json!({"tools": {"edit": true}, "parts": words("c")})).await;
    assert_eq!(rules().await, json!([{"permission": "edit", "pattern": "*", "action": "allow"}]));
}

#[tokio::test]
async fn a_note_gets_no_reply_and_sets_the_model_of_the_session() {
    let fake = FakeOpenCode::start();
    let session = made(&fake).await;
    let mut events = subscribe(&fake).await;
    let unknown = json!({"providerID": "scripted", "modelID": "none"});
    let note = json!({"noReply": true, "model": unknown, "parts": [{"type": "agent", "name": "general"}]});
    assert_eq!(prompt(&fake, &session, note).await, 204);
    let expected = ["message.updated", "message.part.updated", "message.part.updated"];
    assert_eq!(event_kinds(&fake, &mut events).await, expected, "OpenCode adds a text to an agent");
    assert_eq!(prompt(&fake, &session, json!({"parts": words("go")})).await, 204);
    let expected = [
        "message.updated",
        "message.part.updated",
        "busy",
        "session.error",
        "idle",
        "session.idle",
        "session.error",
    ];
    assert_eq!(event_kinds(&fake, &mut events).await, expected, "every later prompt fails");
    let known = json!({"providerID": "scripted", "modelID": "vision"});
    prompt(
        &fake,
        &session,
        json!({"agent": "plan", "variant": "high", "model": known, "parts": words("go")}),
    )
    .await;
    let messages = fake.messages(&session);
    let info = &messages[messages.len() - 1]["info"];
    assert_eq!(
        (&info["agent"], &info["modelID"], &info["variant"]),
        (&json!("plan"), &json!("vision"), &json!("high"))
    );
}

#[tokio::test]
async fn an_unknown_agent_is_an_error_without_a_message() {
    let fake = FakeOpenCode::start();
    let session = made(&fake).await;
    let mut events = subscribe(&fake).await;
    assert_eq!(prompt(&fake, &session, json!({"agent": "nobody", "parts": words("go")})).await, 204);
    assert_eq!(event_kinds(&fake, &mut events).await, ["session.error", "session.error"]);
    assert_eq!(fake.messages(&session), <[Value; 0]>::default());
}

#[tokio::test]
async fn a_prompt_of_the_wrong_shape_is_refused_with_the_text_of_opencode() {
    let fake = FakeOpenCode::start();
    let path = format!("/session/{}/prompt_async", made(&fake).await);
    for (body, text) in [
        (json!({}), "Missing key\n  at [\"parts\"]"),
        (json!({"parts": [{"type": "file"}]}), "Missing key\n  at [\"parts\"][0][\"mime\"]"),
        (
            json!({"messageID": "x", "parts": []}),
            "Expected a string starting with \"msg\", got \"x\"\n  at [\"messageID\"]",
        ),
        (
            json!({"parts": [{"type": "text", "text": "a", "id": "x"}]}),
            "Expected a string starting with \"prt\", got \"x\"\n  at [\"parts\"][0][\"id\"]",
        ),
        (json!({"tools": {"a": 1}, "parts": []}), "Expected boolean, got 1\n  at [\"tools\"][\"a\"]"),
    ] {
        let (status, answer) = post(&fake, &path, body).await;
        assert_eq!((status, answer["data"]["message"].as_str()), (400, Some(text)));
    }
    assert_eq!(post(&fake, &path, json!({"parts": [{"type": "zebra"}]})).await.0, 400);
    assert_eq!(fake.sessions().len(), 1);
}

#[tokio::test]
async fn a_command_is_answered_when_its_turn_is_over() {
    let fake = FakeOpenCode::start();
    let session = made(&fake).await;
    let mut events = subscribe(&fake).await;
    fake.queue(Turn::new().text("reviewed", 1));
    let path = format!("/session/{session}/command");
    let (status, answer) =
        post(&fake, &path, json!({"command": "review", "arguments": "all", "messageID": "msg_mine"})).await;
    assert_eq!(status, 200);
    super::shapes::check("POST /session/{sessionID}/command", &answer);
    assert_eq!(answer["info"]["parentID"], "msg_mine");
    assert!(
        fake.messages(&session)[0]["parts"][0]["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("review: all"))
    );
    let executed = until(&mut events, "command.executed").await;
    assert_eq!(executed[executed.len() - 1]["properties"]["messageID"], answer["info"]["id"]);
    for body in [
        json!({"command": "nope", "arguments": ""}),
        json!({"command": "review", "arguments": "", "agent": "nobody"}),
        json!({"command": "review", "arguments": "", "model": "scripted/none"}),
    ] {
        event_kinds(&fake, &mut events).await;
        assert_eq!(post(&fake, &path, body).await.0, 500);
        assert_eq!(event_kinds(&fake, &mut events).await, ["session.error"]);
    }
    for body in [json!({"command": "review"}), json!({"command": "review", "arguments": "", "model": {}})] {
        assert_eq!(post(&fake, &path, body).await.0, 400);
    }
}

#[tokio::test]
async fn a_subtask_works_in_a_child_session() {
    for (command, parent_is_prompt) in [(false, true), (true, false)] {
        let fake = FakeOpenCode::start();
        let session = made(&fake).await;
        let mut events = subscribe(&fake).await;
        fake.queue(Turn::new().text("seen", 1));
        fake.queue(Turn::new().text("so it is", 1));
        if command {
            let body = json!({"command": "survey", "arguments": "all"});
            assert_eq!(post(&fake, &format!("/session/{session}/command"), body).await.0, 200);
        } else {
            let part = json!({"type": "subtask", "agent": "general", "description": "look", "prompt": "see"});
            prompt(&fake, &session, json!({"parts": [part]})).await;
        }
        let children = get(&fake, &format!("/session/{session}/children")).await.1;
        super::shapes::check("GET /session/{sessionID}/children", &children);
        let child = children[0]["id"].as_str().expect("an id");
        assert_eq!(fake.messages(child)[1]["parts"][1]["text"], "seen");
        let messages = fake.messages(&session);
        let state = &messages[1]["parts"][0]["state"];
        assert_eq!(state["status"], "completed");
        assert!(state["output"].as_str().is_some_and(|output| output.contains("\nseen\n")));
        let last = &messages[messages.len() - 1];
        assert_eq!(last["parts"][1]["text"], "so it is");
        assert_eq!(last["info"]["parentID"] == messages[0]["info"]["id"], parent_is_prompt);
        fake.emit("test.mark", json!({})).await;
        let received = until(&mut events, "test.mark").await;
        let idle = received.iter().filter(|event| {
            event["type"] == "session.idle" && event["properties"]["sessionID"] == session.as_str()
        });
        assert_eq!(idle.count(), 1, "the session is busy throughout");
    }
}

#[tokio::test]
async fn an_abort_ends_the_sub_agent_and_its_parent() {
    let fake = FakeOpenCode::start();
    let (session, gate) = (made(&fake).await, Gate::new());
    fake.queue(Turn::new().text("half", 1).hold(&gate));
    let part = json!({"type": "subtask", "agent": "general", "description": "look", "prompt": "see"});
    post(&fake, &format!("/session/{session}/prompt_async"), json!({"parts": [part]})).await;
    gate.reached().await;
    post(&fake, &format!("/session/{session}/abort"), json!({})).await;
    fake.wait_until_idle().await;
    assert_eq!(get(&fake, "/session/status").await.1, json!({}));
    assert_eq!(fake.messages(&session)[1]["parts"][0]["state"]["status"], "error");
}
