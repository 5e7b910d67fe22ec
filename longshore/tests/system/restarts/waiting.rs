//! What a gateway prints, and tells its clients, while OpenCode does not respond yet.

use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Fault, Gate};
use longshore_testkit::gateway::TOKEN;
use serde_json::{Value, json};

use crate::restarts::installation::{Gateway, Installation, PATIENCE};

/// What a gateway prints up to a line, without what differs from run to run.
async fn printed(
    gateway: &mut Gateway,
    installation: &Installation,
    fake: &FakeOpenCode,
    last: &str,
) -> String {
    gateway.says(last).await;
    let url = installation.url();
    let printed = gateway.said().replace(&url, "[url]").replace(&fake.url(), "[opencode]");
    let printed = printed.replace(&url.replacen("http", "ws", 1), "[websocket]");
    let mut printed =
        printed.replace(fake.directory(), "[workspace]").replace(env!("CARGO_PKG_VERSION"), "[version]");
    if let Some(at) = printed.find("hello-") {
        printed.replace_range(at..at + "hello-12345678".len(), "[id]");
    }
    printed
}

/// Calls a method and returns its result.
async fn call(installation: &Installation, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = reqwest::Client::new().post(format!("{}/", installation.url())).bearer_auth(TOKEN);
    let request = request.header("A2A-Version", "1.0").header("content-type", "application/json");
    let answer = request.timeout(PATIENCE).body(body.to_string()).send().await.expect("the gateway responds");
    let answer: Value = serde_json::from_str(&answer.text().await.expect("a body")).expect("JSON");
    assert!(answer.get("error").is_none(), "{answer:#}");
    answer["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_opencode_is_waited_for_and_a_blocking_send_says_so() {
    let fake = FakeOpenCode::start();
    fake.kill().await;
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut gateway = installation.launch(&[]);
    let waiting = printed(&mut gateway, &installation, &fake, "curl ").await;
    insta::assert_snapshot!("unreachable", waiting);

    let card = format!("{}/.well-known/agent-card.json", installation.url());
    let card = reqwest::Client::new().get(card).timeout(PATIENCE).send().await.expect("the card is served");
    assert!(card.status().is_success());
    let message = json!({"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let sent = call(&installation, "SendMessage", json!({"message": message})).await;
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{sent:#}");
    let words = sent["task"]["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(
        words.contains("Nothing was sent to it yet") && words.contains("OpenCode cannot be reached."),
        "{words}"
    );

    fake.restart();
    gateway.says("is ready.").await;
    let id = sent["task"]["id"].as_str().expect("a task has an id");
    loop {
        let task = call(&installation, "GetTask", json!({"id": id})).await;
        match task["status"]["state"].as_str() {
            Some("TASK_STATE_COMPLETED") => break,
            Some("TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING") => {}
            state => panic!("{state:?}: {task:#}"),
        }
        // Only another request shows the state.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(fake.prompts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_opencode_is_waited_for_and_then_has_loaded_the_workspace_before_the_banner() {
    let fake = FakeOpenCode::start();
    let gate = Gate::new();
    fake.fault_once("GET", "/global/health", Fault::Hold(gate.clone()));
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut gateway = installation.launch(&[]);
    let waiting = printed(&mut gateway, &installation, &fake, "curl ").await;
    insta::assert_snapshot!("slow", waiting);
    gate.open();
    gateway.says("is ready.").await;
    for loaded in ["/config/providers", "/event"] {
        assert!(fake.log().iter().any(|request| request.path == loaded), "{loaded}: {:?}", fake.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_opencode_of_another_version_is_named() {
    let fake = FakeOpenCode::start();
    fake.kill().await;
    fake.restart_as("2.0.0-beta.1");
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut gateway = installation.launch(&[]);
    gateway.says("is ready.").await;
    let warning = gateway.logs("may work").await;
    assert!(warning.starts_with("warning: OpenCode 2.0.0-beta.1 may work, but"), "{warning}");
}
