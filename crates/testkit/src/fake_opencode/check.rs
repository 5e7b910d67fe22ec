//! Checks request bodies and refuses wrong shapes with OpenCode's texts. OpenCode ignores unknown fields.

use serde_json::{Value, json};

use super::answer::{Answer, Kind, bad_request, failure};

/// `None`: the body is valid.
type Refusal = Option<Answer>;

/// The body must be an object with these texts.
pub(super) fn texts(body: &Value, required: &[&str]) -> Refusal {
    match body {
        Value::Null => Some(bad_request(Kind::Payload, "Expected object, got undefined")),
        // The body was not JSON.
        Value::String(_) => Some(failure(500)),
        body => required.iter().find_map(|name| {
            missing(body, name, &format!("[\"{name}\"]")).or_else(|| wrong_text(body, name, "string"))
        }),
    }
}

/// These fields must be texts if they are present.
pub(super) fn optional_texts(body: &Value, names: &[&str], expected: &str) -> Refusal {
    names.iter().find_map(|name| wrong_text(body, name, expected))
}

/// The id must have this prefix if it is present.
pub(super) fn id(body: &Value, name: &str, prefix: &str) -> Refusal {
    id_at(body, name, prefix, &format!("[\"{name}\"]"))
}

pub(super) fn prompt(body: &Value) -> Refusal {
    texts(body, &[])
        .or_else(|| missing(body, "parts", "[\"parts\"]"))
        .or_else(|| id(body, "messageID", "msg"))
        .or_else(|| body["tools"].as_object().into_iter().flatten().find_map(wrong_tool))
        .or_else(|| parts(body, &["text", "file", "agent", "subtask"]))
}

/// The parts must be of these kinds, with the fields that each kind needs.
pub(super) fn parts(body: &Value, kinds: &[&str]) -> Refusal {
    let parts = body["parts"].as_array().into_iter().flatten().enumerate();
    parts.into_iter().find_map(|(index, part)| {
        let at = format!("[\"parts\"][{index}]");
        let kind = part["type"].as_str().unwrap_or_default();
        let required: &[&str] = match kind {
            _ if !kinds.contains(&kind) => {
                let kinds: Vec<String> =
                    kinds.iter().map(|kind| format!("{{ readonly \"type\": \"{kind}\", ... }}")).collect();
                let message = format!("Expected {}, got {part}\n  at {at}", kinds.join(" | "));
                return Some(bad_request(Kind::Payload, &message));
            }
            "text" => &["text"],
            "file" => &["mime", "url"],
            "agent" => &["name"],
            _ => &["prompt", "description", "agent"],
        };
        let lacking = required.iter().find_map(|name| missing(part, name, &format!("{at}[\"{name}\"]")));
        lacking.or_else(|| id_at(part, "id", "prt", &format!("{at}[\"id\"]")))
    })
}

fn missing(body: &Value, name: &str, at: &str) -> Refusal {
    let message = format!("Missing key\n  at {at}");
    body.get(name).is_none().then(|| bad_request(Kind::Payload, &message))
}

fn wrong_text(body: &Value, name: &str, expected: &str) -> Refusal {
    let value = body.get(name).filter(|value| !value.is_string() && !value.is_null())?;
    let message = format!("Expected {expected}, got {value}\n  at [\"{name}\"]");
    Some(bad_request(Kind::Payload, &message))
}

fn id_at(body: &Value, name: &str, prefix: &str, at: &str) -> Refusal {
    let id = body[name].as_str().filter(|id| !id.starts_with(prefix))?;
    let message = format!("Expected a string starting with \"{prefix}\", got {}\n  at {at}", json!(id));
    Some(bad_request(Kind::Payload, &message))
}

fn wrong_tool((name, allowed): (&String, &Value)) -> Refusal {
    let message = format!("Expected boolean, got {allowed}\n  at [\"tools\"][\"{name}\"]");
    (!allowed.is_boolean()).then(|| bad_request(Kind::Payload, &message))
}
