//! Converts the content of another client's prompt into the parts of a message.

use longshore_model::{Json, Part};
use serde_json::json;

use super::decide;
use crate::api;

/// Keeps texts, and replaces other parts by a description. The content of files is not read from OpenCode.
pub(super) fn shown_parts(parts: &[api::Part]) -> Vec<Part> {
    parts.iter().filter(|part| decide::is_from_user(part)).map(shown).collect()
}

fn shown(part: &api::Part) -> Part {
    if part.kind == "text" {
        return Part::text(part.text.clone().unwrap_or_default());
    }
    let mut shown = json!({"type": part.kind});
    let fields = [
        ("mediaType", &part.mime),
        ("filename", &part.filename),
        ("name", &part.name),
        ("agent", &part.agent),
        ("description", &part.description),
        ("prompt", &part.prompt),
        ("command", &part.command),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            shown[name] = value.as_str().into();
        }
    }
    Part::data(Json::from_value(&shown))
}
