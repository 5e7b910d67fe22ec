//! The content of a native prompt: how a task stores it as its message, and how it is read back from the message.

use std::path::Path;

use longshore_model::{Json, NativePrompt, NativePromptPart, Part, Result, Subtask};
use serde::Serialize;

use crate::config::IntakeRules;
use crate::intake::{self, PartNames};
use crate::port::Input;

/// The request field that holds the content.
const FIELD: &str = "request.parts";

/// A native prompt and its content, without blank parts.
#[derive(Debug)]
pub(crate) struct PromptContent {
    pub(crate) order: NativePrompt,
    pub(crate) content: Vec<Part>,
    /// For each part of the content, its index in the request.
    indices: Vec<usize>,
}

impl PromptContent {
    pub(crate) fn new(order: NativePrompt, content: Vec<Part>) -> Self {
        let NativePrompt::Prompt { parts, withheld } = order else {
            let indices = (0..content.len()).collect();
            return Self { order, content, indices };
        };
        let (mut kept_parts, mut kept_content, mut indices) =
            (Vec::with_capacity(parts.len()), Vec::new(), Vec::new());
        let mut content = content.into_iter();
        for (index, part) in parts.into_iter().enumerate() {
            if part == NativePromptPart::Content {
                // Text that consists only of spaces is not sent to the agent.
                let Some(piece) = content.next().filter(|piece| !is_blank(piece)) else { continue };
                kept_content.push(piece);
                indices.push(index);
            }
            kept_parts.push(part);
        }
        Self { order: NativePrompt::Prompt { parts: kept_parts, withheld }, content: kept_content, indices }
    }

    /// Checks the content and converts it into the form that an agent gets.
    pub(crate) async fn prepare(&self, rules: &IntakeRules, directory: &str) -> Result<Vec<Input>> {
        let names = PartNames { list: FIELD, indices: Some(&self.indices) };
        prepare(rules, directory, &self.content, names).await
    }

    /// The message of the task: the whole prompt, as far as a message can express it.
    pub(crate) fn message(&self) -> Vec<Part> {
        let mut content = self.content.iter().cloned();
        let parts: Vec<Part> = match &self.order {
            NativePrompt::Prompt { parts, .. } => parts
                .iter()
                .filter_map(|part| match part {
                    NativePromptPart::Content => content.next(),
                    NativePromptPart::Agent(name) => Some(data(&NamedPart::Agent { name })),
                    NativePromptPart::Subtask(subtask) => Some(data(&NamedPart::of(subtask))),
                })
                .collect(),
            NativePrompt::Command { name, arguments, .. } => {
                let line =
                    if arguments.is_empty() { format!("/{name}") } else { format!("/{name} {arguments}") };
                std::iter::once(Part::text(line)).chain(content).collect()
            }
        };
        // A message needs a part, even an empty one.
        if parts.is_empty() { vec![Part::text("")] } else { parts }
    }
}

/// The content of a native prompt, read back from the message of its task.
pub(crate) fn content_of_message(order: &NativePrompt, message: &[Part]) -> Vec<Part> {
    match order {
        NativePrompt::Prompt { parts, .. } => {
            let is_content = |(part, _): &(&NativePromptPart, &Part)| **part == NativePromptPart::Content;
            parts.iter().zip(message).filter(is_content).map(|(_, said)| said.clone()).collect()
        }
        NativePrompt::Command { .. } => message.iter().skip(1).cloned().collect(),
    }
}

/// Checks the content of a native prompt. Unlike the content of a message, it may be empty.
pub(crate) async fn prepare(
    rules: &IntakeRules,
    directory: &str,
    content: &[Part],
    names: PartNames<'_>,
) -> Result<Vec<Input>> {
    if content.is_empty() {
        return Ok(Vec::new());
    }
    intake::prepare_named(rules, Path::new(directory), content, names).await
}

fn is_blank(part: &Part) -> bool {
    part.as_text().is_some_and(|text| text.trim().is_empty())
}

/// The agents and subtasks that a native prompt names in addition to its content, as the caller wrote them.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum NamedPart<'a> {
    Agent {
        name: &'a str,
    },
    Subtask {
        prompt: &'a str,
        description: &'a str,
        agent: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        command: Option<&'a str>,
    },
}

impl<'a> NamedPart<'a> {
    fn of(subtask: &'a Subtask) -> Self {
        let Subtask { prompt, description, agent, command, .. } = subtask;
        Self::Subtask { prompt, description, agent, command: command.as_deref() }
    }
}

fn data(called: &NamedPart<'_>) -> Part {
    Part::data(Json::from_value(called))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn prompt(parts: Vec<NativePromptPart>) -> NativePrompt {
        NativePrompt::Prompt { parts, withheld: BTreeSet::new() }
    }

    #[test]
    fn the_content_is_read_back_from_the_message() {
        let agent = || NativePromptPart::Agent("plan".to_owned());
        let order = prompt(vec![
            NativePromptPart::Content,
            agent(),
            NativePromptPart::Content,
            NativePromptPart::Content,
        ]);
        let content = vec![Part::text("a"), Part::text(" \n"), Part::text("b")];
        let said = PromptContent::new(order, content);
        assert_eq!(said.order, prompt(vec![NativePromptPart::Content, agent(), NativePromptPart::Content]));
        assert_eq!(said.indices, [0, 3]);
        let message = said.message();
        assert_eq!(message.len(), 3);
        assert_eq!(message[1], Part::data(Json::parse(r#"{"type":"agent","name":"plan"}"#).unwrap()));
        assert_eq!(content_of_message(&said.order, &message), [Part::text("a"), Part::text("b")]);
    }

    #[test]
    fn the_message_of_a_command_is_its_line_and_its_files() {
        let order = |arguments: &str| NativePrompt::Command {
            name: "review".to_owned(),
            arguments: arguments.to_owned(),
            may_run: false,
        };
        let said = PromptContent::new(order("the last commit"), vec![Part::text("file")]);
        assert_eq!(said.message(), [Part::text("/review the last commit"), Part::text("file")]);
        assert_eq!(content_of_message(&said.order, &said.message()), [Part::text("file")]);
        assert_eq!(PromptContent::new(order(""), Vec::new()).message(), [Part::text("/review")]);
    }

    #[test]
    fn a_blank_prompt_has_an_empty_message() {
        let said = PromptContent::new(prompt(vec![NativePromptPart::Content]), vec![Part::text(" ")]);
        assert_eq!(said.order, prompt(Vec::new()));
        assert_eq!(said.message(), [Part::text("")]);
        assert!(content_of_message(&said.order, &said.message()).is_empty());
    }
}
