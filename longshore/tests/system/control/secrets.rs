//! Secrets: no answer contains the keys and prompts of OpenCode, and no log contains the text of callers. The audit log
//! has exactly one entry for each call that could change something.

#[expect(clippy::unwrap_used, reason = "where the log cannot be kept there is nothing better to say")]
#[path = "../../../../crates/edge/tests/http/support/log_lines.rs"]
mod log_lines;

use std::time::Duration;

use longshore_testkit::fake_opencode::{Fault, PRIVATE_PROMPT, PROVIDER_KEY};
use longshore_testkit::gateway::until;
use longshore_testkit::raw::message;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::Value;

use self::log_lines::LogLines;
use crate::control::fixture::{Settings, agent_methods, call, is_about_session, notify};
use crate::control::populated::{KEPT, Populated, SESSION, call_and_log, valid_params, wait_until_ended};
use crate::control::switches::card;

/// No call in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Keys, headers, options and environment variables of providers, and the prompts of agents and commands.
const SECRETS: &[&str] = &[
    PROVIDER_KEY,
    PRIVATE_PROMPT,
    "apiKey",
    "SCRIPTED_KEY",
    "DISTANT_KEY",
    "127.0.0.1:4999",
    "x-key",
    "reasoningEffort",
    "@ai-sdk",
];

/// An error of OpenCode that contains the key, a file and the address of the provider.
const TALKATIVE: &str = r#"{"name": "UnknownError", "data": {"message":
    "sk-fake-0123456789abcdef was refused by http://127.0.0.1:4999/v1, see /srv/secret/auth.json"}}"#;

fn check_told(what: &str, reported: &Value) {
    let reported = reported.to_string();
    for secret in SECRETS.iter().chain(&["/srv/secret"]) {
        assert!(!reported.contains(secret), "{what} contains {secret}: {reported}");
    }
}

#[tokio::test]
async fn no_answer_contains_a_key_or_prompt_of_opencode() {
    let reads = Populated::with_places(Settings::default()).await;
    for method in agent_methods() {
        for version in ProtocolVersion::ALL {
            let what = format!("{} {version:?}", method.name);
            let own = Populated::for_change(method, Settings::default()).await;
            let populated = own.as_ref().unwrap_or(&reads);
            let fixture = &populated.fixture;
            let path = method.upstream[0].path.replace("{id}", "*").replace("{message}", "*").leak();
            let verb = method.upstream[0].verb.as_str();
            for status in [400, 500] {
                fixture.fake.fault_always(verb, path, Fault::Answer(status, TALKATIVE));
                let failed = call(&fixture.ada, version, method, &valid_params(method, SESSION)).await;
                check_told(&what, &failed.body);
                if let Some(task) = failed.body["result"]["task_id"].as_str() {
                    check_told(&what, &wait_until_ended(&fixture.ada, task).await);
                }
                fixture.fake.clear_faults();
            }
            let played = call_and_log(populated, version, method, valid_params(method, SESSION)).await;
            check_told(&what, &played.result);
            if let Some(task) = played.result["task_id"].as_str() {
                check_told(&what, &wait_until_ended(&fixture.ada, task).await);
            }
            if let Some(own) = own {
                own.fixture.stop().await;
            }
        }
    }
    for version in ProtocolVersion::ALL {
        let card = card(&reads.fixture.ada, version).await;
        assert!(card.to_string().contains("What review does."), "commands are offered: {card}");
        check_told("the extended card", &card);
    }
    for path in ["/.well-known/agent-card.json", "/metrics", "/health"] {
        check_told(path, &reads.fixture.ada.rest("GET", path, None).await.body);
    }
    reads.fixture.stop().await;
}

/// The target of a call in the audit log.
fn target(method: &Method) -> &'static str {
    match method.key {
        "create_workspace" => "wrk_new",
        "remove_workspace" => "wrk_old",
        "create_worktree" => "quay",
        "remove_worktree" | "reset_worktree" => "old",
        _ if is_about_session(method) => SESSION,
        other => panic!("{other} has no target: write one"),
    }
}

/// The audit entries since the last time. All log entries are checked for secrets.
fn audited(lines: &LogLines) -> Vec<String> {
    let written = lines.take().into_iter().filter(|entry| !entry.contains("longshore_testkit"));
    let (audit, others): (Vec<_>, Vec<_>) = written.partition(|entry| entry.contains("longshore::audit"));
    for entry in audit.iter().chain(&others) {
        for secret in SECRETS.iter().chain(&[crate::control::populated::WORDS, KEPT, "In stone.", "paint it"])
        {
            assert!(!entry.contains(secret), "the log has {secret}: {entry}");
        }
    }
    audit
}

/// The log of bodies is switched on.
#[tokio::test]
async fn the_audit_log_has_one_entry_for_each_change_and_no_payload() {
    let settings = Settings { payload_log: true, ..Settings::default() };
    let reads = Populated::with_places(settings.clone()).await;
    for method in agent_methods() {
        let own = Populated::for_change(method, settings.clone()).await;
        let (fixture, lines) = (&own.as_ref().unwrap_or(&reads).fixture, LogLines::begin());
        let params = valid_params(method, SESSION);
        let expect = async |outcome: &str, principal: &str| {
            let mut audit = Vec::new();
            // Slow changes are logged after the answer to a notification.
            until(PATIENCE, &format!("{} is noted", method.name), || {
                audit.extend(audited(&lines));
                method.effect == Effect::Read || !audit.is_empty()
            })
            .await;
            let what = format!("{} {outcome}: {audit:#?}", method.name);
            if method.effect == Effect::Read {
                assert!(audit.is_empty(), "a read writes no audit line: {what}");
                return;
            }
            let [entry] = audit.as_slice() else { panic!("expected one audit line for each call: {what}") };
            let target = target(method);
            let expected = format!(
                " method={} principal={principal} credential={principal}-credential target={target} outcome={outcome}",
                method.name
            );
            assert!(
                entry.starts_with("INFO longshore::audit ") && entry.contains(&expected),
                "{expected}: {what}"
            );
        };
        if is_about_session(method) {
            call(&fixture.bob, ProtocolVersion::V03, method, &params).await;
            expect("forbidden", "bob").await;
        }
        let path = method.upstream[0].path.replace("{id}", "*").replace("{message}", "*").leak();
        fixture.fake.fault_always(method.upstream[0].verb.as_str(), path, Fault::Answer(418, TALKATIVE));
        call(&fixture.ada, ProtocolVersion::V1, method, &params).await;
        expect("upstream_http_error status=418", "ada").await;
        notify(&fixture.ada, ProtocolVersion::V1, method, &params).await;
        expect("upstream_http_error status=418", "ada").await;
        fixture.fake.clear_faults();
        let answer = call(&fixture.ada, ProtocolVersion::V03, method, &params).await;
        answer.result();
        expect("success", "ada").await;
        if let Some(task) = answer.body["result"]["task_id"].as_str() {
            // The task of the call logs no further entry.
            let task = task.to_owned();
            wait_until_ended(&fixture.ada.speaking("1.0"), &task).await;
            let later = lines.take();
            assert!(!later.iter().any(|entry| entry.contains("longshore::audit")), "{later:#?}");
        }
        // The check works: the body of a plain message is in the log, with the length of its text.
        if method.key == "status" {
            fixture.ada.rpc("SendMessage", message("m1", "Said in the open.")).await.result();
            let written = lines.take();
            assert!(written.iter().any(|entry| entry.contains("[17 characters]")), "{written:#?}");
        }
        drop(lines);
        if let Some(own) = own {
            own.fixture.stop().await;
        }
    }
    reads.fixture.stop().await;
}
