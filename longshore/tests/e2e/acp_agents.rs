//! Real agents that speak ACP, offline, with a scripted model: one path for each.

use std::time::Duration;

use a2a::TRANSPORT_PROTOCOL_JSONRPC as BINDING;
use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{Gateway, TOKEN, kill};
use longshore_testkit::raw;
use serde_json::{Value, json};

use crate::acp_matrix::{after_restart, before_restart};
use crate::client::{Client, PATIENCE, message, message_in};
use crate::frames::{check_log, explanation, state, state_of, task_id};
use crate::harness::scenario;
use crate::official_client::{connect, discover};
use crate::real_agents::{self, RealAgent, prepare};

#[tokio::test(flavor = "multi_thread")]
async fn opencode_over_acp_is_served() {
    let (root, model) = prepare().await;
    let agent = real_agents::opencode(root.path(), &model);
    serve(root, agent, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qwen_code_is_served() {
    let (root, model) = prepare().await;
    let agent = real_agents::qwen(root.path(), &model);
    serve(root, agent, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_agent_is_served() {
    let (root, model) = prepare().await;
    let agent = real_agents::claude(root.path(), &model);
    serve(root, agent, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_mistral_vibe_is_served() {
    let (root, model) = prepare().await;
    let agent = real_agents::vibe(root.path(), &model);
    serve(root, agent, &model).await;
}

/// Vibe goes on with a turn that broke off, inside `session/load`.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn long_vibe_that_goes_on_with_a_broken_off_turn_is_not_prompted_twice() {
    let (root, model) = prepare().await;
    let agent = real_agents::vibe(root.path(), &model);
    let gateway = Gateway::start_in(root, agent.setup()).await;
    let client = Client::of(&gateway);
    let prompt = format!("{} scn:text n=2 text=\"Gone on.\"", (agent.shell)("touch broken-off"));
    let asked = client.send(&message(&prompt)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    let task = asked["id"].as_str().expect("a task has an id");
    let context = asked["contextId"].as_str().expect("a task has a context");

    let stream = client.subscribe(task).await;
    kill(child_of(gateway.pid()));
    let last = stream.rest().await;
    assert_eq!(last.last().and_then(state), Some("FAILED"), "{last:#?}");
    let next = client.send(&message_in(context, "scn:text n=2 text=\"the next turn\"")).await;
    assert_eq!(state_of(&next), "COMPLETED", "{next:#}");
    assert!(explanation(&next).contains("first went on with the turn before"), "{next:#}");
    assert!(!next["artifacts"].to_string().contains("Gone on."), "a turn has only its own text: {next:#}");
    assert!(!gateway.workspace().join("broken-off").exists(), "no one allowed the command");

    let turns = model.journal().turns();
    let prompts: Vec<_> = turns.iter().map(|turn| (turn.user_messages, turn.prompt.as_str())).collect();
    let gone_on = turns.iter().filter(|turn| turn.prompt == prompt).count();
    let (first, after) = (turns.first().expect("a first request"), turns.last().expect("a last request"));
    assert_eq!(gone_on, 2, "the call of the tool, and the rest of the turn: {prompts:#?}");
    assert_eq!(after.user_messages, first.user_messages + 1, "each prompt came once: {prompts:#?}");
}

/// Plays the whole path, most of it with the official Rust client.
async fn serve(root: tempfile::TempDir, agent: RealAgent, model: &DemoModel) {
    let mut gateway = Gateway::start_in(root, agent.setup()).await;
    let client = Client::of(&gateway);
    scenario("documents", documents_name_the_agent(&gateway, &client, agent.title)).await;
    scenario("send and stream", send_and_stream(&client)).await;
    scenario("modes", modes(&gateway, &client, &agent)).await;
    let mut context = String::new();
    scenario("path before the restart", async {
        let (http, card) = discover(&gateway).await;
        let client = connect(&http, &card, BINDING, TOKEN).await;
        context = before_restart(&client, &gateway, &agent, BINDING).await;
    })
    .await;
    gateway.terminate().await;
    gateway.restart().await;
    scenario("turn after the restart", async {
        let (http, card) = discover(&gateway).await;
        after_restart(&connect(&http, &card, BINDING, TOKEN).await, &context, BINDING).await;
    })
    .await;
    let turns = model.journal().turns();
    let last = turns.iter().rfind(|turn| turn.prompt.contains("after the restart"));
    let last = last.expect("the model got the prompt after the restart");
    assert!(last.user_messages > 2, "the agent forgot the conversation: {last:#?}");
}

async fn documents_name_the_agent(gateway: &Gateway, client: &Client, title: &str) {
    let http = reqwest::Client::new();
    let url = format!("{}/.well-known/agent-card.json", gateway.url());
    let card: Value = http.get(url).send().await.expect("the card is served").json().await.expect("JSON");
    assert_eq!(card["name"], title);
    assert!(!card.to_string().contains("OpenCode\""), "{card:#}");
    let extended = client.call("GetExtendedAgentCard", json!({})).await;
    assert!(!extended.to_string().contains("opencode.sessions."), "{extended:#}");
    let refused = client.try_call("opencode.sessions.list", json!({})).await.expect_err("no such method");
    assert_eq!(refused.code, -32601, "{}", refused.body);
    let request = http.get(format!("{}/health", gateway.url())).bearer_auth(TOKEN);
    let health: Value = request.send().await.expect("health is served").json().await.expect("JSON");
    assert_eq!(health["parts"], json!({"agent": {"status": "up"}, "store": {"status": "up"}}));
}

/// The frames of a stream, one by one.
async fn send_and_stream(client: &Client) {
    let task = client.send(&message("scn:text n=3 text=\"The tide turns at six.\"")).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    assert!(task.to_string().contains("The tide turns at six."), "{task:#}");

    let prompt = "scn:text n=6 text=\"Anchors aweigh, and off we go.\"";
    let frames = client.stream(&message(prompt)).await.rest().await;
    check_log(prompt, &frames);
    assert_eq!(frames.last().and_then(state), Some("COMPLETED"), "{frames:#?}");
    let stored = raw::plain_text(&client.get(&task_id(&frames[0])).await);
    assert!(stored.to_string().contains("Anchors aweigh, and off we go."), "{stored:#}");
    assert_eq!(raw::without_answers(&raw::fold(&frames)), raw::without_answers(&stored));
    // A reader that lost its connection gets the rest.
    let task = task_id(&frames[0]);
    let rest = client.resume(&task, frames[1].id.expect("a number")).await.rest().await;
    assert_eq!(rest.len(), frames.len() - 2);
}

/// Before the path with its permissions, which show that later turns have the default mode again.
async fn modes(gateway: &Gateway, client: &Client, agent: &RealAgent) {
    // An agent names its commands some time after its first session has begun.
    let named_commands = async {
        loop {
            let extended = client.call("GetExtendedAgentCard", json!({})).await;
            if extended["skills"].to_string().contains(r#""id":"command."#) {
                return extended;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let extended = tokio::time::timeout(PATIENCE, named_commands).await.expect("the card lists commands");
    let extensions = extended["capabilities"]["extensions"].as_array().expect("a list").iter();
    let offered: Vec<&Value> = extensions.filter_map(|entry| entry["params"].get("modes")).collect();
    let [offered] = offered[..] else { panic!("one list of modes: {extended:#}") };
    let ids = offered["choices"].as_array().expect("a list").iter().map(|mode| &mode["id"]);
    assert!(ids.into_iter().any(|id| id == agent.other_mode), "{offered:#}");
    assert!(offered["default"].is_string(), "{offered:#}");

    let in_mode = |mode: &str, prompt: &str| {
        let mut message = message(prompt);
        message["metadata"] = json!({"shared": {"mode": mode}});
        message
    };
    let refused = client.try_send(&in_mode("no-such-mode", "Hello.")).await.expect_err("no such mode");
    assert_eq!(refused.code, -32602, "{}", refused.body);
    assert!(refused.body.to_string().contains("Choose one of: "), "{}", refused.body);
    let done = "scn:text n=2 text=\"Done.\"";
    let (mode, prompt, runs) = match agent.silent_mode {
        Some((mode, runs)) => (mode, format!("{} {done}", (agent.shell)("touch silent")), runs),
        None => (agent.other_mode, done.to_owned(), false),
    };
    let task = client.send(&in_mode(mode, &prompt)).await;
    assert_eq!(state_of(&task), "COMPLETED", "{mode}: {task:#}");
    assert_eq!(gateway.workspace().join("silent").exists(), runs, "{mode}: {task:#}");
}

/// The only child of a process.
#[cfg(target_os = "linux")]
fn child_of(pid: u32) -> u32 {
    let processes = std::fs::read_dir("/proc").expect("Linux has /proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |candidate: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{candidate}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == pid.to_string()))
    };
    pids.into_iter().find(is_child).expect("the gateway runs its agent")
}
