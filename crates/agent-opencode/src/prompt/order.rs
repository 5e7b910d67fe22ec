//! Orders in OpenCode's own words: what is called in beside the content, and commands.

use longshore_model::{OrderPart, PromptOptions};
use serde::Serialize;

use super::{Model, PromptPart};

/// The parts of an order, each piece of content in its place. What the order has no place for comes last: nothing that was
/// said is dropped.
pub(super) fn arranged<'a>(order: &'a [OrderPart], content: Vec<PromptPart<'a>>) -> Vec<PromptPart<'a>> {
    let mut content = content.into_iter();
    let mut parts = Vec::with_capacity(order.len());
    for part in order {
        match part {
            OrderPart::Content => parts.extend(content.next()),
            OrderPart::Agent(name) => parts.push(PromptPart::Agent { name }),
            OrderPart::Subtask(subtask) => parts.push(PromptPart::Subtask {
                prompt: &subtask.prompt,
                description: &subtask.description,
                agent: &subtask.agent,
                model: subtask.model.as_ref().map(Model::of),
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
    /// Unlike that of a prompt it is one text.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PromptPart<'a>>,
}

/// What `POST /session/{id}/command` takes. It has no place for texts but its arguments: what the model is told of a file that it
/// cannot be given stands there.
pub(super) fn command(
    prompt: &str,
    name: &str,
    arguments: &str,
    content: Vec<PromptPart<'_>>,
    options: &PromptOptions,
) -> String {
    let mut arguments = arguments.to_owned();
    let mut parts = Vec::with_capacity(content.len());
    for part in content {
        match part {
            PromptPart::Text { text } => {
                if !arguments.is_empty() {
                    arguments.push('\n');
                }
                // A name of a file is no file to be read, and nothing to be run.
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
    serde_json::to_string(&body).expect("texts are JSON")
}
