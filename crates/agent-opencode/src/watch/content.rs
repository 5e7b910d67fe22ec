//! The content of an external prompt, as a message of its task shows it.

use longshore_model::{Json, Part};
use serde::Serialize;

use super::decide;
use crate::api;

/// Texts as they are; of other parts only a description. The content of files stays in OpenCode.
pub(super) fn shown_parts(parts: &[api::Part]) -> Vec<Part> {
    parts.iter().filter(|part| decide::is_from_user(part)).map(shown).collect()
}

fn shown(part: &api::Part) -> Part {
    #[derive(Serialize)]
    struct Shown<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(rename = "mediaType", skip_serializing_if = "Option::is_none")]
        media_type: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        agent: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<&'a str>,
    }
    match part.kind.as_str() {
        "text" => Part::text(part.text.clone().unwrap_or_default()),
        kind => Part::data(Json::of(&Shown {
            kind,
            media_type: part.mime.as_deref(),
            filename: part.filename.as_deref(),
            name: part.name.as_deref(),
            agent: part.agent.as_deref(),
            description: part.description.as_deref(),
            prompt: part.prompt.as_deref(),
            command: part.command.as_deref(),
        })),
    }
}
