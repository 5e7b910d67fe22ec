//! Calls of session methods by several callers, and the expected answers.

use std::time::Duration;

use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::extension::Activated;
use longshore_wire::methods::Method;
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::control::fixture::{CAL_TOKEN, Fixture, agent_methods, call, error_reason, is_about_session};

/// No call in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Every method that is about one session.
pub(crate) fn session_methods() -> Vec<&'static Method> {
    let rows: Vec<_> = agent_methods().filter(|method| is_about_session(method)).collect();
    assert_eq!(rows.len(), 16, "a method was added or removed: check the tests that iterate over this list");
    rows
}

pub(crate) fn method_named(name: &str) -> &'static Method {
    opencode::method(name).unwrap_or_else(|| panic!("{name} is no row"))
}

/// Valid parameters for a session that has this message of a user.
pub(crate) fn session_params(method: &Method, session: &str, message: &str) -> Value {
    let mut params = match method.key {
        "get_session_message" => json!({"message_id": message}),
        "prompt_async" => json!({"request": {"parts": [{"type": "text", "text": "Go on."}]}}),
        "command" => json!({"request": {"command": "/review", "arguments": "all"}}),
        "revert" => json!({"request": {"messageID": message}}),
        "shell" => json!({"request": {"agent": "build", "command": "true"}}),
        _ => json!({}),
    };
    params["session_id"] = session.into();
    let read = method.read(ProtocolVersion::V1, &params.to_string(), Activated::ALL);
    assert!(read.is_ok(), "{} has no good parameters here: {read:?}", method.name);
    params
}

/// The client of Cal, who has every capability, as Ada does.
pub(crate) fn client_of_cal(fixture: &Fixture) -> RawClient {
    RawClient::new(fixture.url.clone(), CAL_TOKEN)
}

/// The requests that reached OpenCode since the last time, without its event stream and health checks, which the
/// gateway opens by itself.
pub(crate) fn requests_since(fixture: &Fixture, seen: &mut usize) -> Vec<String> {
    let mut asked = fixture.requests_since(seen);
    asked.retain(|entry| !matches!(entry.as_str(), "GET /event" | "GET /global/health"));
    asked
}

/// Fails unless the call was refused because the session belongs to another caller.
pub(crate) fn assert_forbidden(answer: &Answer, version: ProtocolVersion, session: &str, about: &str) {
    let error = &answer.body["error"];
    assert_eq!((answer.status, &error["code"]), (200, &json!(-32006)), "{about}: {}", answer.body);
    assert_eq!(error_reason(answer, version), "SESSION_FORBIDDEN", "{about}: {error}");
    assert_eq!(error_fact(answer, version, "sessionId"), session, "{about}: {error}");
}

/// A detail of an error, by the name that it has in 1.0.
pub(crate) fn error_fact(answer: &Answer, version: ProtocolVersion, name: &str) -> String {
    let data = &answer.body["error"]["data"];
    let found = match version {
        ProtocolVersion::V1 => {
            data.as_array().and_then(|details| details.iter().find_map(|one| one.get("metadata")))
        }
        ProtocolVersion::V03 => Some(data),
    };
    let snake: String = name
        .chars()
        .flat_map(|c| if c.is_ascii_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] })
        .collect();
    let name = if version == ProtocolVersion::V1 { name } else { &snake };
    found.and_then(|facts| facts[name].as_str()).unwrap_or_default().to_owned()
}

/// The fields that an error names.
pub(crate) fn error_fields(answer: &Answer) -> Vec<String> {
    let data = &answer.body["error"]["data"];
    let of_v1 = data.as_array().and_then(|details| details.iter().find_map(|one| one.get("fieldViolations")));
    let violations = of_v1.and_then(Value::as_array).into_iter().flatten().map(|one| &one["field"]);
    let of_v03 = data
        .get("field")
        .into_iter()
        .chain(data.get("fields").and_then(Value::as_array).into_iter().flatten());
    violations.chain(of_v03).filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(crate) fn error_code(answer: &Answer) -> i64 {
    answer.body["error"]["code"].as_i64().unwrap_or_default()
}

/// Repeats the call while the session is busy. The call must then succeed.
pub(crate) async fn call_ok(
    client: &RawClient,
    version: ProtocolVersion,
    method: &Method,
    params: &Value,
) -> Answer {
    const BUSY: i64 = -31060;
    let begun = Instant::now();
    loop {
        let answer = call(client, version, method, params).await;
        if error_code(&answer) == BUSY && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let is_good = answer.status == 200 && answer.body.get("result").is_some();
        assert!(is_good, "{} {version:?} {params}: {}", method.name, answer.body);
        return answer;
    }
}

pub(crate) fn first_message(fixture: &Fixture, session: &str) -> Value {
    fixture.fake.messages(session).into_iter().next().expect("the session has a message")
}

pub(crate) fn message_id(message: &Value) -> &str {
    message["info"]["id"].as_str().expect("a message has a name")
}
