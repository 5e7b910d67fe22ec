//! The body of a prompt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_model::{Part, PartContent};
use serde::Serialize;

use crate::Defaults;

/// For files whose sender named no type.
const ANY_FILE: &str = "application/octet-stream";

/// What `POST /session/{id}/prompt_async` takes.
#[derive(Serialize, Debug)]
struct Body<'a> {
    #[serde(rename = "messageID")]
    message: &'a str,
    parts: Vec<PromptPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
}

#[derive(Serialize, Debug)]
struct Model<'a> {
    #[serde(rename = "providerID")]
    provider: &'a str,
    #[serde(rename = "modelID")]
    model: &'a str,
}

#[derive(Serialize, Debug)]
#[serde(tag = "type", rename_all = "lowercase")]
enum PromptPart<'a> {
    Text {
        text: &'a str,
    },
    File {
        mime: &'a str,
        url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
    },
}

/// The body as JSON text.
pub(crate) fn body(prompt: &str, parts: &[Part], defaults: &Defaults) -> String {
    let body = Body {
        message: prompt,
        parts: parts.iter().map(part).collect(),
        agent: defaults.agent.as_deref(),
        model: defaults.model.as_ref().map(|model| Model { provider: &model.provider, model: &model.model }),
        variant: defaults.variant.as_deref(),
        system: defaults.system.as_deref(),
    };
    serde_json::to_string(&body).expect("texts are JSON")
}

fn part(part: &Part) -> PromptPart<'_> {
    let mime = part.media_type.as_deref().unwrap_or(ANY_FILE);
    let filename = part.filename.as_deref();
    match &part.content {
        PartContent::Text(text) => PromptPart::Text { text },
        // OpenCode has no data parts; a model reads JSON well.
        PartContent::Data(data) => PromptPart::Text { text: data.get() },
        PartContent::Raw(bytes) => {
            PromptPart::File { mime, url: format!("data:{mime};base64,{}", STANDARD.encode(bytes)), filename }
        }
        PartContent::Url(url) => PromptPart::File { mime, url: url.clone(), filename },
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::Json;
    use serde_json::{Value, json};

    use super::*;
    use crate::ModelName;

    #[test]
    fn parts_become_what_opencode_takes() {
        let file = |content| Part {
            media_type: Some("image/png".to_owned()),
            filename: Some("dot.png".to_owned()),
            ..Part::of(content)
        };
        let parts = [
            Part::text(" as it is \n"),
            Part::data(Json::parse("{\"n\":1700000000000}").unwrap()),
            file(PartContent::Raw(vec![0, 255, 7])),
            file(PartContent::Url("https://example.org/dot.png".to_owned())),
            Part::of(PartContent::Raw(vec![])),
        ];
        let made: Value = serde_json::from_str(&body("msg_1", &parts, &Defaults::default())).unwrap();
        let expected = json!({"messageID": "msg_1", "parts": [
            {"type": "text", "text": " as it is \n"},
            {"type": "text", "text": "{\"n\":1700000000000}"},
            {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AP8H", "filename": "dot.png"},
            {"type": "file", "mime": "image/png", "url": "https://example.org/dot.png", "filename": "dot.png"},
            {"type": "file", "mime": "application/octet-stream", "url": "data:application/octet-stream;base64,"},
        ]});
        assert_eq!(made, expected);
    }

    #[test]
    fn defaults_stand_in_every_prompt() {
        let defaults = Defaults {
            agent: Some("plan".to_owned()),
            model: Some(ModelName::parse("scripted/small/v2").unwrap()),
            variant: Some("high".to_owned()),
            system: Some("Be brief.".to_owned()),
        };
        let made: Value = serde_json::from_str(&body("msg_1", &[], &defaults)).unwrap();
        let expected = json!({"messageID": "msg_1", "parts": [], "agent": "plan", "variant": "high",
            "system": "Be brief.", "model": {"providerID": "scripted", "modelID": "small/v2"}});
        assert_eq!(made, expected);
    }
}
