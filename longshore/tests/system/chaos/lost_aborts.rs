//! A cancel whose abort does not reach OpenCode: the turn must not continue there, nor block the next turn of the
//! session.

use std::path::Path;
use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Fault, Gate, Tool, Turn};
use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::raw::RawClient;
use serde_json::{Value, json};

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");
/// Long enough for a busy machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_mins(1);

/// A gateway, and a fake whose first turn asks and whose later turns do not.
async fn start() -> (Gateway, FakeOpenCode) {
    let fake = FakeOpenCode::start();
    fake.queue(Turn::new().text("May I? ", 1).guarded_tool(Tool::bash("make harbour", "done\n")));
    fake.answer_others_with(vec![Turn::new().text("Here I am.", 1)]);
    let setup = Setup::attached(Path::new(LONGSHORE), &fake.url()).flag("--control-timeout").flag("10");
    (Gateway::start(setup).await, fake)
}

fn message(id: &str, words: &str) -> Value {
    let message =
        json!({"messageId": id, "contextId": "talk", "role": "ROLE_USER", "parts": [{"text": words}]});
    json!({"message": message})
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("still waiting for {what}"))
}

/// Sends the first message, waits for its ask, and cancels the task.
async fn cancel_at_the_ask(gateway: &Gateway) {
    let client = RawClient::new(gateway.url(), TOKEN);
    let asked = within("the ask", client.rpc("SendMessage", message("m-1", "go"))).await;
    let task = &asked.result()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
    let canceled = within("the cancel", client.rpc("CancelTask", json!({"id": task["id"]}))).await;
    assert_eq!(canceled.result()["status"]["state"], "TASK_STATE_CANCELED");
}

/// Sends the second message, whose turn must run.
async fn assert_next_turn_runs(gateway: &Gateway, fake: &FakeOpenCode, prompts: usize) {
    let client = RawClient::new(gateway.url(), TOKEN);
    let told = within("the next turn", client.rpc("SendMessage", message("m-2", "are you there?"))).await;
    let task = &told.result()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Here I am.");
    assert_eq!(fake.prompts().len(), prompts, "nothing was prompted twice");
}

/// The same, and no ask is left open.
async fn assert_nothing_left(gateway: &Gateway, fake: &FakeOpenCode) {
    assert_next_turn_runs(gateway, fake, 2).await;
    assert_eq!(fake.open_asks(), [] as [&str; 0], "no ask is open");
}

#[tokio::test]
async fn an_abort_whose_connection_breaks_is_repeated() {
    let (gateway, fake) = start().await;
    fake.fault_once("POST", "/abort", Fault::CutBefore);
    cancel_at_the_ask(&gateway).await;
    assert_nothing_left(&gateway, &fake).await;
}

#[tokio::test]
async fn an_abort_that_opencode_refuses_for_a_while_is_repeated() {
    let (gateway, fake) = start().await;
    fake.fault_always("POST", "/abort", Fault::Status(503));
    cancel_at_the_ask(&gateway).await;
    // Longer than a cancel waits for its abort.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    fake.clear_faults();
    within("the abort", fake.wait_for_request("POST", "/abort", 1)).await;
    within("the end of the turn", fake.wait_until_idle()).await;
    assert_nothing_left(&gateway, &fake).await;
}

#[tokio::test]
async fn a_restarted_gateway_makes_the_abort_that_it_missed() {
    let (mut gateway, fake) = start().await;
    fake.fault_always("POST", "/abort", Fault::Hang);
    cancel_at_the_ask(&gateway).await;
    gateway.kill();
    fake.clear_faults();
    gateway.restart().await;
    // No client has to call for that.
    within("the abort", fake.wait_for_request("POST", "/abort", 1)).await;
    within("the end of the turn", fake.wait_until_idle()).await;
    assert_nothing_left(&gateway, &fake).await;
}

#[tokio::test]
async fn a_late_abort_does_not_stop_a_turn_of_another_client() {
    let (mut gateway, fake) = start().await;
    fake.fault_always("POST", "/abort", Fault::Hang);
    cancel_at_the_ask(&gateway).await;
    gateway.kill();
    fake.clear_faults();
    let session = fake.sessions().remove(0);
    // Another client of OpenCode aborts the turn and starts its own.
    let http = reqwest::Client::new();
    let at = |path: &str| format!("{}/session/{session}/{path}", fake.url());
    http.post(at("abort")).send().await.expect("an answer");
    fake.wait_until_idle().await;
    let gate = Gate::new();
    fake.queue(Turn::new().text("Yours", 1).hold(&gate).text(" truly.", 1));
    let words = json!({"messageID": "msg_theirs", "parts": [{"type": "text", "text": "mine"}]}).to_string();
    let prompt = http.post(at("prompt_async")).header("content-type", "application/json").body(words);
    prompt.send().await.expect("an answer");
    gate.reached().await;
    let asked = |path: &str| fake.log().iter().filter(|request| request.path.ends_with(path)).count();
    let reads_before = asked("/message");
    gateway.restart().await;
    within("a read of the session", fake.wait_for_request("GET", "/message", reads_before + 1)).await;
    gate.open();
    fake.wait_until_idle().await;
    assert_next_turn_runs(&gateway, &fake, 3).await;
    assert_eq!(asked("/abort"), 1, "only the one at OpenCode itself");
}
