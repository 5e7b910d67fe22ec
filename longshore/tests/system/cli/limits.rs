//! Settings reach the component that uses them: limits, guards, metrics and logs of a running gateway.

use longshore_edge::Extension;
use longshore_testkit::fake_opencode::{FakeOpenCode, Fault, Gate, Turn};
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{self, RawClient};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli::ATTACHED;
use crate::cli::sandbox::{PATIENCE, Running, Sandbox, get, get_with_headers};

fn start(sandbox: &Sandbox, flags: &[&str]) -> Running {
    sandbox.start(&[&ATTACHED[..], flags].concat())
}

/// The warnings that the gateway printed.
fn warnings(gateway: Running) -> Vec<String> {
    let said = gateway.end(Signal::TERM).stderr;
    said.lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned).collect()
}

#[test]
fn too_many_requests_are_refused_with_a_retry_time() {
    let sandbox = Sandbox::new();
    let gateway = start(&sandbox, &["--rate-limit", "on", "--rate-requests", "2", "--rate-window", "3600"]);
    let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.token());
    for _ in 0..2 {
        assert_eq!(get(&tasks, Some(&token)).status, 200);
    }
    let refused = get(&tasks, Some(&token));
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("\"TOO_MANY_REQUESTS\""), "{}", refused.body);
    let wait: u64 = refused.header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    assert!((1..=1800).contains(&wait), "half of the window at most, not {wait} s");
}

#[test]
fn a_public_url_on_a_loopback_address_gives_a_warning() {
    let sandbox = Sandbox::new();
    let gateway = start(&sandbox, &["--public-url", "https://agent.example.com"]);
    let [warning] = &warnings(gateway)[..] else { panic!("one warning is expected") };
    assert!(warning.contains("requests and wrong credentials are not counted"), "{warning}");
}

#[test]
fn only_listed_hosts_and_origins_are_accepted() {
    let sandbox = Sandbox::new();
    let lists = ["--allowed-hosts", "Agent.example.com", "--allowed-origins", "https://App.example.com/"];
    let gateway = start(&sandbox, &lists);
    let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.token());
    let agent = ("Host", "agent.example.com");
    for (headers, status) in [
        (&[agent][..], 200),
        (&[("Host", "127.0.0.1")], 403),
        (&[agent, ("Origin", "https://app.example.com")], 200),
        (&[agent, ("Origin", "https://other.example.com")], 403),
    ] {
        assert_eq!(get_with_headers(&tasks, headers, Some(&token)).status, status, "{headers:?}");
    }
    let expected =
        format!("the allowed hosts do not have the host of the public URL {}", gateway.value("url"));
    assert_eq!(warnings(gateway), [expected]);
}

#[test]
fn metrics_are_served_unless_they_are_switched_off() {
    for (flag, status) in [("--metrics=true", 200), ("--metrics=false", 404)] {
        let sandbox = Sandbox::new();
        let gateway = start(&sandbox, &[flag]);
        let (metrics, token) = (format!("{}/metrics", gateway.value("url")), gateway.token());
        let page = get(&metrics, Some(&token));
        assert_eq!(page.status, status, "{}", page.body);
        let version = format!("longshore_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert_eq!(page.body.contains(&version), status == 200, "{}", page.body);
    }
}

#[test]
fn bodies_are_logged_only_when_switched_on() {
    let cases: [(&[&str], bool); 4] = [
        (&["--log-payloads", "--log-level", "debug"], true),
        (&["--log-payloads", "--log-level", "debug", "--log-body-limit", "8"], false),
        (&["--log-payloads", "--log-level", "info"], false),
        (&["--log-level", "debug"], false),
    ];
    for (flags, is_written) in cases {
        let sandbox = Sandbox::new();
        let gateway = start(&sandbox, flags);
        let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.token());
        assert_eq!(get(&tasks, Some(&token)).status, 200);
        let log = gateway.end(Signal::TERM).stderr;
        assert_eq!(log.contains("totalSize"), is_written, "{flags:?}: {log}");
        assert!(!log.contains(&token), "{flags:?}: {log}");
    }
}

#[test]
fn a_low_file_limit_lowers_the_connection_limit() {
    let sandbox = Sandbox::new();
    let gateway = sandbox.start_with_files(400, &ATTACHED);
    let card = format!("{}/.well-known/agent-card.json", gateway.value("url"));
    assert_eq!(get(&card, None).status, 200);
    let expected = "at most 144 connections are accepted at once, not 8192 (limits.connections): this process may open 400 \
                    files only (ulimit -n), and needs 256 for itself";
    assert_eq!(warnings(gateway), [expected]);
}

/// A gateway in front of a fake OpenCode whose turns wait at a gate.
fn start_gateway(fake: &FakeOpenCode, gate: &Gate, flags: &[&str]) -> (Sandbox, Running, RawClient) {
    fake.answer_others_with(vec![Turn::new().hold(gate).text("Done.", 1)]);
    let sandbox = Sandbox::new().env("A2A_BEARER_TOKEN", TOKEN);
    let url = fake.url();
    let serve = ["serve", "--port", "0", "--opencode-url", &url, "--workspace", fake.directory()];
    let gateway = sandbox.start(&[&serve[..], flags].concat());
    let client = RawClient::new(gateway.value("url"), TOKEN);
    (sandbox, gateway, client)
}

async fn send(client: &RawClient, id: &str) -> raw::Answer {
    let mut message = raw::message(id, "hi");
    message["configuration"] = json!({"returnImmediately": true});
    client.rest("POST", "/message:send", Some(&message)).await
}

fn task(answer: &raw::Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["task"]["id"].as_str().unwrap_or_default().to_owned()
}

/// Sends a message for this session.
async fn send_into(client: &RawClient, id: &str, session: &str) -> raw::Answer {
    let mut message = raw::message(id, "hi");
    message["metadata"] = json!({"shared": {"session": {"id": session}}});
    client.rest("POST", "/message:send", Some(&message)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_beyond_the_upstream_limit_is_refused() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let (_here, _gateway, client) = start_gateway(&fake, &gate, &["--upstream-calls", "1"]);
    let client = client.activating(&[Extension::SessionBinding.uri()]);
    fake.fault_always("GET", "/session/ses_hangs", Fault::Hang);
    // The first call occupies the only slot, and does not end.
    let refused = tokio::select! {
        refused = send_into(&client, "m1", "ses_hangs") => refused,
        refused = send_into(&client, "m2", "ses_hangs") => refused,
    };
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{refused:?}");
    let info = &refused.body["error"]["details"][0];
    assert_eq!(info["reason"], "UPSTREAM_BACKPRESSURE");
    assert_eq!(fake.prompts().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_beyond_the_unfinished_limit_is_refused() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let (_here, _gateway, client) = start_gateway(&fake, &gate, &["--max-unfinished", "1"]);
    let first = task(&send(&client, "m1").await);
    gate.reached().await;
    let refused = send(&client, "m2").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    let info = &refused.body["error"]["details"][0];
    assert_eq!((&info["metadata"]["limit"], &info["metadata"]["max"]), (&"unfinished".into(), &"1".into()));
    gate.open();
    completed(&client, &first).await;
    task(&send(&client, "m3").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_beyond_the_limit_waits_before_its_prompt() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let (_here, _gateway, client) = start_gateway(&fake, &gate, &["--max-turns", "1"]);
    let first = task(&send(&client, "m1").await);
    gate.reached().await;
    let second = task(&send(&client, "m2").await);
    let waiting = async {
        while !page(&client).await.contains("\nlongshore_turns{state=\"waiting\"} 1\n") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the second turn waits");
    assert_eq!(client.task(&second).await["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(fake.prompts().len(), 1);
    gate.open();
    completed(&client, &first).await;
    completed(&client, &second).await;
    assert_eq!(fake.prompts().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_a_limit_in_bytes_is_refused_in_both_versions() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let flags = ["--max-metadata-bytes", "1000", "--max-unfinished-bytes", "3000"];
    let (_here, _gateway, client) = start_gateway(&fake, &gate, &flags);
    let old = |id: &str, text: &str, metadata: Value| {
        let parts = json!([{"kind": "text", "text": text}]);
        json!({"message": {"kind": "message", "messageId": id, "role": "user", "parts": parts, "metadata": metadata}})
    };
    let (too_much, long) = (json!({"a": "x".repeat(1000)}), "x".repeat(3001));
    let mut new = raw::message("m1", "hi");
    new["message"]["metadata"] = too_much.clone();
    let v1 = client.rest("POST", "/message:send", Some(&new)).await;
    assert_eq!(v1.status, 400, "{v1:?}");
    let shown = v1.body.to_string();
    assert!(
        shown.contains(r#""limit":"max_metadata_bytes""#) && shown.contains("message.metadata"),
        "{shown}"
    );
    let v03 = client.speaking("0.3").rpc("message/send", old("m2", "hi", too_much)).await;
    let shown = v03.body["error"].to_string();
    assert!(shown.contains("-32602") && shown.contains(r#""limit":"max_metadata_bytes""#), "{shown}");

    let v1 = client.rest("POST", "/message:send", Some(&raw::message("m3", &long))).await;
    let info = &v1.body["error"]["details"][0]["metadata"];
    assert_eq!((v1.status, &info["limit"], &info["max"]), (429, &"unfinished_bytes".into(), &"3000".into()));
    assert!(v1.header("retry-after").is_some(), "{v1:?}");
    let v03 = client.speaking("0.3").rpc("message/send", old("m4", &long, json!({}))).await;
    let shown = v03.body["error"].to_string();
    assert!(
        shown.contains(r#""limit":"unfinished_bytes""#) && shown.contains("TOO_MANY_REQUESTS"),
        "{shown}"
    );
    assert_eq!(fake.prompts().len(), 0);
}

/// One metric each of the edge, the engine, the store and the driver.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_every_layer_are_on_one_page() {
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    let (_here, _gateway, client) = start_gateway(&fake, &gate, &[]);
    gate.open();
    completed(&client, &task(&send(&client, "m1").await)).await;
    let page = page(&client).await;
    let counted =
        |name: &str| page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    for name in [
        r#"longshore_http_requests_total{operation="SendMessage",line="1.0",binding="rest",kind="OK"}"#,
        r#"longshore_tasks_total{state="completed"}"#,
        "longshore_store_append_seconds_count",
        r#"opencode_request_seconds_count{call="prompt"}"#,
    ] {
        assert!(counted(name).is_some_and(|count| count >= 1.0), "{name} is not counted: {page}");
    }
}

async fn page(client: &RawClient) -> String {
    let page = client.rest("GET", "/metrics", None).await.body;
    page.as_str().expect("metrics are text").to_owned()
}

async fn completed(client: &RawClient, id: &str) {
    let path = format!("/tasks/{id}:subscribe");
    if let Ok(stream) = client.rest_stream("GET", &path, None, Some(0)).await {
        tokio::time::timeout(PATIENCE, stream.all()).await.expect("the task ends");
    }
    let state: Value = client.task(id).await["status"]["state"].clone();
    assert_eq!(state, "TASK_STATE_COMPLETED");
}
