//! The `opencode.*` methods, from the command line to OpenCode and back.

use std::time::Duration;

use longshore_edge::Extension;
use longshore_edge::opencode::methods_reference;
use longshore_testkit::fake_opencode::{FakeOpenCode, Fault, Gate, PROVIDER_KEY};
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{Answer, RawClient};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli::sandbox::{PATIENCE, Running, Sandbox};

/// A gateway in front of a fake OpenCode, and a client of its owner in each version.
fn start_gateway(fake: &FakeOpenCode, flags: &[&str]) -> (Sandbox, Running, [RawClient; 2]) {
    let sandbox = Sandbox::new().env("A2A_BEARER_TOKEN", TOKEN);
    let url = fake.url();
    let serve = ["serve", "--port", "0", "--opencode-url", &url, "--workspace", fake.directory()];
    let gateway = sandbox.start(&[&serve[..], flags].concat());
    let client = RawClient::new(gateway.value("url"), TOKEN);
    let extensions =
        [Extension::SessionManagement, Extension::ProviderDiscovery, Extension::WorkspaceControl];
    let new = client.activating(&extensions.map(Extension::uri));
    (sandbox, gateway, [new.speaking("1.0"), client.speaking("0.3")])
}

fn code(answer: &Answer) -> Value {
    answer.body["error"]["code"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_is_read_and_changed_in_both_versions() {
    let fake = FakeOpenCode::start();
    fake.add_session("ses_typed", fake.directory());
    let (_here, _gateway, clients) = start_gateway(&fake, &[]);
    for client in &clients {
        let got = client.rpc("opencode.sessions.get", json!({"session_id": "ses_typed"})).await;
        assert_eq!(got.result()["item"]["id"], "ses_typed", "{got:?}");
        assert_eq!(got.result()["item"]["contextId"], "ctx:opencode-session:ses_typed", "{got:?}");
        let providers = client.rpc("opencode.providers.list", json!({})).await;
        assert!(providers.result()["items"].is_array(), "{providers:?}");
        let forked = client.rpc("opencode.sessions.fork", json!({"session_id": "ses_typed"})).await;
        let fork = forked.result()["item"]["id"].as_str().expect("a fork has a name").to_owned();
        let got = client.rpc("opencode.sessions.get", json!({"session_id": fork})).await;
        assert_eq!(got.result()["item"]["id"], fork, "{got:?}");
        let gone = client.rpc("opencode.sessions.get", json!({"session_id": "ses_gone"})).await;
        assert_eq!(code(&gone), -32001, "{gone:?}");
    }
}

/// Ada and Cal may claim unowned sessions and share sessions, Bob may not.
const CALLERS: &str = r#"[
    {"scheme": "bearer", "token": "ada-token-0123456789abcdef", "principal": "ada", "capabilities": ["session_claim", "session_share"]},
    {"scheme": "bearer", "token": "cal-token-0123456789abcdef", "principal": "cal", "capabilities": ["session_claim", "session_share"]},
    {"scheme": "bearer", "token": "bob-token-0123456789abcdef", "principal": "bob", "capabilities": ["operator"]}
]"#;

/// A gateway with these callers, which speak 0.3, where every extension is active.
fn among_callers(
    fake: &FakeOpenCode,
    name: &'static str,
    value: &'static str,
) -> (Sandbox, Running, [RawClient; 3]) {
    let sandbox = Sandbox::new().env("A2A_STATIC_AUTH_CREDENTIALS", CALLERS);
    let sandbox = sandbox.env("LONGSHORE_SESSION_SHARE", "true").env(name, value);
    let url = fake.url();
    let gateway =
        sandbox.start(&["serve", "--port", "0", "--opencode-url", &url, "--workspace", fake.directory()]);
    let clients = ["ada", "cal", "bob"].map(|who| {
        RawClient::new(gateway.value("url"), format!("{who}-token-0123456789abcdef")).speaking("0.3")
    });
    (sandbox, gateway, clients)
}

/// The session guard, from the environment to the answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_guard_decides_who_uses_sessions() {
    for (guard, may_look, may_change) in
        [("owner", false, false), ("shared-reads", true, false), ("shared", true, true)]
    {
        let fake = FakeOpenCode::start();
        fake.add_session("ses_typed", fake.directory());
        let (_here, _gateway, [ada, _, bob]) = among_callers(&fake, "LONGSHORE_SESSION_GUARD", guard);
        let session = json!({"session_id": "ses_typed"});
        ada.rpc("opencode.sessions.unrevert", session.clone()).await.result();
        for (method, may) in [("get", may_look), ("unrevert", may_change)] {
            let answer = bob.rpc(&format!("opencode.sessions.{method}"), session.clone()).await;
            let expected = if may { Value::Null } else { json!(-32006) };
            assert_eq!(code(&answer), expected, "{guard} {method}: {answer:?}");
        }
    }
}

/// While a change claims a session, others are refused for as long as the setting says.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_claim_lasts_as_long_as_its_setting() {
    for (seconds, is_over) in [("3600", false), ("1", true)] {
        let fake = FakeOpenCode::start();
        fake.add_session("ses_typed", fake.directory());
        let (_here, _gateway, [ada, cal, _]) =
            among_callers(&fake, "A2A_PENDING_SESSION_CLAIM_TTL_SECONDS", seconds);
        let (gate, session) = (Gate::new(), json!({"session_id": "ses_typed"}));
        fake.fault_once("POST", "/share", Fault::Hold(gate.clone()));
        let held = ada.rpc("opencode.sessions.share", session.clone());
        let others = async {
            gate.reached().await;
            loop {
                let taken = cal.rpc("opencode.sessions.unshare", session.clone()).await;
                if !is_over || code(&taken).is_null() {
                    break taken;
                }
                assert_eq!(code(&taken), -32006, "{taken:?}");
                // Nothing announces the end of the lease. Each refusal is a line in the log of the gateway, which this test does not
                // read: hundreds of them would fill the pipe and stop the gateway.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let others = async {
            let taken = tokio::time::timeout(PATIENCE, others).await.expect("the lease ends");
            gate.open();
            taken
        };
        let (held, taken) = tokio::join!(held, others);
        if is_over {
            assert!(taken.result()["item"].is_object(), "{taken:?}");
            assert_eq!(code(&held), -32006, "cal has it: {held:?}");
        } else {
            assert_eq!(code(&taken), -32006, "{taken:?}");
            assert!(held.result()["item"].is_object(), "{held:?}");
        }
    }
}

/// OpenCode returns the keys of its providers to every client; the gateway removes them.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_a_provider_is_shown() {
    let fake = FakeOpenCode::start();
    let (_here, gateway, clients) = start_gateway(&fake, &["--log-payloads", "--log-level", "debug"]);
    for client in &clients {
        for method in ["opencode.providers.list", "opencode.models.list"] {
            let reported = client.rpc(method, json!({})).await;
            assert!(
                reported.result()["items"].as_array().is_some_and(|items| !items.is_empty()),
                "{reported:?}"
            );
            let reported = reported.body.to_string();
            assert!(!reported.contains(PROVIDER_KEY) && !reported.contains("apiKey"), "{reported}");
        }
    }
    let log = gateway.end(Signal::TERM).stderr;
    assert!(!log.contains(PROVIDER_KEY), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dangerous_methods_exist_only_when_switched_on() {
    let shell = json!({"session_id": "ses_typed", "request": {"agent": "build", "command": "true"}});
    for (flags, is_on) in [
        (&[][..], false),
        (&["--session-shell", "--workspace-mutations"], true),
        (&["--session-shell", "--workspace-mutations", "--sandbox-mode", "read-only"], false),
    ] {
        let fake = FakeOpenCode::start();
        fake.add_session("ses_typed", fake.directory());
        let (_here, _gateway, clients) = start_gateway(&fake, flags);
        for client in &clients {
            let ran = client.rpc("opencode.sessions.shell", shell.clone()).await;
            let removed = client
                .rpc("opencode.worktrees.remove", json!({"request": {"directory": "/no/worktree"}}))
                .await;
            if is_on {
                assert!(ran.result().get("item").is_some(), "{flags:?} {ran:?}");
                assert_eq!(code(&removed), -32602, "{flags:?} {removed:?}");
            } else {
                assert_eq!([code(&ran), code(&removed)], [-32601, -32601], "{flags:?} {ran:?}");
            }
        }
    }
}

/// At every log level, and without the text of the request.
#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_in_the_log_once() {
    for level in ["error", "warning", "debug"] {
        let fake = FakeOpenCode::start();
        fake.add_session("ses_typed", fake.directory());
        let flags = ["--session-shell", "--log-payloads", "--log-format", "json", "--log-level", level];
        let (_here, gateway, [client, _]) = start_gateway(&fake, &flags);
        let request = json!({"agent": "build", "command": "echo hush-hush"});
        let ran = client
            .rpc("opencode.sessions.shell", json!({"session_id": "ses_typed", "request": request}))
            .await;
        assert!(ran.result().get("item").is_some(), "{ran:?}");
        client.rpc("opencode.sessions.get", json!({"session_id": "ses_typed"})).await;
        client.rpc("opencode.sessions.unrevert", json!({"session_id": "ses_typed", "hush-hush": 1})).await;
        let log = gateway.end(Signal::TERM).stderr;
        let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of_audit = lines.iter().filter(|line| line["target"] == "longshore::audit");
        let found: Vec<&Value> = of_audit.map(|line| &line["fields"]).collect();
        let message = "a call that changes something";
        let expected = [
            json!({"message": message, "method": "opencode.sessions.shell", "principal": "default",
                "target": "ses_typed", "outcome": "success"}),
            json!({"message": message, "method": "opencode.sessions.unrevert", "principal": "default",
                "outcome": "invalid_params"}),
        ];
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{level}: {log}");
        assert!(!log.contains("hush-hush"), "{level}: {log}");
    }
}

#[test]
fn methods_prints_the_reference() {
    let run = Sandbox::new().run(&["methods"]);
    assert_eq!((run.code, run.stdout), (Some(0), methods_reference()));
}
