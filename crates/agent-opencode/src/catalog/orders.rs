//! What callers name who order OpenCode about in its own words.
//!
//! OpenCode takes such orders whatever they name, and then fails, or has a session that no prompt works in any more. So what
//! could not be looked up is refused as well.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::Session;
use longshore_model::{Error, ModelName, PromptOptions, Result};

use super::{Catalog, Fields, MAX_AGE, Models, PAUSE, choices, has_agent, named};
use crate::api;
use crate::api::control::Command;
use crate::api::template::Template;
use crate::client::{CallError, Client};
use crate::control::Doing;

/// What the gateway does here, for its refusals.
const LOOKING: Doing<'static> = Doing::looking("see what OpenCode has");

impl Catalog {
    /// Refuses a model, a variant or an agent that OpenCode does not have, or does not tell of.
    pub(crate) async fn check_surely(
        &self,
        directory: &str,
        wished: &PromptOptions,
        defaults: &PromptOptions,
        fields: Fields<'_>,
    ) -> Result<()> {
        if let Some(agent) = &wished.agent {
            self.check_agent_surely(directory, agent, fields.agent).await?;
        }
        let variant = wished.variant.as_deref();
        let model = wished.model.as_ref().or(defaults.model.as_ref().filter(|_| variant.is_some()));
        let Some(model) = model else { return Ok(()) };
        let mut refused = Ok(());
        for max_age in [MAX_AGE, PAUSE] {
            let models = self.models_or_why(&self.client, directory, max_age).await;
            let models = models.map_err(|cause| cause.told(&LOOKING))?;
            refused = models.check(model, wished.model.is_some(), variant, fields);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    pub(crate) async fn check_agent_surely(&self, directory: &str, wished: &str, field: &str) -> Result<()> {
        let mut refused = Ok(());
        for max_age in [MAX_AGE, PAUSE] {
            let agents = self.agents_or_why(&self.client, directory, max_age).await;
            let agents = agents.map_err(|cause| cause.told(&LOOKING))?;
            refused = has_agent(&agents, wished, field);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// Refuses a command that OpenCode does not have. Gives what it does with its arguments.
    pub(crate) async fn check_command(&self, directory: &str, wished: &str, field: &str) -> Result<Template> {
        let mut names = String::new();
        for max_age in [MAX_AGE, PAUSE] {
            let commands = self.commands_or_why(directory, max_age).await;
            let commands = commands.map_err(|cause| cause.told(&LOOKING))?;
            if let Some(command) = commands.iter().find(|command| command.name == wished) {
                return Ok(command.template());
            }
            names = choices(commands.iter().map(|command| command.name.as_str()));
        }
        Err(Error::invalid(field, format!("OpenCode has no command of this name{names}")))
    }

    /// What a command does with its arguments, for a turn that is about to begin with it.
    pub(crate) async fn template_of(&self, client: &Client, directory: &str, name: &str) -> Result<Template> {
        let ask = |client: Client| async move { client.commands(directory).await };
        let commands = self.shelf(directory).commands.get_or_why(MAX_AGE, client, ask).await;
        let commands = commands.map_err(|cause| cause.into_error("see what OpenCode has"))?;
        let found = commands.iter().find(|command| command.name == name);
        Ok(found.map(Command::template).unwrap_or_default())
    }

    /// The model that a session goes on with when nobody names one: that of its last prompt, if it is still there, else the
    /// directory's. `None`: OpenCode has none.
    pub(crate) async fn model_of(
        &self,
        session: &Session,
        last: Option<&api::SessionModel>,
    ) -> Result<Option<ModelName>> {
        let models = self.models_or_why(&self.client, &session.directory, MAX_AGE).await;
        let models = models.map_err(|cause| cause.told(&LOOKING))?;
        let last = last.map(|model| named(&model.provider, &model.model));
        if let Some(last) = last.filter(|last| models.get(last).is_some()) {
            return Ok(Some(last));
        }
        let ask = |client: Client| async move {
            let config = client.config(&session.directory).await?;
            Ok(config.model.as_deref().and_then(ModelName::parse))
        };
        let kept = self.shelf(&session.directory);
        let configured = kept.default_model.get_or_why(MAX_AGE, &self.client, ask).await;
        let configured = configured.map_err(|cause| cause.told(&LOOKING))?;
        let configured = (*configured).clone().filter(|model| models.get(model).is_some());
        Ok(configured.or_else(|| models.default.clone()))
    }

    /// The agents and commands of the workspace root.
    pub(crate) async fn offers(&self) -> Result<(Arc<Vec<api::Agent>>, Arc<Vec<Command>>)> {
        let agents = self.agents_or_why(&self.client, &self.root, MAX_AGE).await;
        let commands = self.commands_or_why(&self.root, MAX_AGE).await;
        let told = |cause: CallError| cause.told(&LOOKING);
        Ok((agents.map_err(told)?, commands.map_err(told)?))
    }

    /// The project's worktrees and workspaces are no longer what they were.
    pub(crate) async fn forget_places(&self) {
        self.worktrees.forget().await;
        self.workspaces.forget().await;
    }

    async fn models_or_why(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Models>, CallError> {
        let ask = |client: Client| async move { Ok(Models::from(client.providers(directory).await?)) };
        self.shelf(directory).models.get_or_why(max_age, client, ask).await
    }

    async fn agents_or_why(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Vec<api::Agent>>, CallError> {
        let ask = |client: Client| async move { client.agents(directory).await };
        self.shelf(directory).agents.get_or_why(max_age, client, ask).await
    }

    async fn commands_or_why(
        &self,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Vec<Command>>, CallError> {
        let ask = |client: Client| async move { client.commands(directory).await };
        self.shelf(directory).commands.get_or_why(max_age, &self.client, ask).await
    }
}
