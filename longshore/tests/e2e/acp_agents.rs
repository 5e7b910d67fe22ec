//! Real agents that speak ACP, offline, with a scripted model: one path for each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use longshore_demo_model::DemoModel;
use longshore_demo_model::home::demo_home;
use longshore_engine::Tasks;
use longshore_testkit::gateway::{Gateway, Setup, path_with_tools};
use longshore_testkit::raw;
use serde_json::{Value, json};

use crate::client::{Client, Stream, message, message_in, message_on};
use crate::frames::{check_log, context_id, nth_text, state, state_of, task_id};
use crate::harness::{LONGSHORE, scenario};
use crate::official_client::sends_lists_and_cancels;

/// An agent, and what differs between the agents.
struct RealAgent {
    preset: &'static str,
    title: &'static str,
    environment: BTreeMap<OsString, OsString>,
    /// The directive with which the model runs a shell command that needs a permission.
    shell: fn(&str) -> String,
    /// A mode in which the agent asks for no permission to run a command, and whether it then runs the command.
    silent_mode: Option<(&'static str, bool)>,
    /// How the task ends whose permission was rejected.
    after_reject: &'static str,
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_over_acp_is_served() {
    let (root, model) = prepare().await;
    let home = root.path().join("agent-home");
    let environment = demo_home(&home, &model.base_url(), &path_with_tools()).expect("a home can be made");
    let agent = RealAgent {
        preset: "opencode-acp",
        title: "OpenCode over ACP",
        environment,
        shell: |command| format!("scn:bash cmd=\"{command}\""),
        silent_mode: None,
        after_reject: "COMPLETED",
    };
    serve(root, agent, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qwen_code_is_served() {
    let (root, model) = prepare().await;
    let home = root.path().join("agent-home");
    let settings = json!({
        "$version": 3,
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "openai"}},
    });
    write(&home.join(".qwen/settings.json"), &settings.to_string());
    let agent = RealAgent {
        preset: "qwen",
        title: "Qwen Code",
        environment: environment(
            &home,
            &[
                ("OPENAI_BASE_URL", &model.base_url()),
                ("OPENAI_API_KEY", "none-needed"),
                ("OPENAI_MODEL", "demo"),
            ],
        ),
        shell: |command| {
            let args = json!({"command": command, "is_background": false});
            format!("scn:tool name=run_shell_command args={args}")
        },
        silent_mode: Some(("yolo", true)),
        after_reject: "COMPLETED",
    };
    serve(root, agent, &model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_agent_is_served() {
    let (root, model) = prepare().await;
    let home = root.path().join("agent-home");
    let config = home.join("claude-config");
    let agent = RealAgent {
        preset: "claude",
        title: "Claude Agent",
        environment: environment(
            &home,
            &[
                ("ANTHROPIC_BASE_URL", model.base_url().trim_end_matches("/v1")),
                ("ANTHROPIC_API_KEY", "none-needed"),
                ("CLAUDE_CONFIG_DIR", config.to_str().expect("a path of a test is UTF-8")),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_ERROR_REPORTING", "1"),
            ],
        ),
        shell: |command| format!("scn:tool name=Bash args={}", json!({ "command": command })),
        silent_mode: Some(("dontAsk", false)),
        after_reject: "COMPLETED",
    };
    serve(root, agent, &model).await;
}

/// The environment of an agent that keeps everything in a home of its own.
fn environment(home: &Path, variables: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
    std::fs::create_dir_all(home).expect("a directory can be made");
    let own = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    own.chain([("HOME".into(), home.into())]).collect()
}

async fn prepare() -> (tempfile::TempDir, DemoModel) {
    let model = DemoModel::start(SocketAddr::from(([127, 0, 0, 1], 0)), &Tasks::new()).await;
    let root = tempfile::tempdir().expect("a test can make a temporary directory");
    (root, model.expect("a free port on loopback"))
}

/// Plays the whole path.
async fn serve(root: tempfile::TempDir, agent: RealAgent, model: &DemoModel) {
    let setup = Setup::acp(LONGSHORE, agent.preset, agent.environment.clone());
    let mut gateway = Gateway::start_in(root, setup).await;
    let mut client = Client::of(&gateway);
    scenario("documents", documents_name_the_agent(&gateway, &client, agent.title)).await;
    scenario("official client", sends_lists_and_cancels(&gateway)).await;
    let mut context = String::new();
    scenario("send and stream", async { context = send_and_stream(&client).await }).await;
    scenario("modes", modes(&gateway, &client, &agent)).await;
    scenario("permissions", permissions(&gateway, &client, &agent)).await;
    scenario("cancel", cancel(&client, &context)).await;
    scenario("second turn", next_turn(&client, &context, "the second")).await;
    gateway.terminate().await;
    gateway.restart().await;
    client = Client::of(&gateway);
    scenario("turn after a restart", next_turn(&client, &context, "after the restart")).await;
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
    let request =
        http.get(format!("{}/health", gateway.url())).bearer_auth(longshore_testkit::gateway::TOKEN);
    let health: Value = request.send().await.expect("health is served").json().await.expect("JSON");
    assert_eq!(health["parts"], json!({"agent": {"status": "up"}, "store": {"status": "up"}}));
}

/// Returns the context of the streamed turn.
async fn send_and_stream(client: &Client) -> String {
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
    context_id(&frames[0])
}

/// Before the scenario of permissions, which shows that later turns have the default mode again.
async fn modes(gateway: &Gateway, client: &Client, agent: &RealAgent) {
    let extended = client.call("GetExtendedAgentCard", json!({})).await;
    let extensions = extended["capabilities"]["extensions"].as_array().expect("a list").iter();
    let offered: Vec<&Value> = extensions.filter_map(|entry| entry["params"].get("modes")).collect();
    let [offered] = offered[..] else { panic!("one list of modes: {extended:#}") };
    assert!(offered.to_string().contains(r#""id":"plan""#), "{offered:#}");
    assert!(offered["default"].is_string(), "{offered:#}");
    assert!(extended["skills"].to_string().contains(r#""id":"command."#), "{:#}", extended["skills"]);

    let in_mode = |mode: &str, prompt: &str| {
        let mut message = message(prompt);
        message["metadata"] = json!({"shared": {"mode": mode}});
        message
    };
    let refused = client.try_send(&in_mode("no-such-mode", "Hello.")).await.expect_err("no such mode");
    assert_eq!(refused.code, -32602, "{}", refused.body);
    assert!(refused.body.to_string().contains("Choose one of: "), "{}", refused.body);
    let planned = client.send(&in_mode("plan", "scn:text n=2 text=\"A plan.\"")).await;
    assert_eq!(state_of(&planned), "COMPLETED", "{planned:#}");
    if let Some((mode, runs)) = agent.silent_mode {
        let prompt = format!("{} scn:text n=2 text=\"Done.\"", (agent.shell)("touch silent"));
        let task = client.send(&in_mode(mode, &prompt)).await;
        assert_eq!(state_of(&task), "COMPLETED", "{mode}: {task:#}");
        assert_eq!(gateway.workspace().join("silent").exists(), runs, "{mode}: {task:#}");
    }
}

async fn permissions(gateway: &Gateway, client: &Client, agent: &RealAgent) {
    for (word, file, end) in [("once", "allowed", "COMPLETED"), ("reject", "rejected", agent.after_reject)] {
        let prompt = format!("{} scn:text n=2 text=\"Done.\"", (agent.shell)(&format!("touch {file}")));
        let asked = client.send(&message(&prompt)).await;
        assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
        let path = gateway.workspace().join(file);
        assert!(!path.exists(), "the agent did not wait for the answer");
        let task = asked["id"].as_str().expect("a task has an id");
        let ended = client.send(&message_on(task, &json!({"text": word}))).await;
        assert_eq!(state_of(&ended), end, "{word}: {ended:#}");
        assert_eq!(path.exists(), word == "once", "{word}: {ended:#}");
    }
}

async fn cancel(client: &Client, context: &str) {
    let mut stream: Stream = client.stream(&message_in(context, "scn:forever delay=20")).await;
    let seen = stream.until("some text", nth_text(2)).await;
    let canceled = client.cancel(&task_id(&seen[0])).await.expect("a running task can be canceled");
    assert_eq!(state_of(&canceled), "CANCELED", "{canceled:#}");
    assert_eq!(stream.rest().await.last().and_then(state), Some("CANCELED"));
}

async fn next_turn(client: &Client, context: &str, words: &str) {
    let task = client.send(&message_in(context, &format!("scn:text n=2 text=\"{words}\""))).await;
    assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
    assert_eq!(task["contextId"], context);
    assert!(task["artifacts"].to_string().contains(words), "{task:#}");
}

/// Writes a file of an agent's home.
fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory can be made");
    std::fs::write(path, text).expect("a file can be written");
}
