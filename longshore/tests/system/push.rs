//! Push notifications of a real gateway: receivers that misbehave, kills, and secrets.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::raw::{RawClient, message};
use longshore_testkit::receiver::{Conduct, Received, Receiver};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(100);

/// The first states of these are those of the ask, and the last one is the end.
const TOLD: [&str; 2] = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"];

fn setup(fake: &FakeOpenCode) -> Setup {
    Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url())
        .flag("--push-allow-http")
        .flag("--push-internal-networks=127.0.0.1/32")
        .flag("--push-response-timeout=1")
}

fn client(gateway: &Gateway) -> RawClient {
    RawClient::new(gateway.url(), TOKEN)
}

/// A send that returns at once and whose task has a configuration.
fn send(id: &str, text: &str, config: &Value) -> Value {
    let mut send = message(id, text);
    send["configuration"] = json!({"returnImmediately": true, "taskPushNotificationConfig": config});
    send
}

async fn add(client: &RawClient, task: &str, id: &str, url: &str) {
    let config = json!({"taskId": task, "id": id, "url": url});
    let answer = client.rpc("CreateTaskPushNotificationConfig", config).await;
    assert!(answer.body["error"].is_null(), "{answer:?}");
}

fn states(calls: &[Received]) -> Vec<&str> {
    calls.iter().filter_map(Received::state).collect()
}

/// A command of the operator on the data of a gateway that does not run.
fn command(gateway: &Gateway, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(words)
        .arg("--workspace")
        .arg(gateway.workspace())
        .arg("--data-dir")
        .arg(gateway.data_dir())
        .env_clear()
        .env("HOME", gateway.workspace())
        .output()
        .expect("longshore can be started")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("the output is text")
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_that_misbehave_get_every_event_once_and_in_order() {
    let fake = FakeOpenCode::start();
    fake.queue(Turn::new().text("Well,", 1).question("Which one?").text(" this one.", 1).finish("stop"));
    let mut gateway = Gateway::start(setup(&fake)).await;
    let client = client(&gateway);

    // Each has a port of its own, because a host that fails gets pauses.
    let mut receivers = BTreeMap::new();
    let every_third = |conduct: Conduct| {
        let mut calls = 0;
        move |_: &Received| {
            calls += 1;
            if calls % 3 == 0 { Conduct::Answers(200) } else { conduct.clone() }
        }
    };
    for (name, conduct) in [
        ("well", Conduct::Answers(200)),
        ("fails", Conduct::Answers(503)),
        ("closes", Conduct::Closes),
        ("later", Conduct::AnswersWith(429, "retry-after: 1\r\n")),
    ] {
        receivers.insert(name, Receiver::start(every_third(conduct)).await);
    }
    let mut has_hung = false;
    let hangs = move |_: &Received| {
        if std::mem::replace(&mut has_hung, true) { Conduct::Answers(204) } else { Conduct::Hangs }
    };
    receivers.insert("hangs", Receiver::start(hangs).await);
    let slow = |_: &Received| Conduct::AnswersAfter(Duration::from_millis(300), 202);
    receivers.insert("slow", Receiver::start(slow).await);
    let caught = Receiver::start(|_| Conduct::Answers(200)).await;
    let to: &'static str = Box::leak(format!("location: {}\r\n", caught.url("caught")).into_boxed_str());
    let redirects = Receiver::start(move |_| Conduct::AnswersWith(307, to)).await;
    let down = Receiver::free_address().await;

    let first = json!({"url": receivers["well"].url("well"), "token": "well's"});
    let sent = client.rpc("SendMessage", send("m-1", "Which?", &first)).await;
    let task = sent.result()["task"]["id"].as_str().expect("a task").to_owned();
    for (name, receiver) in receivers.iter().filter(|(name, _)| **name != "well") {
        add(&client, &task, name, &receiver.url(name)).await;
    }
    add(&client, &task, "redirects", &redirects.url("redirects")).await;
    add(&client, &task, "down", &format!("http://{down}/down")).await;
    let well = &receivers["well"];
    well.until(PATIENCE, "the ask is told", |well| well.accepted("well").len() == 1).await;

    let mut answer = message("m-2", "This one.");
    answer["message"]["taskId"] = json!(task);
    let ended = client.rpc("SendMessage", answer).await;
    assert_eq!(ended.result()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    // A receiver that was down gets everything. It has missed some attempts.
    receivers.insert("down", Receiver::start_at(down, |_| Conduct::Answers(200)).await);
    for (name, receiver) in &receivers {
        receiver.until(PATIENCE, "all is told", |receiver| receiver.accepted(name).len() == 2).await;
    }
    for (name, receiver) in &receivers {
        let calls = receiver.accepted(name);
        assert_eq!(states(&calls), TOLD, "{name}");
        assert!(calls.iter().all(|call| call.body["statusUpdate"]["taskId"] == task), "{name}");
        // A call is repeated only until it is accepted.
        let accepted = receiver.received().into_iter().filter(|call| call.is_accepted).count();
        assert_eq!(accepted, 2, "{name}");
    }
    assert_eq!(receivers["well"].accepted("well")[0].headers["x-a2a-notification-token"], "well's");
    redirects.until(PATIENCE, "all is tried", |redirects| redirects.received().len() == 2).await;

    assert!(!command(&gateway, &["push", "dead"]).status.success(), "the gateway runs");
    gateway.terminate().await;
    let dead = printed(&command(&gateway, &["push", "dead"]));
    assert_eq!(dead.lines().count(), 2, "{dead}");
    assert!(dead.lines().all(|line| line.contains("redirects") && line.contains("answered 307")), "{dead}");
    let number = dead.split(' ').next().expect("a number");
    assert!(printed(&command(&gateway, &["push", "drop", number])).contains("Dropped 1 dead letter."));
    assert!(printed(&command(&gateway, &["push", "replay", "--all"])).contains("1 dead letter will be sent"));
    gateway.restart().await;
    redirects.until(PATIENCE, "it is sent again", |redirects| redirects.received().len() == 3).await;
    let calls = redirects.received();
    assert_eq!(calls[2].id(), calls[1].id());
    assert!(caught.received().is_empty(), "a redirect was followed");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_lose_no_notification() {
    kills(10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_hundred_kills_lose_no_notification() {
    kills(100).await;
}

/// Kills the gateway at random moments while tasks run and end. The receiver refuses some calls, and gets every event all the same.
async fn kills(rounds: u32) {
    const TASKS: u32 = 3;
    let fake = FakeOpenCode::start();
    fake.answering(|text| {
        Turn::new().text(&format!("You say: {text}. What more is there to say?"), 6).finish("stop")
    });
    let receiver = Receiver::start(|_| match rand::random_range(0..10) {
        0 => Conduct::Answers(500),
        1 => Conduct::Closes,
        _ => Conduct::Answers(200),
    })
    .await;
    let mut gateway = Gateway::start(setup(&fake).flag("--push-events=all")).await;
    let mut tasks = BTreeMap::new();
    for round in 0..rounds {
        let client = client(&gateway);
        let names: Vec<String> = (0..TASKS).map(|number| format!("m-{round}-{number}")).collect();
        let sending = names.iter().map(|name| {
            let send = send(name, name, &json!({"url": receiver.url(name)}));
            client.rpc("SendMessage", send)
        });
        let patience = Duration::from_millis(rand::random_range(0..400));
        // The calls are cut off by the kill; the same messages are sent again below.
        let _ = tokio::time::timeout(patience, futures_util::future::join_all(sending)).await;
        gateway.kill();
        gateway.restart().await;
        let client = RawClient::new(gateway.url(), TOKEN);
        for name in names {
            let again =
                client.rpc("SendMessage", send(&name, &name, &json!({"url": receiver.url(&name)}))).await;
            let task = again.result()["task"]["id"].as_str().expect("a task").to_owned();
            tasks.insert(name, task);
        }
    }
    let client = client(&gateway);
    for (name, id) in &tasks {
        let is_told = |receiver: &Receiver| {
            let calls = receiver.accepted(name);
            calls
                .last()
                .and_then(Received::state)
                .is_some_and(|state| state != "TASK_STATE_WORKING" && calls.len() > 1)
        };
        receiver.until(PATIENCE, &format!("the end of {name} is told"), is_told).await;
        let (task, calls) = (client.task(id).await, receiver.accepted(name));
        let told = states(&calls);
        assert_eq!(told.first(), Some(&"TASK_STATE_SUBMITTED"), "{name}: {told:?}");
        assert_eq!(told.last().copied(), task["status"]["state"].as_str(), "{name}: {told:?}");
        // Every piece of output came, and in order.
        let text = |artifact: &Value| artifact["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
        let pieces: String =
            calls.iter().map(|call| text(&call.body["artifactUpdate"]["artifact"])).collect();
        let artifacts = task["artifacts"].as_array().cloned().unwrap_or_default();
        assert_eq!(pieces, artifacts.iter().map(text).collect::<String>(), "{name}");
    }
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_receiver_is_in_the_store_the_log_or_an_answer() {
    let fake = FakeOpenCode::start();
    fake.answering(|_| Turn::new().text("Done.", 1).finish("stop"));
    let receiver = Receiver::start(|_| Conduct::Answers(404)).await;
    let mut gateway = Gateway::start(setup(&fake).env("A2A_LOG_LEVEL", "DEBUG")).await;
    let client = client(&gateway);
    let config = json!({
        "url": receiver.url("hook-planted-path?key=planted-query"),
        "authentication": {"scheme": "Bearer", "credentials": "planted-credentials"},
    });
    let sent = client.rpc("SendMessage", send("m-1", "Do it.", &config)).await;
    let task = sent.result()["task"]["id"].as_str().expect("a task").to_owned();
    receiver.until(PATIENCE, "it is told", |receiver| !receiver.received().is_empty()).await;
    let call = &receiver.received()[0];
    assert_eq!(call.headers["authorization"], "Bearer planted-credentials");
    let listed = client.rpc("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert!(!listed.body.to_string().contains("planted-credentials"), "{listed:?}");

    gateway.terminate().await;
    let dead = printed(&command(&gateway, &["push", "dead"]));
    assert!(!dead.contains("planted"), "{dead}");
    check_files(&gateway.data_dir(), &["planted"]);
    assert!(!gateway.log().contains("planted"), "{}", gateway.log());

    // Another key opens them, and the old one is gone.
    let keys = std::fs::read_to_string(gateway.data_dir().join("keys")).expect("a key was made");
    let rotated = printed(&command(&gateway, &["keys", "rotate"]));
    assert!(rotated.contains("1 secrets were sealed again"), "{rotated}");
    let new_keys = std::fs::read_to_string(gateway.data_dir().join("keys")).expect("there are keys");
    assert_ne!(keys, new_keys);
    assert!(!rotated.contains(new_keys.trim().split_once(':').expect("an id and a key").1));
    printed(&command(&gateway, &["push", "replay", "--all"]));
    gateway.restart().await;
    receiver.until(PATIENCE, "it is told again", |receiver| receiver.received().len() == 2).await;
    assert_eq!(receiver.received()[1].headers["authorization"], "Bearer planted-credentials");
    check_files(&gateway.data_dir(), &["planted"]);
    gateway.terminate().await;
}

/// Without its keys the gateway can store no webhook. The send is refused as a whole. It works once the broken file
/// is removed, because the gateway then makes new keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_send_whose_webhook_cannot_be_sealed_is_refused_and_leaves_nothing() {
    let fake = FakeOpenCode::start();
    fake.answering(|_| Turn::new().text("Done.", 1).finish("stop"));
    let receiver = Receiver::start(|_| Conduct::Answers(200)).await;
    let mut gateway = Gateway::start(setup(&fake)).await;
    let client = client(&gateway);
    let before = fake.sessions();
    let keys = gateway.data_dir().join("keys");
    std::fs::write(&keys, "these are no keys").expect("the file can be written");

    let config = json!({"id": "c", "url": receiver.url("hook")});
    for method in ["SendMessage", "SendStreamingMessage"] {
        let refused = client.rpc(method, send("m-1", "Do it.", &config)).await;
        let error = &refused.body["error"];
        assert_eq!(error["data"][0]["reason"], "UNAVAILABLE", "{refused:?}");
        let text = error["message"].as_str().unwrap_or_default();
        assert!(text.contains("push configuration") && !text.contains("keys"), "{text}");
    }
    let tasks = client.rpc("ListTasks", json!({})).await;
    assert_eq!(tasks.result()["tasks"], json!([]), "{tasks:?}");
    assert!(fake.prompts().is_empty() && fake.sessions() == before);

    // Everything else works, and the same send works once the gateway can make new keys.
    let mut plain = message("m-2", "Do it.");
    plain["configuration"] = json!({"returnImmediately": true});
    let task = client.rpc("SendMessage", plain).await.result()["task"]["id"].clone();
    let refused = client
        .rpc(
            "CreateTaskPushNotificationConfig",
            json!({"taskId": task, "id": "c", "url": receiver.url("hook")}),
        )
        .await;
    assert_eq!(refused.body["error"]["data"][0]["reason"], "UNAVAILABLE", "{refused:?}");
    let listed = client.rpc("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(listed.result()["configs"], json!([]), "{listed:?}");
    std::fs::remove_file(&keys).expect("the file can be removed");
    let sent = client.rpc("SendMessage", send("m-1", "Do it.", &config)).await;
    assert!(sent.result()["task"]["id"].is_string(), "{sent:?}");
    receiver.until(PATIENCE, "it is told", |receiver| !receiver.received().is_empty()).await;
    gateway.terminate().await;
}

/// Fails if a file has one of the words.
fn check_files(directory: &Path, words: &[&str]) {
    for entry in std::fs::read_dir(directory).expect("the data directory can be read") {
        let file = entry.expect("an entry").path();
        let bytes = std::fs::read(&file).unwrap_or_default();
        for word in words {
            let found = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!found, "{word} is in {}", file.display());
        }
    }
}
