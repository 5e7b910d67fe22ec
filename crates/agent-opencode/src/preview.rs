//! Shows an event of OpenCode in the log, for an operator who investigates a problem.

use serde_json::Value;

use crate::redact::cut_at;

/// The longest preview. A longer one is cut.
const MAX_CHARS: usize = 1_000;

/// The names of fields that never hold text of a user, a model or a tool.
const HARMLESS: [&str; 12] = [
    "type",
    "id",
    "sessionID",
    "messageID",
    "partID",
    "parentID",
    "callID",
    "requestID",
    "role",
    "tool",
    "status",
    "field",
];

/// The longest value of these fields that is shown. A longer one cannot be an id or a word.
const MAX_WORD: usize = 80;

/// Logs the event at level debug. Every text that may be secret or somebody's work is replaced by its length.
pub(crate) fn log(body: &[u8]) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!(event = preview(body), "event of OpenCode");
    }
}

fn preview(body: &[u8]) -> String {
    match serde_json::from_slice(body) {
        Ok(value) => cut_at(&redacted("", value).to_string(), MAX_CHARS),
        Err(_) => format!("[{} bytes that are not JSON]", body.len()),
    }
}

fn redacted(name: &str, value: Value) -> Value {
    match value {
        Value::String(text) if HARMLESS.contains(&name) && text.len() <= MAX_WORD => text.into(),
        Value::String(text) => format!("[{} characters]", text.chars().count()).into(),
        Value::Array(items) => items.into_iter().map(|item| redacted(name, item)).collect(),
        // The keys of an object inside a tool's input may be somebody's text.
        Value::Object(fields) if matches!(name, "input" | "metadata" | "headers") => {
            format!("[{} fields]", fields.len()).into()
        }
        Value::Object(fields) => {
            fields.into_iter().map(|(key, value)| (key.clone(), redacted(&key, value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_shows_kinds_ids_and_numbers_and_no_text() {
        let event = br#"{"type":"message.part.updated","properties":{"part":{"id":"prt_1","sessionID":"ses_1",
            "type":"tool","tool":"bash","state":{"status":"running","input":{"sk-secret":"rm"},"title":"sk-secret"},
            "time":{"start":7}},"delta":"sk-secret"}}"#;
        let expected = json!({"type": "message.part.updated", "properties": {
            "part": {"id": "prt_1", "sessionID": "ses_1", "type": "tool", "tool": "bash",
                "state": {"status": "running", "input": "[1 fields]", "title": "[9 characters]"}, "time": {"start": 7}},
            "delta": "[9 characters]",
        }});
        assert_eq!(serde_json::from_str::<Value>(&preview(event)).unwrap(), expected);
        let id = "sk-secret ".repeat(20);
        assert_eq!(preview(format!(r#"{{"id":"{id}"}}"#).as_bytes()), r#"{"id":"[200 characters]"}"#);
        assert_eq!(preview(b"sk-secret"), "[9 bytes that are not JSON]");
        let long = format!(r#"{{"list":[{}1]}}"#, "1,".repeat(5_000));
        assert_eq!(preview(long.as_bytes()).chars().count(), MAX_CHARS);
    }
}
