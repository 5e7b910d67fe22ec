//! Orders in OpenCode's own words: what they name, and those that nobody is to answer.

use longshore_engine::port::{Input, Session};
use longshore_model::{Error, Order, OrderPart, PromptOptions, Result, Subtask};
use serde_json::{Map, Value, json};

use super::{Doing, failure};
use crate::OpenCode;
use crate::catalog::Fields;

impl Fields<'static> {
    /// Of an order.
    pub(super) const OF_ORDER: Self =
        Self { model: "request.model", agent: "request.agent", variant: "request.variant" };
}

impl OpenCode {
    pub(super) async fn check(
        &self,
        session: &Session,
        order: &Order,
        options: &PromptOptions,
    ) -> Result<()> {
        let (catalog, at) = (&self.gate.catalog, session.directory.as_str());
        catalog.check_surely(at, options, &self.gate.defaults, Fields::OF_ORDER).await?;
        match order {
            Order::Command { name, .. } => catalog.check_command(at, name, "request.command").await,
            Order::Prompt { parts, .. } => {
                for (place, part) in parts.iter().enumerate() {
                    match part {
                        OrderPart::Content => {}
                        OrderPart::Agent(name) => {
                            let field = format!("request.parts[{place}].name");
                            catalog.check_agent_surely(at, name, &field).await?;
                        }
                        OrderPart::Subtask(subtask) => self.check_subtask(at, place, subtask).await?,
                    }
                }
                Ok(())
            }
        }
    }

    async fn check_subtask(&self, at: &str, place: usize, subtask: &Subtask) -> Result<()> {
        let field = |name: &str| format!("request.parts[{place}].{name}");
        let (model, agent) = (field("model"), field("agent"));
        let named = PromptOptions {
            model: subtask.model.clone(),
            agent: Some(subtask.agent.clone()),
            ..PromptOptions::default()
        };
        let fields = Fields { model: &model, agent: &agent, variant: &model };
        self.gate.catalog.check_surely(at, &named, &PromptOptions::default(), fields).await
    }

    /// OpenCode keeps what it is told here for the session's next prompts, the model too. So it is looked up first.
    pub(super) async fn noted(
        &self,
        session: &Session,
        order: &Order,
        input: &[Input],
        options: &PromptOptions,
    ) -> Result<()> {
        let Order::Prompt { parts, withheld } = order else {
            return Err(Error::internal("a command cannot be left without an answer"));
        };
        self.check(session, order, options).await?;
        let prompts = &self.starter.prompts;
        let body = prompts.body(&self.for_callers, session, "", input, options).await;
        let body = quiet(&body.map_err(failure::of_upstream)?, parts, withheld)?;
        let noted = self.for_callers.note(&session.directory, session.id.as_str(), body).await;
        noted.map_err(|cause| cause.told(&Doing::changing("say this in the session").of(&session.id)))
    }
}

/// The body of a prompt that nobody is to answer. It has no name: OpenCode makes one, and no name that a caller chose can lead into
/// another message.
fn quiet<'a>(
    prompt: &str,
    parts: &[OrderPart],
    withheld: impl IntoIterator<Item = &'a String>,
) -> Result<String> {
    let mut body: Map<String, Value> = serde_json::from_str(prompt).map_err(Error::internal)?;
    body.remove("messageID");
    let Some(Value::Array(content)) = body.remove("parts") else {
        return Err(Error::internal("a prompt without parts"));
    };
    let mut content = content.into_iter();
    let mut all = Vec::with_capacity(parts.len());
    for part in parts {
        all.push(match part {
            OrderPart::Content => {
                content.next().ok_or_else(|| Error::internal("an order with more parts than content"))?
            }
            OrderPart::Agent(name) => json!({"type": "agent", "name": name}),
            OrderPart::Subtask(subtask) => part_of(subtask),
        });
    }
    all.extend(content);
    body.insert("parts".to_owned(), all.into());
    body.insert("noReply".to_owned(), true.into());
    let tools: Map<String, Value> = withheld.into_iter().map(|name| (name.clone(), false.into())).collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    serde_json::to_string(&body).map_err(Error::internal)
}

fn part_of(subtask: &Subtask) -> Value {
    let Subtask { prompt, description, agent, model, command } = subtask;
    let mut part = json!({"type": "subtask", "prompt": prompt, "description": description, "agent": agent});
    if let Some(model) = model {
        part["model"] = json!({"providerID": model.provider, "modelID": model.model});
    }
    if let Some(command) = command {
        part["command"] = command.as_str().into();
    }
    part
}

#[cfg(test)]
mod tests {
    use longshore_model::ModelName;

    use super::*;

    #[test]
    fn a_note_has_its_parts_in_order_no_name_and_only_withholds_tools() {
        let subtask = Subtask {
            prompt: "look".to_owned(),
            description: "A look".to_owned(),
            agent: "explore".to_owned(),
            model: ModelName::parse("p/m/n"),
            command: Some("review".to_owned()),
        };
        let parts = [
            OrderPart::Content,
            OrderPart::Agent("plan".to_owned()),
            OrderPart::Content,
            OrderPart::Subtask(subtask),
        ];
        let prompt = r#"{"messageID":"","parts":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"agent":"build"}"#;
        let told = quiet(prompt, &parts, [&"bash".to_owned()]).unwrap();
        let expected = json!({
            "agent": "build", "noReply": true, "tools": {"bash": false},
            "parts": [
                {"type": "text", "text": "a"}, {"type": "agent", "name": "plan"}, {"type": "text", "text": "b"},
                {"type": "subtask", "prompt": "look", "description": "A look", "agent": "explore",
                 "model": {"providerID": "p", "modelID": "m/n"}, "command": "review"},
            ],
        });
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), expected);
        assert!(quiet(prompt, &[OrderPart::Content, OrderPart::Content, OrderPart::Content], []).is_err());
    }
}
