//! Another client's work: what a gateway sees of it, and that the fake does not take it for the gateway's own.

use serde_json::json;

use super::*;

async fn stage() -> (FakeOpenCode, String, OtherClient, Events) {
    let fake = FakeOpenCode::start();
    let made = post(&fake, "/session", json!({})).await.1;
    let session = made["id"].as_str().expect("an id").to_owned();
    let (other_client, events) = (fake.other_client(&session), subscribe(&fake).await);
    (fake, session, other_client, events)
}

fn statuses(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| match event["type"].as_str().unwrap_or_default() {
        "session.status" => event["properties"]["status"]["type"].as_str().unwrap_or_default(),
        "message.updated" => event["properties"]["info"]["role"].as_str().unwrap_or_default(),
        _ => "",
    });
    let mut kinds: Vec<&str> = kinds.filter(|kind| !kind.is_empty()).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn another_clients_prompt_is_played_and_not_logged() {
    let (fake, session, other_client, mut events) = stage().await;
    fake.queue(Turn::new().guarded_tool(Tool::bash("rm x", "")).text("gone", 1));
    let message = other_client.types("clean up").await;
    let asked = until(&mut events, "permission.asked").await;
    assert_eq!(statuses(&asked), ["user", "busy", "assistant", "busy"]);
    assert_eq!(fake.messages(&session)[0]["info"]["id"], message.as_str());
    let ask = fake.open_asks().remove(0);
    assert_eq!(other_client.answers(&ask, json!({"reply": "once"})).await, (200, json!(true)));
    until(&mut events, "session.idle").await;
    assert_eq!(fake.prompts(), []);
    assert!(fake.log().iter().all(|request| request.path == "/session" || request.path == "/event"));
    let records = fake.prompt_records();
    assert_eq!(
        (records.len(), records[0].words.as_str(), records[0].turn_end),
        (1, "clean up", TurnEnd::Ended)
    );
}

#[tokio::test]
async fn another_clients_abort_ends_the_turn() {
    let (fake, _, other_client, mut events) = stage().await;
    fake.queue(Turn::new().text("half", 1).silence());
    other_client.types("go").await;
    until(&mut events, "message.part.delta").await;
    other_client.aborts().await;
    until(&mut events, "session.idle").await;
    fake.wait_until_idle().await;
}

#[tokio::test]
async fn notes_shell_commands_summaries_and_forks_differ_in_the_order_of_their_events() {
    let (fake, session, other_client, mut events) = stage().await;
    other_client.notes("for later").await;
    fake.emit("test.mark", json!({})).await;
    assert_eq!(statuses(&until(&mut events, "test.mark").await), ["user"], "no busy");
    other_client.runs("ls").await;
    let events_of_shell = until(&mut events, "session.idle").await;
    assert_eq!(statuses(&events_of_shell), ["busy", "user", "assistant", "idle"], "busy comes first");
    other_client.posts("summarize", json!({"providerID": "scripted", "modelID": "scripted"})).await;
    let events_of_summary = until(&mut events, "session.idle").await;
    assert_eq!(statuses(&events_of_summary)[..3], ["user", "busy", "assistant"]);
    assert!(events_of_summary.iter().any(|event| event["properties"]["part"]["type"] == "compaction"));
    let copy = other_client.forks().await;
    fake.emit("test.mark", json!({})).await;
    assert!(!statuses(&until(&mut events, "test.mark").await).contains(&"busy"));
    let count = fake.messages(&session).len();
    assert_eq!(fake.messages(&copy).len(), count);
    fake.queue(Turn::new().text("seen", 1));
    fake.queue(Turn::new().text("done", 1));
    let part = json!({
        "type": "subtask", "agent": "general", "description": "look", "prompt": "look", "command": "survey",
    });
    other_client.prompts(json!({"parts": [part]})).await;
    fake.wait_until_idle().await;
    assert_eq!(fake.messages(&session).len(), count + 4, "prompt, call, OpenCode's own prompt, answer");
}

#[tokio::test]
async fn a_prompt_during_a_turn_is_answered_by_its_next_step() {
    let (fake, session, other_client, mut events) = stage().await;
    fake.queue(Turn::new().text("looking", 1).typed("and quickly").step("tool-calls").text("done", 1));
    let message = other_client.types("look").await;
    let received = until(&mut events, "session.idle").await;
    assert_eq!(received.iter().filter(|event| event["type"] == "session.idle").count(), 1);
    let messages = fake.messages(&session);
    let parents: Vec<&Value> = messages.iter().map(|message| &message["info"]["parentID"]).collect();
    let typed = messages.iter().find(|message| message["parts"][0]["text"] == "and quickly");
    let typed = typed.expect("the message is stored")["info"]["id"].clone();
    assert_eq!(parents[1], message.as_str());
    assert_eq!(parents[parents.len() - 1], &typed);
}
