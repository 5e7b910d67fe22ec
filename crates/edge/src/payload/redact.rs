//! Replaces every value of a JSON body that is not known to be harmless by its length.
//!
//! The lists below name the values that may be logged, and not those to hide, so a member that is in no list is never logged.

use serde_json::{Map, Value};

/// Members whose values are logged if they look like an identifier, a number, or a list of these.
const SHOWN: &str = "@type artifactId blocking byteSize code contextId domain historyLength id jsonrpc kind mediaType \
     messageId method mimeType pageSize reason referenceTaskIds returnImmediately role state status \
     taskId timestamp totalSize type";

/// Members whose objects and lists are searched for values that may be logged.
const SEARCHED: &str = "artifact artifacts configuration content details error file history message params parts request \
     result status task tasks";

/// Members whose names are logged, but of their values only the length.
const NAMED: &str = "acceptedOutputModes bytes data description extensions filename metadata name nextPageToken raw text \
     uri url";

/// The longest value that is logged. A longer one is unlikely to be an identifier.
const MAX_SHOWN_CHARS: usize = 64;

/// The redacted JSON on one line. `None`: the body is not JSON.
pub(super) fn json(body: &[u8]) -> Option<String> {
    serde_json::from_slice(body).ok().map(|body| redacted(body).to_string())
}

fn redacted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(redacted).collect(),
        Value::Object(members) => redacted_members(members).into(),
        scalar => length_of(scalar),
    }
}

fn redacted_members(members: Map<String, Value>) -> Map<String, Value> {
    let (mut written, mut others) = (Map::new(), 0);
    for (name, value) in members {
        let is = |names: &str| names.split(' ').any(|known| known == name);
        if is(SEARCHED) && (value.is_object() || value.is_array()) {
            written.insert(name, redacted(value));
        } else if is(SHOWN) && is_harmless(&value) {
            written.insert(name, value);
        } else if is(SHOWN) || is(SEARCHED) || is(NAMED) {
            written.insert(name, length_of(value));
        } else {
            // The name is not logged, because a caller may have put a secret into it.
            others += 1;
        }
    }
    if others > 0 {
        written.insert("[other members]".to_owned(), others.into());
    }
    written
}

fn is_harmless(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+".contains(&byte);
            text.len() <= MAX_SHOWN_CHARS && text.bytes().all(is_plain)
        }
        Value::Array(items) => items.iter().all(|item| !item.is_array() && is_harmless(item)),
        Value::Object(_) => false,
    }
}

fn length_of(value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value,
        Value::String(text) => format!("[{} characters]", text.chars().count()).into(),
        other => format!("[{} bytes of JSON]", other.to_string().len()).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(body: &Value, expected: &Value) {
        let written = super::json(body.to_string().as_bytes()).unwrap();
        assert_eq!(written, expected.to_string());
    }

    #[test]
    fn a_send_shows_its_ids_and_role_and_hides_its_content() {
        check(
            &json!({
                "jsonrpc": "2.0", "id": 7, "method": "SendMessage",
                "params": {
                    "message": {
                        "messageId": "m-1", "role": "ROLE_USER", "referenceTaskIds": ["t-1", "t-2"],
                        "parts": [
                            {"text": "hunter2 ü"}, {"data": {"id": "hunter2"}},
                            {"raw": "aHVudGVyMg==", "mediaType": "image/png", "filename": "hunter2.png"},
                        ],
                        "metadata": {"id": "hunter2", "hunter2": 1},
                    },
                    "configuration": {"returnImmediately": true, "historyLength": 3},
                },
            }),
            &json!({
                "jsonrpc": "2.0", "id": 7, "method": "SendMessage",
                "params": {
                    "message": {
                        "messageId": "m-1", "role": "ROLE_USER", "referenceTaskIds": ["t-1", "t-2"],
                        "parts": [
                            {"text": "[9 characters]"}, {"data": "[16 bytes of JSON]"},
                            {"raw": "[12 characters]", "mediaType": "image/png", "filename": "[11 characters]"},
                        ],
                        "metadata": "[28 bytes of JSON]",
                    },
                    "configuration": {"returnImmediately": true, "historyLength": 3},
                },
            }),
        );
    }

    #[test]
    fn a_task_shows_its_state_and_an_error_its_code_and_reason() {
        let status = json!({"state": "TASK_STATE_WORKING", "timestamp": "2026-01-02T03:04:05.678Z"});
        let tasks = json!({"result": {"tasks": [{"id": "t-1", "contextId": "c-1", "status": status}], "totalSize": 1}});
        check(&tasks, &tasks);
        check(
            &json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "hunter2", "details": [
                {"@type": "type.googleapis.com/x", "reason": "TASK_NOT_FOUND", "metadata": {"taskId": "hunter2"}}
            ]}}),
            &json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "[7 characters]", "details": [
                {"@type": "type.googleapis.com/x", "reason": "TASK_NOT_FOUND", "metadata": "[20 bytes of JSON]"}
            ]}}),
        );
    }

    #[test]
    fn a_member_that_is_not_listed_is_only_counted_whatever_it_holds() {
        for name in ["api_key", "token", "sk-abcdefghijkl", "note", "Id", "messageid"] {
            for value in
                [json!("hunter2"), json!(["hunter2"]), json!({"id": "hunter2"}), json!(42), json!(null)]
            {
                check(
                    &json!({"params": {name: value, "id": 1}}),
                    &json!({"params": {"id": 1, "[other members]": 1}}),
                );
            }
        }
    }

    #[test]
    fn a_listed_member_is_hidden_if_its_value_is_not_like_an_identifier() {
        let long = "x".repeat(MAX_SHOWN_CHARS + 1);
        for (value, expected) in [
            (json!("correct horse"), "[13 characters]"),
            (json!("a=hunter2"), "[9 characters]"),
            (json!("https://me:hunter2@a.example"), "[28 characters]"),
            (json!(long), "[65 characters]"),
            (json!({"id": "hunter2"}), "[16 bytes of JSON]"),
            (json!(["a", "hunter 2"]), "[16 bytes of JSON]"),
            (json!([["a"]]), "[7 bytes of JSON]"),
        ] {
            check(&json!({ "id": value }), &json!({ "id": expected }));
        }
        check(
            &json!(["hunter2", 1234, true, null]),
            &json!(["[7 characters]", "[4 bytes of JSON]", true, null]),
        );
    }

    #[test]
    fn a_body_that_is_not_json_is_not_written() {
        for body in ["", "{", "hunter2", "{\"a\":1} x", "\u{0}"] {
            assert_eq!(super::json(body.as_bytes()), None, "{body}");
        }
        assert_eq!(super::json(&"[".repeat(100_000).into_bytes()), None);
    }
}
