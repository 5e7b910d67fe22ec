//! What is said with an order, how a task keeps it as its message, and how it is found again there.

use std::path::Path;

use longshore_model::{Json, Order, OrderPart, Part, Result, Subtask};
use serde::Serialize;

use crate::config::IntakeRules;
use crate::intake::{self, Naming};
use crate::port::Input;

/// Where a request has what is said.
const FIELD: &str = "request.parts";

/// An order and its content, without what is blank.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) order: Order,
    pub(crate) content: Vec<Part>,
    /// Where each piece of content stood in the request.
    places: Vec<usize>,
}

impl Said {
    pub(crate) fn new(order: Order, content: Vec<Part>) -> Self {
        let Order::Prompt { parts, withheld } = order else {
            let places = (0..content.len()).collect();
            return Self { order, content, places };
        };
        let (mut kept, mut said, mut places) = (Vec::with_capacity(parts.len()), Vec::new(), Vec::new());
        let mut content = content.into_iter();
        for (place, part) in parts.into_iter().enumerate() {
            if part == OrderPart::Content {
                // A text of nothing but spaces says nothing, and no agent is given it.
                let Some(piece) = content.next().filter(|piece| !is_blank(piece)) else { continue };
                said.push(piece);
                places.push(place);
            }
            kept.push(part);
        }
        Self { order: Order::Prompt { parts: kept, withheld }, content: said, places }
    }

    /// The content, checked, as an agent is given it.
    pub(crate) async fn prepare(&self, rules: &IntakeRules, directory: &str) -> Result<Vec<Input>> {
        let naming = Naming { list: FIELD, places: Some(&self.places) };
        prepare(rules, directory, &self.content, naming).await
    }

    /// The message of a task for it: everything that was said, as far as a message can say it.
    pub(crate) fn message(&self) -> Vec<Part> {
        let mut content = self.content.iter().cloned();
        let parts: Vec<Part> = match &self.order {
            Order::Prompt { parts, .. } => parts
                .iter()
                .filter_map(|part| match part {
                    OrderPart::Content => content.next(),
                    OrderPart::Agent(name) => Some(data(&CalledIn::Agent { name })),
                    OrderPart::Subtask(subtask) => Some(data(&CalledIn::of(subtask))),
                })
                .collect(),
            Order::Command { name, arguments } => {
                let line =
                    if arguments.is_empty() { format!("/{name}") } else { format!("/{name} {arguments}") };
                std::iter::once(Part::text(line)).chain(content).collect()
            }
        };
        // A message says something, if it is only that it says nothing.
        if parts.is_empty() { vec![Part::text("")] } else { parts }
    }
}

/// The content of an order, found again in the message that was made of it.
pub(crate) fn of_message(order: &Order, message: &[Part]) -> Vec<Part> {
    match order {
        Order::Prompt { parts, .. } => {
            let is_content = |(part, _): &(&OrderPart, &Part)| **part == OrderPart::Content;
            parts.iter().zip(message).filter(is_content).map(|(_, said)| said.clone()).collect()
        }
        Order::Command { .. } => message.iter().skip(1).cloned().collect(),
    }
}

/// The content of an order, checked. Unlike a message it may be empty.
pub(crate) async fn prepare(
    rules: &IntakeRules,
    directory: &str,
    content: &[Part],
    naming: Naming<'_>,
) -> Result<Vec<Input>> {
    if content.is_empty() {
        return Ok(Vec::new());
    }
    intake::prepare_named(rules, Path::new(directory), content, naming).await
}

fn is_blank(part: &Part) -> bool {
    part.as_text().is_some_and(|text| text.trim().is_empty())
}

/// What an order calls in beside its content, as callers wrote it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CalledIn<'a> {
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

impl<'a> CalledIn<'a> {
    fn of(subtask: &'a Subtask) -> Self {
        let Subtask { prompt, description, agent, command, .. } = subtask;
        Self::Subtask { prompt, description, agent, command: command.as_deref() }
    }
}

fn data(called: &CalledIn<'_>) -> Part {
    Part::data(Json::of(called))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn prompt(parts: Vec<OrderPart>) -> Order {
        Order::Prompt { parts, withheld: BTreeSet::new() }
    }

    #[test]
    fn what_is_said_is_found_again_in_the_message() {
        let agent = || OrderPart::Agent("plan".to_owned());
        let order = prompt(vec![OrderPart::Content, agent(), OrderPart::Content, OrderPart::Content]);
        let content = vec![Part::text("a"), Part::text(" \n"), Part::text("b")];
        let said = Said::new(order, content);
        assert_eq!(said.order, prompt(vec![OrderPart::Content, agent(), OrderPart::Content]));
        assert_eq!(said.places, [0, 3]);
        let message = said.message();
        assert_eq!(message.len(), 3);
        assert_eq!(message[1], Part::data(Json::parse(r#"{"type":"agent","name":"plan"}"#).unwrap()));
        assert_eq!(of_message(&said.order, &message), [Part::text("a"), Part::text("b")]);
    }

    #[test]
    fn a_command_is_its_line_and_its_files() {
        let order =
            |arguments: &str| Order::Command { name: "review".to_owned(), arguments: arguments.to_owned() };
        let said = Said::new(order("the last commit"), vec![Part::text("file")]);
        assert_eq!(said.message(), [Part::text("/review the last commit"), Part::text("file")]);
        assert_eq!(of_message(&said.order, &said.message()), [Part::text("file")]);
        assert_eq!(Said::new(order(""), Vec::new()).message(), [Part::text("/review")]);
    }

    #[test]
    fn an_order_that_says_nothing_has_a_message_that_says_nothing() {
        let said = Said::new(prompt(vec![OrderPart::Content]), vec![Part::text(" ")]);
        assert_eq!(said.order, prompt(Vec::new()));
        assert_eq!(said.message(), [Part::text("")]);
        assert!(of_message(&said.order, &said.message()).is_empty());
    }
}
