//! Operations that change sessions, compared with the recordings.

use serde_json::{Value, json};

use super::shapes::check;
use super::*;

/// A fake, a session with one turn, and the events after it.
struct Bench {
    fake: FakeOpenCode,
    session: String,
    events: Events,
}

impl Bench {
    async fn new() -> Self {
        let fake = FakeOpenCode::start();
        let session = make(&fake, "Harbour").await;
        fake.queue(Turn::new().text("first", 1));
        say(&fake, &session, "one").await;
        let events = subscribe(&fake).await;
        Self { fake, session, events }
    }

    async fn post(&self, action: &str, body: Value) -> (u16, Value) {
        post(&self.fake, &format!("/session/{}/{action}", self.session), body).await
    }

    /// The events so far. An event of the test itself marks the end.
    async fn received(&mut self) -> Vec<Value> {
        self.fake.emit("test.mark", json!({})).await;
        let mut events = until(&mut self.events, "test.mark").await;
        events.pop();
        events.retain(|event| event["type"] != "server.connected");
        events
    }
}

async fn make(fake: &FakeOpenCode, title: &str) -> String {
    let made = post(fake, "/session", json!({"title": title})).await.1;
    made["id"].as_str().expect("an id").to_owned()
}

async fn say(fake: &FakeOpenCode, session: &str, words: &str) {
    let body = json!({"parts": [{"type": "text", "text": words}]});
    assert_eq!(post(fake, &format!("/session/{session}/message"), body).await.0, 200);
}

/// The type of each event, with its most important detail.
fn outline(events: &[Value]) -> Vec<String> {
    let events = events.iter().filter(|event| event["type"] != "message.part.delta");
    events
        .map(|event| {
            let (kind, properties) = (event["type"].as_str().unwrap_or_default(), &event["properties"]);
            let detail = match kind {
                "message.updated" => &properties["info"]["role"],
                "message.part.updated" => &properties["part"]["type"],
                "session.status" => &properties["status"]["type"],
                _ => &Value::Null,
            };
            format!("{kind} {}", detail.as_str().unwrap_or_default()).trim().to_owned()
        })
        .collect()
}

/// Every event has the keys of a recorded one.
fn check_keys(recording: &str, events: &[Value]) {
    let recorded = recorded_keys([Recording::load(recording)]);
    for event in events {
        check_event(&recorded, event);
    }
}

#[tokio::test]
async fn a_shell_command_is_busy_first_and_has_no_step() {
    let mut bench = Bench::new().await;
    let (status, answer) = bench.post("shell", json!({"agent": "build", "command": "ls"})).await;
    assert_eq!((status, &answer["parts"][0]["state"]["output"]), (200, &json!("ran: ls\n")));
    check("POST /session/{sessionID}/shell", &answer);
    let events = bench.received().await;
    check_keys("../control/shell", &events);
    let expected = [
        "session.status busy",
        "message.updated user",
        "message.part.updated text",
        "message.updated assistant",
        "message.part.updated tool",
        "message.part.updated tool",
        "message.updated assistant",
        "message.part.updated tool",
        "session.status idle",
        "session.idle",
    ];
    assert_eq!(outline(&events), expected);
    let synthetic = &events[2]["properties"]["part"]["synthetic"];
    assert_eq!(synthetic, true);
    let (status, _) = bench.post("shell", json!({"agent": "nobody", "command": "ls"})).await;
    assert_eq!(status, 500);
    assert_eq!(
        outline(&bench.received().await),
        ["session.status busy", "session.error", "session.status idle", "session.idle"]
    );
    assert_eq!(bench.post("shell", json!({"command": "ls"})).await.0, 400);
}

#[tokio::test]
async fn operations_that_need_an_idle_session_are_refused_while_it_is_busy() {
    let bench = Bench::new().await;
    let gate = Gate::new();
    bench.fake.shell(Shell { output: "done".into(), hold: Some(gate.clone()) });
    let running = bench.post("shell", json!({"agent": "build", "command": "sleep"}));
    let meanwhile = async {
        gate.reached().await;
        for (action, body) in [
            ("shell", json!({"agent": "build", "command": "ls"})),
            ("revert", json!({"messageID": "msg_x"})),
            ("unrevert", json!({})),
        ] {
            let (status, answer) = bench.post(action, body).await;
            assert_eq!((status, answer["_tag"].as_str()), (409, Some("SessionBusyError")), "{action}");
        }
        assert_eq!(bench.post("fork", json!({})).await.0, 200, "a busy session can be forked");
        gate.open();
    };
    let (ran, ()) = tokio::join!(running, meanwhile);
    assert_eq!(ran.0, 200);
}

#[tokio::test]
async fn a_fork_copies_the_messages_before_the_given_one() {
    let mut bench = Bench::new().await;
    say(&bench.fake, &bench.session, "two").await;
    bench.received().await;
    let messages = bench.fake.messages(&bench.session);
    let (status, fork) = bench.post("fork", json!({"messageID": messages[2]["info"]["id"]})).await;
    assert_eq!((status, &fork["title"]), (200, &json!("Harbour (fork #1)")));
    check("POST /session/{sessionID}/fork", &fork);
    let events = bench.received().await;
    check_keys("../control/fork", &events);
    let copy = bench.fake.messages(fork["id"].as_str().expect("an id"));
    assert_eq!(copy.len(), 2);
    assert_eq!(copy[1]["info"]["parentID"], copy[0]["info"]["id"]);
    assert_ne!(copy[0]["info"]["id"], messages[0]["info"]["id"]);
    for body in [json!({}), json!({"messageID": "msg_of_nobody"})] {
        let (_, whole) = bench.post("fork", body).await;
        let id = whole["id"].as_str().expect("an id").to_owned();
        assert_eq!(bench.fake.messages(&id).len(), messages.len());
        let again = post(&bench.fake, &format!("/session/{id}/fork"), json!({})).await.1;
        assert_eq!(again["title"], "Harbour (fork #2)");
    }
    assert_eq!(bench.post("fork", json!({"messageID": "x"})).await, (400, json!({"_tag": "BadRequest"})));
}

#[tokio::test]
async fn a_share_succeeds_fails_or_is_silently_ignored() {
    let bench = Bench::new().await;
    let (status, shared) = bench.post("share", json!({})).await;
    assert_eq!(status, 200);
    check("POST /session/{sessionID}/share", &shared);
    assert!(shared["share"]["url"].is_string());
    let url = format!("{}/session/{}/share", bench.fake.url(), bench.session);
    let unshared = read(client().delete(url)).await;
    assert_eq!((unshared.0, &unshared.1["share"]), (200, &Value::Null));
    for (sharing, status) in [(Sharing::Off, 200), (Sharing::Forbidden, 500), (Sharing::Offline, 500)] {
        bench.fake.project(|project| project.sharing = sharing);
        let (answered, answer) = bench.post("share", json!({})).await;
        assert_eq!((answered, &answer["share"]), (status, &Value::Null), "{sharing:?}");
    }
}

#[tokio::test]
async fn a_revert_sets_messages_aside_until_a_prompt_drops_them() {
    let bench = Bench::new().await;
    say(&bench.fake, &bench.session, "two").await;
    let messages = bench.fake.messages(&bench.session);
    let user = &messages[2]["info"]["id"];
    for body in [json!({"messageID": "msg_no"}), json!({"messageID": user, "partID": "prt_no"})] {
        let (status, same) = bench.post("revert", body).await;
        assert_eq!((status, &same["revert"]), (200, &Value::Null));
    }
    for (body, status) in [(Value::Null, 400), (json!({}), 400), (json!({"messageID": "x"}), 400)] {
        assert_eq!(bench.post("revert", body).await.0, status);
    }
    let (_, reverted) = bench.post("revert", json!({"messageID": messages[3]["info"]["id"]})).await;
    check("POST /session/{sessionID}/revert", &reverted);
    assert_eq!(&reverted["revert"]["messageID"], user, "a reverted reply takes its prompt with it");
    assert_eq!(bench.fake.messages(&bench.session).len(), 4, "reverted messages are still listed");
    let (_, back) = bench.post("unrevert", json!({})).await;
    check("POST /session/{sessionID}/unrevert", &back);
    assert_eq!(back["revert"], Value::Null);
    bench.post("revert", json!({"messageID": user})).await;
    say(&bench.fake, &bench.session, "instead").await;
    let words: Vec<Value> = bench
        .fake
        .messages(&bench.session)
        .iter()
        .map(|message| message["parts"][0]["text"].clone())
        .collect();
    assert_eq!((words.len(), &words[2]), (4, &json!("instead")));
}

#[tokio::test]
async fn summarize_answers_at_the_end_and_with_auto_the_model_goes_on() {
    let mut bench = Bench::new().await;
    let model = json!({"providerID": "scripted", "modelID": "scripted"});
    assert_eq!(bench.post("summarize", model.clone()).await, (200, json!(true)));
    let events = bench.received().await;
    check_keys("summarize", &events);
    assert!(outline(&events).contains(&"session.compacted".to_owned()));
    let messages = bench.fake.messages(&bench.session);
    let summary = messages.iter().find(|message| message["info"]["summary"] == true).expect("a summary");
    let id = summary["info"]["id"].as_str().expect("an id");
    let path = format!("/session/{}/diff?messageID={id}", bench.session);
    assert_eq!(get(&bench.fake, &path).await, (200, json!([])), "a reply has no changes");
    let mut auto = model;
    auto["auto"] = true.into();
    bench.fake.queue(Turn::new().question("Go on?").text("gone on", 1));
    let answer = async {
        let events = until(&mut bench.events, "question.asked").await;
        let ask = events[events.len() - 1]["properties"]["id"].as_str().expect("an id").to_owned();
        post(&bench.fake, &format!("/question/{ask}/reply"), json!({"answers": [["Yes"]]})).await;
    };
    let path = format!("/session/{}/summarize", bench.session);
    let (done, ()) = tokio::join!(post(&bench.fake, &path, auto), answer);
    assert_eq!(done, (200, json!(true)));
    let messages = bench.fake.messages(&bench.session);
    let synthetic = messages.iter().find(|message| message["parts"][0]["synthetic"] == true);
    let synthetic = synthetic.expect("OpenCode prompts itself");
    assert_eq!(messages[messages.len() - 1]["info"]["parentID"], synthetic["info"]["id"]);
    for (body, status) in [(Value::Null, 400), (json!({"providerID": "scripted"}), 400)] {
        assert_eq!(bench.post("summarize", body).await.0, status);
    }
    let count = bench.fake.messages(&bench.session).len();
    let unknown = json!({"providerID": "scripted", "modelID": "none"});
    assert_eq!(bench.post("summarize", unknown).await.0, 500);
    let left = bench.fake.messages(&bench.session);
    assert_eq!((left.len(), &left[count]["parts"][0]["type"]), (count + 1, &json!("compaction")));
}
