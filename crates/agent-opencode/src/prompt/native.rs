//! Native prompts: prompts with agents and subtasks besides their content, and commands.

use longshore_model::{NativePromptPart, PromptOptions};
use serde::Serialize;

use super::{Model, PromptBody, PromptPart};

/// The parts of a native prompt, with the content at its positions. Content without a position comes last: none is dropped.
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
    /// Unlike in a prompt, provider and model are one text.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PromptPart<'a>>,
}

/// The body for `POST /session/{id}/command`. A command has no texts but its arguments: the description of a file that the model
/// cannot accept is appended there.
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
                // A file name must be neither run nor read as a reference. The check of the whole arguments is made later.
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
