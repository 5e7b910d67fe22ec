//! Orders in OpenCode's own words: what they name, and those that nobody is to answer.

use longshore_engine::of_upstream;
use longshore_engine::port::{Agent as _, Input, Session};
use longshore_model::{Error, Order, OrderPart, PromptOptions, Result, Subtask};

use super::Doing;
use super::references::{self, Bounds};
use crate::OpenCode;
use crate::api::template::Template;
use crate::catalog::Fields;
use crate::prompt::Saying;

impl Fields<'static> {
    /// Of an order.
    pub(super) const OF_ORDER: Self = Self {
        model: "request.model",
        provider: "request.model",
        agent: "request.agent",
        variant: "request.variant",
    };
}

impl OpenCode {
    pub(super) async fn check(
        &self,
        session: &Session,
        order: &Order,
        options: &PromptOptions,
        may_run: bool,
    ) -> Result<()> {
        let (catalog, at) = (&self.gate.catalog, session.directory.as_str());
        let bounds = Bounds { root: &self.gate.root, directory: at };
        catalog.check_surely(at, options, &self.gate.defaults, Fields::OF_ORDER).await?;
        match order {
            Order::Command { name, arguments } => {
                let template = catalog.check_command(at, name, "request.command").await?;
                if !may_run {
                    references::check_unrun(template, arguments)?;
                }
                bounds.check_order(order, template).await
            }
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
                bounds.check_order(order, Template::default()).await
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
        let fields = Fields { model: &model, provider: &model, agent: &agent, variant: &model };
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
        if matches!(order, Order::Command { .. }) {
            return Err(Error::internal("a command cannot be left without an answer"));
        }
        self.check(session, order, options, false).await?;
        let prompt = self.new_prompt();
        let saying = Saying { prompt: prompt.as_str(), input, options, order: Some(order), is_note: true };
        let body = self.starter.prompts.body(&self.for_callers, session, saying).await;
        let body = body.map_err(of_upstream)?;
        let noted = self.for_callers.note(&session.directory, session.id.as_str(), body).await;
        noted.map_err(|cause| cause.told(&Doing::changing("say this in the session").of(&session.id)))
    }
}
