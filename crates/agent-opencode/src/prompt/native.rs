//! Builds the bodies of native prompts: prompts that name agents and subtasks in addition to their content, and commands.

use longshore_model::{NativePromptPart, PromptOptions};
use serde::Serialize;

use super::{Model, PromptBody, PromptPart};

/// Puts the content at its positions among the parts of a native prompt. Content without a position is put at the end, so that none
/// is lost.
pub(super) fn arrange<'a>(
    native: &'a [NativePromptPart],
    content: Vec<PromptPart<'a>>,
) -> Vec<PromptPart<'a>> {
    let mut content = content.into_iter();
    let mut parts = Vec::with_capacity(native.len());
    for part in native {
        match part {
            NativePromptPart::Content => parts.extend(content.next()),
            NativePromptPart::Agent(name) => parts.push(PromptPart::Agent { name }),
            NativePromptPart::Subtask(subtask) => parts.push(PromptPart::Subtask {
                prompt: &subtask.prompt,
                description: &subtask.description,
                agent: &subtask.agent,
                model: subtask.model.as_ref().map(Model::from),
                command: subtask.command.as_deref(),
            }),
        }
    }
    parts.extend(content);
    parts
}

#[derive(Serialize, Debug)]
struct Body<'a> {
    #[serde(rename = "messageID")]
    message: &'a str,
    command: &'a str,
    arguments: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    /// The model as one text `provider/model`. In the body of a prompt these are two fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PromptPart<'a>>,
}

/// Builds the body for `POST /session/{id}/command`. The arguments are the only text of a command, so the description of a file
/// that the model does not accept is appended to them.
pub(super) fn command(
    prompt: &str,
    name: &str,
    arguments: &str,
    content: Vec<PromptPart<'_>>,
    options: &PromptOptions,
) -> PromptBody {
    let mut arguments = arguments.to_owned();
    let mut parts = Vec::with_capacity(content.len());
    for part in content {
        match part {
            PromptPart::Text { text } => {
                if !arguments.is_empty() {
                    arguments.push('\n');
                }
                // Without these characters, OpenCode can neither run the file name in a shell nor read it as `@path`. The whole
                // arguments are checked later.
                arguments.push_str(&text.replace(['`', '@'], "_"));
            }
            file => parts.push(file),
        }
    }
    let body = Body {
        message: prompt,
        command: name,
        arguments,
        agent: options.agent.as_deref(),
        model: options.model.as_ref().map(|model| format!("{}/{}", model.provider, model.model)),
        variant: options.variant.as_deref(),
        parts,
    };
    let json = serde_json::to_string(&body).expect("strings serialize to JSON");
    PromptBody { json, arguments: Some(body.arguments) }
}
