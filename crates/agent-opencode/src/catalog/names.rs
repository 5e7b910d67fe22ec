//! Checks the names of models, variants, agents and commands that callers use.

use std::sync::Arc;

use longshore_engine::port::Session;
use longshore_model::{Error, ModelName, PromptOptions, Result};

use super::{Catalog, Fields, MAX_AGE, PAUSE, PURPOSE, choices, model_name, with_timeout};
use crate::api;
use crate::api::control::Command;
use crate::client::{CallError, Client};
use crate::control::{ForPurpose as _, Purpose};
use crate::rules::PromptRules;

pub(crate) const LOOKUP: Purpose<'static> = Purpose::query(PURPOSE);

/// How a name is treated that cannot be checked because OpenCode does not respond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unverified {
    Accept,
    /// The name is refused. Used for native prompts: OpenCode accepts them with unknown names, and then fails, or leaves a session
    /// in which no prompt works any more.
    Refuse,
}

impl Unverified {
    fn handle(self, cause: CallError) -> Result<()> {
        match (self, cause) {
            (Self::Accept, cause @ CallError::NoFreeSlot { .. }) => Err(cause.into_error(PURPOSE)),
            (Self::Accept, _) => Ok(()),
            (Self::Refuse, cause) => Err(cause.into_control_error(LOOKUP)),
        }
    }
}

impl Catalog {
    /// Refuses a model, a variant or an agent that OpenCode does not have.
    pub(crate) async fn check(
        &self,
        directory: &str,
        requested: &PromptOptions,
        defaults: &PromptOptions,
        fields: Fields<'_>,
        unverified: Unverified,
    ) -> Result<()> {
        if let Some(agent) = &requested.agent {
            self.check_agent(directory, agent, fields.agent, unverified).await?;
        }
        // A variant belongs to the model that will respond, which may be the gateway's default.
        let variant = requested.variant.as_deref();
        let model = requested.model.as_ref().or(defaults.model.as_ref().filter(|_| variant.is_some()));
        let Some(model) = model else { return Ok(()) };
        let mut checked = Ok(());
        for max_age in [MAX_AGE, PAUSE] {
            let models = match self.models(&self.client, directory, max_age).await {
                Ok(models) => models,
                Err(cause) => return unverified.handle(cause),
            };
            checked = models.check(model, requested.model.is_some(), variant, fields);
            if checked.is_ok() {
                break;
            }
        }
        checked
    }

    pub(crate) async fn check_agent(
        &self,
        directory: &str,
        requested: &str,
        field: &str,
        unverified: Unverified,
    ) -> Result<()> {
        let mut names = String::new();
        for max_age in [MAX_AGE, PAUSE] {
            let agents = match self.agents(&self.client, directory, max_age).await {
                Ok(agents) => agents,
                Err(cause) => return unverified.handle(cause),
            };
            if agents.iter().any(|agent| agent.name == requested) {
                return Ok(());
            }
            let is_shown = |agent: &&api::Agent| !agent.hidden && agent.mode != "subagent";
            let shown: Vec<&str> = agents.iter().filter(is_shown).map(|agent| agent.name.as_str()).collect();
            names = choices(shown.into_iter());
        }
        Err(Error::invalid(field, format!("OpenCode has no agent of this name{names}")))
    }

    /// The agents that the operator does not let callers name.
    pub(crate) async fn barred_agents(
        &self,
        client: &Client,
        directory: &str,
        rules: &PromptRules,
    ) -> Result<Vec<String>, CallError> {
        if !rules.restricts_agents() {
            return Ok(Vec::new());
        }
        let agents = self.agents(client, directory, MAX_AGE).await?;
        let barred = agents.iter().filter(|agent| rules.check_agent(&agent.name, "").is_err());
        Ok(barred.map(|agent| agent.name.clone()).collect())
    }

    /// Refuses a command that OpenCode does not have.
    pub(crate) async fn check_command(
        &self,
        directory: &str,
        requested: &str,
        field: &str,
    ) -> Result<Command> {
        let mut names = String::new();
        for max_age in [MAX_AGE, PAUSE] {
            let commands = self.commands(&self.client, directory, max_age).await.for_purpose(LOOKUP)?;
            if let Some(command) = commands.iter().find(|command| command.name == requested) {
                return Ok(command.clone());
            }
            names = choices(commands.iter().map(|command| command.name.as_str()));
        }
        Err(Error::invalid(field, format!("OpenCode has no command of this name{names}")))
    }

    /// Reads the command again, for a turn that is about to start with it, because the command may have changed since it was
    /// cached.
    pub(crate) async fn current_command(
        client: &Client,
        directory: &str,
        name: &str,
    ) -> Result<Option<Command>> {
        let commands = with_timeout(client.commands(directory)).await;
        let commands = commands.map_err(|cause| cause.into_error(PURPOSE))?;
        Ok(commands.into_iter().find(|command| command.name == name))
    }

    /// The model that a session uses if a prompt names none: the model of its last prompt if OpenCode still has that model,
    /// otherwise the directory's default. `None`: OpenCode has no model.
    pub(crate) async fn model_of(
        &self,
        session: &Session,
        last: Option<&api::SessionModel>,
    ) -> Result<Option<ModelName>> {
        let models = self.models(&self.client, &session.directory, MAX_AGE).await.for_purpose(LOOKUP)?;
        let last = last.map(|model| model_name(&model.provider, &model.model));
        if let Some(last) = last.filter(|last| models.get(last).is_some()) {
            return Ok(Some(last));
        }
        let configured = self.configured_model(&self.client, &session.directory).await.for_purpose(LOOKUP)?;
        let configured = (*configured).clone().filter(|model| models.get(model).is_some());
        Ok(configured.or_else(|| models.default.clone()))
    }

    /// The agents and commands of the workspace root.
    pub(crate) async fn offers(&self) -> Result<(Arc<Vec<api::Agent>>, Arc<Vec<Command>>)> {
        let agents = self.agents(&self.client, &self.root, MAX_AGE).await;
        let commands = self.commands(&self.client, &self.root, MAX_AGE).await;
        Ok((agents.for_purpose(LOOKUP)?, commands.for_purpose(LOOKUP)?))
    }
}
