//! Secrets: no answer and no log line contains the keys and prompts of OpenCode, and no log line the text of callers.

#[expect(clippy::unwrap_used, reason = "where the log cannot be kept there is nothing better to say")]
#[path = "../../../../crates/edge/tests/http/support/log_lines.rs"]
mod log_lines;

use longshore_testkit::fake_opencode::{Fault, PRIVATE_PROMPT, PROVIDER_KEY};
use longshore_testkit::raw::{RawClient, message};
use longshore_wire::surface::ProtocolVersion;
use serde_json::Value;

use self::log_lines::LogLines;
use crate::control::fixture::{Settings, agent_methods, call};
use crate::control::populated::{
    KEPT, Populated, SESSION, WORDS, call_and_log, valid_params, wait_until_ended,
};

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

/// The extended card in this version.
async fn card(client: &RawClient, version: ProtocolVersion) -> Value {
    let path = if version == ProtocolVersion::V1 {
        "/extendedAgentCard"
    } else {
        "/agent/authenticatedExtendedCard"
    };
    let answer = client.speaking(version.as_str()).rest("GET", path, None).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

fn check_told(what: &str, reported: &Value) {
    let reported = reported.to_string();
    for secret in SECRETS.iter().chain(&["/srv/secret"]) {
        assert!(!reported.contains(secret), "{what} contains {secret}: {reported}");
    }
}

#[tokio::test]
async fn no_answer_and_no_log_line_contains_a_secret() {
    let lines = LogLines::begin();
    let settings = Settings { payload_log: true, ..Settings::default() };
    let reads = Populated::with_places(settings.clone()).await;
    // Both versions report the same result, so each method is called in one of them.
    for (method, version) in agent_methods().zip(ProtocolVersion::ALL.into_iter().cycle()) {
        let what = format!("{} {version:?}", method.name);
        let own = Populated::for_change(method, settings.clone()).await;
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
    for version in ProtocolVersion::ALL {
        let card = card(&reads.fixture.ada, version).await;
        assert!(card.to_string().contains("What review does."), "commands are offered: {card}");
        check_told("the extended card", &card);
    }
    for path in ["/.well-known/agent-card.json", "/metrics", "/health"] {
        check_told(path, &reads.fixture.ada.rest("GET", path, None).await.body);
    }
    // The check works: the body of a plain message is in the log, with the length of its text.
    reads.fixture.ada.rpc("SendMessage", message("m1", "Said in the open.")).await.result();
    reads.fixture.stop().await;
    let written: Vec<String> =
        lines.take().into_iter().filter(|line| !line.contains("longshore_testkit")).collect();
    assert!(written.iter().any(|line| line.contains("[17 characters]")), "{written:#?}");
    for line in &written {
        for secret in SECRETS.iter().chain(&["/srv/secret", WORDS, KEPT, "In stone.", "paint it"]) {
            assert!(!line.contains(secret), "the log has {secret}: {line}");
        }
    }
}
