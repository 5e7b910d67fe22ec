//! A deployment of `opencode-a2a` moves to Longshore by following `docs/migrating-from-opencode-a2a.md` alone: its environment, and
//! what a client of it calls.

use std::collections::BTreeMap;
use std::process::Command;

use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::gateway::{Gateway, Setup};
use longshore_testkit::raw::{RawClient, message};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/migrating-from-opencode-a2a.md");

/// Every variable that `opencode-a2a` documents, except its client's.
const VARIABLES: &str = "
    OPENCODE_BASE_URL OPENCODE_WORKSPACE_ROOT OPENCODE_AGENT OPENCODE_SYSTEM OPENCODE_VARIANT OPENCODE_TIMEOUT
    OPENCODE_TIMEOUT_STREAM OPENCODE_MAX_CONCURRENT_REQUESTS OPENCODE_MAX_CONCURRENT_STREAMS OPENCODE_AUTH_USERNAME
    OPENCODE_AUTH_PASSWORD A2A_PUBLIC_URL A2A_ALLOWED_ORIGINS A2A_ALLOWED_HOSTS A2A_PROJECT A2A_TITLE A2A_DESCRIPTION
    A2A_VERSION A2A_LOG_LEVEL A2A_LOG_PAYLOADS A2A_LOG_BODY_LIMIT A2A_METRICS_ENABLED A2A_HTTP_GZIP_MINIMUM_SIZE
    A2A_MAX_REQUEST_BODY_BYTES A2A_RATE_LIMIT_ENABLED A2A_RATE_LIMIT_WINDOW_SECONDS A2A_RATE_LIMIT_MAX_REQUESTS
    A2A_STREAM_MAX_BYTES A2A_STREAM_MAX_DURATION_SECONDS A2A_STREAM_IDLE_TIMEOUT_SECONDS A2A_DOCUMENTATION_URL
    A2A_ALLOW_DIRECTORY_OVERRIDE A2A_ENABLE_SESSION_SHELL A2A_ENABLE_WORKSPACE_MUTATIONS A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD
    A2A_SANDBOX_MODE A2A_SANDBOX_FILESYSTEM_SCOPE A2A_SANDBOX_WRITABLE_ROOTS A2A_NETWORK_ACCESS A2A_NETWORK_ALLOWED_DOMAINS
    A2A_APPROVAL_POLICY A2A_APPROVAL_ESCALATION_BEHAVIOR A2A_WRITE_ACCESS_SCOPE A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE A2A_HOST
    A2A_PORT A2A_STATIC_AUTH_CREDENTIALS A2A_BEARER_TOKEN A2A_PROTOCOL_VERSION A2A_SUPPORTED_PROTOCOL_VERSIONS
    A2A_PENDING_SESSION_CLAIM_TTL_SECONDS A2A_INTERRUPT_REQUEST_TTL_SECONDS A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS
    A2A_CANCEL_ABORT_TIMEOUT_SECONDS A2A_TASK_STORE_BACKEND A2A_TASK_STORE_DATABASE_URL";

#[test]
fn the_page_names_every_variable() {
    let reference = include_str!("../../../docs/configuration.md");
    for name in VARIABLES.split_whitespace() {
        let quoted = format!("`{name}`");
        assert!(PAGE.contains(&quoted), "{name} is missing in the page");
        assert!(reference.contains(&quoted), "{name} is missing in the reference");
    }
}

/// The environment after the commands of the page, up to the start of the gateway.
fn environment_of_the_page() -> BTreeMap<String, String> {
    let blocks =
        PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().expect("a fence is closed"));
    let commands: Vec<&str> = blocks.take_while(|block| *block != "longshore serve\n").collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let script = format!("{}\nenv -0", commands.join("\n"));
    let shell = Command::new("sh").args(["-ec", &script]).env_clear().env("PATH", "/usr/bin:/bin").output();
    let printed = String::from_utf8(shell.expect("a shell runs").stdout).expect("the page is UTF-8");
    let pairs = printed.split('\0').filter_map(|line| line.split_once('='));
    let pairs = pairs.filter(|(name, _)| name.starts_with("A2A_") || name.starts_with("OPENCODE_"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn old_message(id: &str, text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    json!({"message": {"kind": "message", "messageId": id, "role": "user", "parts": parts}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_the_python_gateway_moves_with_its_environment_and_its_clients() {
    let fake = FakeOpenCode::start();
    fake.answering(|_| Turn::new().text("done", 1).finish("stop"));
    // Only the addresses are those of the test.
    let mut setup = Setup::attached(env!("CARGO_BIN_EXE_longshore"), &fake.url()).env("A2A_BEARER_TOKEN", "");
    for (name, value) in environment_of_the_page() {
        if !matches!(name.as_str(), "OPENCODE_BASE_URL" | "A2A_PORT" | "A2A_PUBLIC_URL") {
            setup = setup.env(name, value);
        }
    }
    let gateway = Gateway::start(setup).await;
    let warnings: Vec<String> =
        gateway.log().lines().filter(|line| line.starts_with("warning: ")).map(str::to_owned).collect();
    assert_eq!(
        warnings,
        ["warning: A2A_PROTOCOL_VERSION is not supported by this version and has no effect"]
    );

    let new = RawClient::new(gateway.url(), "the-token-of-ada");
    // The 0.3 line, as its clients call it: without an extension header.
    let ada = new.speaking("0.3");
    let sent = ada.rpc("message/send", old_message("m1", "hello")).await;
    let task = sent.result()["id"].as_str().expect("the result is a task").to_owned();
    assert_eq!(sent.result()["status"]["state"], "completed", "{:?}", sent.result());
    let session = fake.sessions()[0].clone();
    let stream = ada.rpc_stream("message/stream", old_message("m2", "hello"), None).await;
    assert!(stream.is_ok(), "message/stream gives a stream");
    let by_session = json!({"session_id": session});
    let calls = [
        ("tasks/get", json!({"id": task})),
        ("agent/getAuthenticatedExtendedCard", json!({})),
        ("opencode.sessions.list", json!({})),
        ("opencode.sessions.status", json!({})),
        ("opencode.sessions.get", by_session.clone()),
        ("opencode.sessions.children", by_session.clone()),
        ("opencode.sessions.todo", by_session.clone()),
        ("opencode.sessions.diff", by_session.clone()),
        ("opencode.sessions.messages.list", by_session.clone()),
        (
            "opencode.sessions.prompt_async",
            json!({"session_id": session, "request": {"parts": [{"type": "text", "text": "more"}]}}),
        ),
        ("opencode.providers.list", json!({})),
        ("opencode.models.list", json!({})),
        ("opencode.projects.list", json!({})),
        ("opencode.projects.current", json!({})),
        ("opencode.workspaces.list", json!({})),
        ("opencode.worktrees.list", json!({})),
        ("opencode.permissions.list", json!({})),
        ("opencode.questions.list", json!({})),
    ];
    for (method, params) in calls {
        let answer = ada.rpc(method, params).await;
        assert!(answer.body.get("error").is_none(), "{method}: {}", answer.body);
    }
    for (verb, path) in [("GET", format!("/v1/tasks/{task}")), ("GET", "/v1/card".to_owned())] {
        assert_eq!(ada.rest(verb, &path, None).await.status, 200, "{path}");
    }
    // The 1.0 line.
    let ada = new;
    let sent = ada.rpc("SendMessage", message("m3", "hello")).await;
    assert_eq!(sent.result()["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{:?}", sent.result());
    for path in ["/tasks", "/extendedAgentCard", "/health", "/metrics", "/.well-known/agent-card.json"] {
        assert_eq!(ada.rest("GET", path, None).await.status, 200, "{path}");
    }
    // The user name and the password of the other caller, which owns nothing yet.
    let bob = reqwest::Client::builder().no_proxy().build().expect("a client without settings");
    let tasks = bob.get(format!("{}/tasks", gateway.url())).basic_auth("bob", Some("the-password-of-bob"));
    let tasks: Value = tasks.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(tasks["totalSize"], 0, "{tasks}");
}
