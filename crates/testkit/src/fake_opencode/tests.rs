//! The fake against the recordings: its state and its events must match the real OpenCode's.

mod control;
mod other_client;
mod prompting;
mod reads;
mod shapes;
mod worktrees;

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::responder::Responder;
use super::script::{Prompt, Step};
use super::world::World;
use super::*;

/// Objects whose keys belong to a tool, a provider or a model.
const FREE: [&str; 5] = ["state.input", "state.metadata", "properties.metadata", "error.data", "tokens"];

#[test]
fn folding_the_events_of_a_recording_gives_the_recorded_message_list() {
    let mut compared = 0;
    for name in Recording::names() {
        let recording = Recording::load(&name);
        let Some(session) = recording.session() else { continue };
        let id = session["id"].as_str().expect("a session has an id");
        let mut world = World::default();
        world.add_session(session.clone());
        for event in recording.events() {
            world.apply(event);
        }
        // If parts changed after the list was recorded, the list is not final.
        let Some((expected, false)) = recording.final_messages(id) else { continue };
        let folded = world.messages(id).unwrap_or_default();
        assert_eq!(outline(&folded), outline(expected.as_array().expect("a list")), "in {name}");
        compared += 1;
    }
    assert!(compared > 40, "only {compared} recordings could be compared");
}

#[test]
fn a_written_turn_has_the_keys_of_recorded_turns() {
    let turn = Turn::new()
        .reasoning("thinking", 2)
        .tool(Tool::bash("ls", "README.md\n"))
        .tool(Tool::new("read", json!({"filePath": "nope"}), "").failing("File not found"))
        .abandoned("half", 1)
        .text("alpha bravo", 3)
        .finish("stop");
    let failing = Turn::new().error("APIError", &json!({"message": "no"}));
    let asking = Turn::new().guarded_tool(Tool::bash("rm x", ""));
    let questioning = Turn::new().question("Which colour?");
    let recordings = [
        "text",
        "reasoning",
        "tool_bash",
        "tool_read_missing",
        "cut_fin_partial",
        "error_400",
        "permission_once",
        "question_answer",
        "bad_json",
    ];
    let recorded = recorded_keys(recordings.into_iter().map(Recording::load));
    for event in [turn, failing, asking, questioning].iter().flat_map(events_of) {
        check_event(&recorded, &event);
    }
}

#[tokio::test]
async fn a_played_recording_gets_ids_that_follow_the_prompt() {
    let fake = FakeOpenCode::start();
    let play = Play::new("text_async");
    fake.play(&play);
    let mut stream = subscribe(&fake).await;
    let session = post(&fake, "/session", json!({})).await.1;
    let prompt = ids::fresh("msg");
    let body = json!({"messageID": prompt, "parts": [{"type": "text", "text": "hello"}]});
    let path = format!("/session/{}/prompt_async", session["id"].as_str().expect("an id"));
    assert_eq!(post(&fake, &path, body).await.0, 204);
    let events = until(&mut stream, "session.idle").await;
    assert_eq!(events[0]["type"], "server.connected");
    let replies: Vec<&Value> = events
        .iter()
        .map(|event| &event["properties"]["info"])
        .filter(|info| info["role"] == "assistant")
        .collect();
    assert!(!replies.is_empty());
    for reply in replies {
        assert_eq!(reply["parentID"], prompt);
        assert!(reply["id"].as_str() > Some(&prompt), "{} sorts before its prompt", reply["id"]);
        assert_eq!(reply["path"]["cwd"], fake.directory());
    }
    let texts: String = events.iter().filter_map(|event| event["properties"]["delta"].as_str()).collect();
    assert_eq!(texts, "alpha b bravo c charlie delta e echo fo foxtrot ");
    let list = fake.messages(session["id"].as_str().expect("an id"));
    assert_eq!(list[1]["parts"][1]["text"], texts.as_str());
    assert_eq!(fake.prompts()[0].body["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn a_decision_after_an_answer_continues_the_turn() {
    let fake = FakeOpenCode::start();
    let decision = Decision::new(|context: TurnContext| {
        Box::pin(async move { Turn::new().text(&format!("you asked: {}", context.text), 1) })
    });
    fake.queue(Turn::new().question("Which colour?").then(decision));
    let mut stream = subscribe(&fake).await;
    let session = post(&fake, "/session", json!({})).await.1;
    let id = session["id"].as_str().expect("an id");
    let body = json!({"parts": [{"type": "text", "text": "paint it"}]});
    assert_eq!(post(&fake, &format!("/session/{id}/prompt_async"), body).await.0, 204);
    let asked = until(&mut stream, "question.asked").await;
    let question = asked[asked.len() - 1]["properties"]["id"].as_str().expect("an id").to_owned();
    assert_eq!(fake.open_asks(), [question.as_str()]);
    let reply = post(&fake, &format!("/question/{question}/reply"), json!({"answers": [["Red"]]})).await;
    assert_eq!(reply.0, 200);
    until(&mut stream, "session.idle").await;
    let messages = fake.messages(id);
    let texts = messages.iter().flat_map(|message| message["parts"].as_array().expect("parts"));
    let texts: Vec<&Value> = texts.map(|part| &part["text"]).filter(|text| !text.is_null()).collect();
    assert_eq!(texts, ["paint it", "you asked: paint it"]);
    assert_eq!(fake.open_asks(), [""; 0]);
}

#[tokio::test]
async fn an_unrecorded_abort_closes_the_turn_as_opencode_does() {
    let fake = FakeOpenCode::start();
    let gate = Gate::new();
    fake.queue(Turn::new().text("alpha bravo", 2).hold(&gate).text("never", 1));
    let mut stream = subscribe(&fake).await;
    let session = post(&fake, "/session", json!({})).await.1["id"].as_str().expect("an id").to_owned();
    let body = json!({"parts": [{"type": "text", "text": "go"}]});
    post(&fake, &format!("/session/{session}/prompt_async"), body).await;
    gate.reached().await;
    assert_eq!(get(&fake, "/session/status").await.1, json!({session.as_str(): {"type": "busy"}}));
    post(&fake, &format!("/session/{session}/abort"), json!({})).await;
    let mut events = until(&mut stream, "session.idle").await;
    assert!(events.iter().any(|event| event["properties"]["error"]["name"] == "MessageAbortedError"));
    events = until(&mut stream, "session.idle").await;
    let last =
        events.iter().map(|event| &event["properties"]["info"]).find(|info| info["role"] == "assistant");
    assert_eq!(last.expect("the message is closed")["error"]["name"], "MessageAbortedError");
    assert_eq!(get(&fake, "/session/status").await.1, json!({}));
}

#[tokio::test]
async fn answers_have_the_shapes_and_the_oddities_of_opencode() {
    let setup = Setup { password: Some(("opencode".into(), "secret".into())), ..Setup::default() };
    let locked = FakeOpenCode::start_with(setup);
    assert_eq!(get(&locked, "/global/health").await, (401, Value::Null));
    let open = FakeOpenCode::start();
    assert_eq!(get(&open, "/global/health").await.1["healthy"], true);
    let (status, body) = get(&open, "/session/ses_nope").await;
    assert_eq!((status, body["name"].as_str()), (404, Some("NotFoundError")));
    assert_eq!(get(&open, "/session/nope").await.0, 500);
    let page = get(&open, "/no/such/path").await;
    assert!(page.0 == 200 && page.1.as_str().is_some_and(|text| text.starts_with("<!doctype html>")));
    assert_eq!(post(&open, "/session/ses_any/abort", json!({})).await, (200, json!(true)));
    assert_eq!(post(&open, "/permission/per_x/reply", json!({"reply": "once"})).await.0, 404);
}

#[tokio::test]
async fn the_message_list_comes_in_pages_from_the_newest() {
    let fake = FakeOpenCode::start();
    let session = post(&fake, "/session", json!({})).await.1["id"].as_str().expect("an id").to_owned();
    post(&fake, &format!("/session/{session}/message"), json!({"parts": [{"type": "text", "text": "go"}]}))
        .await;
    let whole = fake.messages(&session);
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let url = format!("{}/session/{session}/message?limit=1{before}", fake.url());
        let response = client().get(url).send().await.expect("the fake answers");
        let cursor = response.headers().get("x-next-cursor").and_then(|cursor| cursor.to_str().ok());
        let next = cursor.map(|cursor| format!("&before={cursor}"));
        let text = response.text().await.expect("the fake answers whole");
        seen.splice(0..0, serde_json::from_str::<Vec<Value>>(&text).expect("a list"));
        let Some(next) = next else { break };
        before = next;
    }
    assert_eq!(seen, whole);
    assert_eq!(seen.len(), 2);
}

/// The message list without the summaries of user messages, which change late.
fn outline(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for message in &mut messages {
        if let Some(info) = message["info"].as_object_mut() {
            info.remove("summary");
        }
    }
    messages
}

/// The kind of an event, with the details on which its keys depend.
fn variant(event: &Value) -> String {
    let (kind, properties) = (event["type"].as_str().unwrap_or_default(), &event["properties"]);
    let detail = match kind {
        "session.status" => properties["status"]["type"].to_string(),
        "message.updated" => format!(
            "{} finish={} completed={} error={} summary={}",
            properties["info"]["role"],
            properties["info"]["finish"].is_string(),
            properties["info"]["time"]["completed"].is_u64(),
            properties["info"]["error"].is_object(),
            properties["info"]["summary"].is_object(),
        ),
        "message.part.updated" => format!(
            "{} {} {} end={} time={}",
            properties["part"]["type"],
            properties["part"]["tool"],
            properties["part"]["state"]["status"],
            properties["part"]["time"]["end"].is_u64(),
            properties["part"]["time"].is_object(),
        ),
        _ => String::new(),
    };
    format!("{kind} {detail}")
}

/// The paths of all keys, except those inside of free objects.
fn keys(event: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let free = FREE.iter().any(|free| path.ends_with(free));
            if !free {
                collect(value, &path, found);
            }
            found.insert(path);
        }
    }
    let mut found = BTreeSet::new();
    collect(event, "", &mut found);
    found
}

/// The sets of keys that the recordings show for each variant of an event.
fn recorded_keys(
    recordings: impl IntoIterator<Item = Recording>,
) -> BTreeMap<String, BTreeSet<BTreeSet<String>>> {
    let mut recorded: BTreeMap<String, BTreeSet<BTreeSet<String>>> = BTreeMap::new();
    for recording in recordings {
        for event in recording.events() {
            recorded.entry(variant(event)).or_default().insert(keys(event));
        }
    }
    recorded
}

/// Panics unless the event has the keys of a recorded one.
fn check_event(recorded: &BTreeMap<String, BTreeSet<BTreeSet<String>>>, event: &Value) {
    let (variant, found) = (variant(event), keys(event));
    let shapes = recorded.get(&variant).unwrap_or_else(|| panic!("no recorded {variant}: {event}"));
    assert!(shapes.contains(&found), "{variant}: {found:?} is none of {shapes:?}");
}

fn events_of(turn: &Turn) -> Vec<Value> {
    let steps = turn.steps(&prompt()).into_iter();
    steps.filter_map(|step| if let Step::Emit(event) = step { Some(event) } else { None }).collect()
}

fn prompt() -> Prompt {
    Prompt {
        session: "ses_1".into(),
        message: ids::fresh("msg"),
        parts: json!([{"type": "text", "text": "go"}]),
        directory: "/workspace".into(),
        logged_at: 0,
        responder: Responder::default(),
        tools: Value::Null,
    }
}

/// A storm reported a false finding: a kill came while the script was polled, its last events were dropped, and the turn counted as
/// ended.
#[tokio::test]
async fn a_turn_whose_last_events_a_kill_dropped_has_not_ended() {
    let fake = FakeOpenCode::start();
    let life = CancellationToken::new();
    life.cancel();
    let steps = [Step::Emit(json!({"type": "session.idle", "properties": {"sessionID": "ses_1"}}))];
    let end = player::play_steps(&fake.shared, &life, &prompt(), &prompt(), steps.into()).await;
    assert_eq!(end, TurnEnd::Killed);
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client without options")
}

async fn get(fake: &FakeOpenCode, path: &str) -> (u16, Value) {
    read(client().get(format!("{}{path}", fake.url()))).await
}

async fn post(fake: &FakeOpenCode, path: &str, body: Value) -> (u16, Value) {
    read(client().post(format!("{}{path}", fake.url())).body(body.to_string())).await
}

async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("the fake answers");
    let status = response.status().as_u16();
    let text = response.text().await.expect("the fake answers whole");
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(text.into()) };
    (status, body)
}

/// The events of a stream, as they come.
type Events = futures_util::stream::BoxStream<'static, Value>;

async fn subscribe(fake: &FakeOpenCode) -> Events {
    subscribe_to(fake, "/event").await
}

async fn subscribe_to(fake: &FakeOpenCode, path: &str) -> Events {
    let response = client().get(format!("{}{path}", fake.url())).send().await.expect("the fake answers");
    let lines = response.bytes_stream().scan(String::new(), |waiting, bytes| {
        waiting.push_str(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
        let mut events = Vec::new();
        while let Some((event, rest)) = waiting.split_once("\n\n") {
            events.extend(event.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()));
            *waiting = rest.to_owned();
        }
        std::future::ready(Some(futures_util::stream::iter(events)))
    });
    lines.flatten().boxed()
}

/// The events up to the first of that kind.
async fn until(stream: &mut Events, kind: &str) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        let found = event["type"] == kind;
        events.push(event);
        if found {
            return events;
        }
    }
    panic!("the stream ended before {kind}: {events:?}");
}

async fn drain(stream: &mut Events) -> Vec<Value> {
    stream.collect().await
}
