//! What OpenCode has to offer, kept for a while: models, agents, commands, worktrees and workspaces.
//!
//! Models and agents are those of a directory: a project can bring its own.

mod cached;
mod orders;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_engine::port::Session;
use longshore_model::{Error, ErrorKind, ModelName, PromptOptions, Result};

use self::cached::{Cached, PAUSE, patiently};
use crate::api::control::Command;
use crate::api::{self, Takes, Workspace};
use crate::client::{CallError, Client};

/// How long models and agents are taken for what they were.
const MAX_AGE: Duration = Duration::from_mins(1);

/// The same for the project's worktrees and workspaces.
const MAX_PLACES_AGE: Duration = Duration::from_secs(30);

/// At so many directories all are forgotten, and read anew when they are needed.
const MAX_DIRECTORIES: usize = 100;

/// So many names stand in a refusal.
const NAMES: usize = 5;

/// Where a caller wrote what is looked up, for the refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) model: &'a str,
    /// The same as the model where one field holds both.
    pub(crate) provider: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) variant: &'a str,
}

impl Fields<'static> {
    /// Of a message.
    pub(crate) const OF_MESSAGE: Self = Self {
        model: "metadata.shared.model",
        provider: "metadata.shared.model",
        agent: "metadata.opencode.agent",
        variant: "metadata.opencode.variant",
    };
}

/// The names of what OpenCode has.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// For those who wait to be admitted.
    client: Client,
    /// The workspace root, whose project the worktrees and workspaces are of.
    root: String,
    worktrees: Cached<Vec<String>>,
    workspaces: Cached<Vec<Workspace>>,
    shelves: Mutex<HashMap<String, Arc<Shelf>>>,
}

/// What a directory offers.
#[derive(Debug, Default)]
struct Shelf {
    models: Cached<Models>,
    agents: Cached<Vec<api::Agent>>,
    commands: Cached<Vec<Command>>,
    default_model: Cached<Option<ModelName>>,
}

/// All models.
#[derive(Debug)]
struct Models {
    providers: BTreeMap<String, BTreeMap<String, Model>>,
    /// The one that answers when nobody chose another.
    default: Option<ModelName>,
}

#[derive(Debug, Default)]
struct Model {
    takes: Takes,
    /// Empty: OpenCode says nothing about variants.
    variants: Vec<String>,
}

impl Catalog {
    pub(crate) fn new(client: &Client, root: String) -> Self {
        Self {
            client: client.for_callers(),
            root,
            worktrees: Cached::default(),
            workspaces: Cached::default(),
            shelves: Mutex::default(),
        }
    }

    /// Refuses a model, a variant or an agent that OpenCode does not have. What it does not say is not refused.
    pub(crate) async fn check(
        &self,
        directory: &str,
        wished: &PromptOptions,
        defaults: &PromptOptions,
    ) -> Result<()> {
        if let Some(agent) = &wished.agent {
            self.check_agent(directory, agent).await?;
        }
        let model = wished.model.as_ref();
        // A variant is one of the model that will answer; the gateway's own choice of it is known too.
        let for_variant = wished.variant.as_ref().and_then(|_| model.or(defaults.model.as_ref()));
        let Some(model) = model.or(for_variant) else { return Ok(()) };
        let variant = wished.variant.as_deref();
        let mut refused = Ok(());
        for max_age in [MAX_AGE, PAUSE] {
            let Some(models) = self.models(&self.client, directory, max_age).await? else { return Ok(()) };
            refused = models.check(model, wished.model.is_some(), variant, Fields::OF_MESSAGE);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// The kinds of file that the model takes that will answer a prompt with these options. Nothing is known: none.
    pub(crate) async fn takes(
        &self,
        client: &Client,
        session: &Session,
        options: &PromptOptions,
    ) -> Result<Takes> {
        let Some(models) = self.models(client, &session.directory, MAX_AGE).await? else {
            return Ok(Takes::default());
        };
        let model = self.answering(client, session, options, &models).await?;
        Ok(model.and_then(|model| Some(models.get(&model)?.takes)).unwrap_or_default())
    }

    /// The worktrees of the project, in OpenCode's words.
    pub(crate) async fn worktrees(&self, anew: bool) -> Result<Arc<Vec<String>>> {
        let ask = |client: Client| async move {
            let mut found = match client.worktrees(&self.root).await {
                // There is a repository here, so this is no way to say that it has none.
                Err(cause @ CallError::Refused { status: 500.., .. }) => return Err(cause),
                listed => unless_absent(listed)?,
            };
            found.extend(client.project(&self.root).await?.sandboxes);
            let workspaces = self.workspaces_now(client).await.unwrap_or_default();
            found.extend(workspaces.into_iter().filter_map(|workspace| workspace.directory));
            Ok(found)
        };
        let listed = self.worktrees.get_or_why(places_age(anew), &self.client, ask).await;
        listed.map_err(|cause| unlisted(cause, "look up the project's worktrees"))
    }

    /// The workspace of this id. `None`: there is none.
    pub(crate) async fn workspace(&self, id: &str) -> Result<Option<Workspace>> {
        for anew in [false, true] {
            if let Some(found) = self.workspaces(anew).await?.iter().find(|workspace| workspace.id == id) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }

    /// The workspaces of the project.
    pub(crate) async fn workspaces(&self, anew: bool) -> Result<Arc<Vec<Workspace>>> {
        let ask = |client| self.workspaces_now(client);
        let listed = self.workspaces.get_or_why(places_age(anew), &self.client, ask).await;
        listed.map_err(|cause| unlisted(cause, "look up the project's workspaces"))
    }

    async fn workspaces_now(&self, client: Client) -> Result<Vec<Workspace>, CallError> {
        unless_absent(client.workspaces(&self.root).await)
    }

    async fn check_agent(&self, directory: &str, wished: &str) -> Result<()> {
        let mut refused = Ok(());
        for max_age in [MAX_AGE, PAUSE] {
            let Some(agents) = self.agents(&self.client, directory, max_age).await? else { return Ok(()) };
            refused = has_agent(&agents, wished, Fields::OF_MESSAGE.agent);
            if refused.is_ok() {
                break;
            }
        }
        refused
    }

    /// The model that will answer, found as OpenCode finds it. `None`: OpenCode does not say.
    async fn answering(
        &self,
        client: &Client,
        session: &Session,
        options: &PromptOptions,
        models: &Models,
    ) -> Result<Option<ModelName>> {
        if let Some(model) = &options.model {
            return Ok(Some(model.clone()));
        }
        let Some(agents) = self.agents(client, &session.directory, MAX_AGE).await? else { return Ok(None) };
        let agent = match &options.agent {
            Some(name) => agents.iter().find(|agent| agent.name == *name),
            None => agents.first(),
        };
        if let Some(model) = agent.and_then(|agent| agent.model.as_ref()) {
            return Ok(Some(named(&model.provider, &model.model)));
        }
        // The session goes on with the model of its last prompt.
        let place = client.place().await.map_err(|cause| cause.into_error("see what OpenCode has"))?;
        let placed = client.placed(&place);
        let asked = patiently(placed.session(&session.directory, session.id.as_str())).await;
        drop(place);
        let Ok(asked) = asked else { return Ok(None) };
        if let Some(model) = asked.model {
            return Ok(Some(named(&model.provider, &model.model)));
        }
        let ask = |client: Client| async move {
            let config = client.config(&session.directory).await?;
            Ok(config.model.as_deref().and_then(ModelName::parse))
        };
        let default = self.shelf(&session.directory).default_model.get(MAX_AGE, client, ask).await?;
        Ok(default.and_then(|default| (*default).clone().or_else(|| models.default.clone())))
    }

    async fn models(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Option<Arc<Models>>> {
        let ask = |client: Client| async move { Ok(Models::from(client.providers(directory).await?)) };
        self.shelf(directory).models.get(max_age, client, ask).await
    }

    async fn agents(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Option<Arc<Vec<api::Agent>>>> {
        let ask = |client: Client| async move { client.agents(directory).await };
        self.shelf(directory).agents.get(max_age, client, ask).await
    }

    fn shelf(&self, directory: &str) -> Arc<Shelf> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if shelves.len() >= MAX_DIRECTORIES && !shelves.contains_key(directory) {
            shelves.clear();
        }
        Arc::clone(shelves.entry(directory.to_owned()).or_default())
    }
}

impl Models {
    fn get(&self, name: &ModelName) -> Option<&Model> {
        self.providers.get(&name.provider)?.get(&name.model)
    }

    /// `wished`: the caller named the model itself.
    fn check(&self, name: &ModelName, wished: bool, variant: Option<&str>, fields: Fields<'_>) -> Result<()> {
        let Some(models) = self.providers.get(&name.provider) else {
            let names = choices(self.providers.keys().map(String::as_str));
            let refusal = format!("OpenCode has no provider of this name{names}");
            return if wished { Err(Error::invalid(fields.provider, refusal)) } else { Ok(()) };
        };
        let Some(model) = models.get(&name.model) else {
            let names = choices(models.keys().map(String::as_str));
            let refusal = format!("OpenCode's provider '{}' has no model of this name{names}", name.provider);
            return if wished { Err(Error::invalid(fields.model, refusal)) } else { Ok(()) };
        };
        let known = &model.variants;
        match variant {
            Some(variant) if !known.is_empty() && !known.iter().any(|known| known == variant) => {
                let names = choices(known.iter().map(String::as_str));
                let refusal = format!("The model has no variant of this name{names}");
                Err(Error::invalid(fields.variant, refusal))
            }
            _ => Ok(()),
        }
    }
}

impl From<api::Providers> for Models {
    fn from(listed: api::Providers) -> Self {
        let provider = |provider: api::Provider| {
            let models = provider.models.into_iter().map(|(name, model)| {
                let variants = model.variants.unwrap_or_default().into_keys().collect();
                (name, Model { takes: model.capabilities.input, variants })
            });
            (provider.id, models.collect())
        };
        let first = listed.providers.first().map(|first| first.id.as_str());
        let default = first.and_then(|first| Some(named(first, listed.default.get(first)?)));
        Self { default, providers: listed.providers.into_iter().map(provider).collect() }
    }
}

/// Refuses an agent that is not among these.
fn has_agent(agents: &[api::Agent], wished: &str, field: &str) -> Result<()> {
    if agents.iter().any(|agent| agent.name == wished) {
        return Ok(());
    }
    let shown = |agent: &&api::Agent| !agent.hidden && agent.mode != "subagent";
    let known: Vec<&str> = agents.iter().filter(shown).map(|agent| agent.name.as_str()).collect();
    let names = choices(known.into_iter());
    Err(Error::invalid(field, format!("OpenCode has no agent of this name{names}")))
}

/// The end of a refusal: what there is instead.
fn choices<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    if count == 0 {
        return "; it has none.".to_owned();
    }
    let shown: Vec<&str> = names.take(NAMES).collect();
    let mut text = format!("; there is: {}", shown.join(", "));
    if count > shown.len() {
        let _ = write!(text, " and {} more", count - shown.len());
    }
    text.push('.');
    text
}

fn named(provider: &str, model: &str) -> ModelName {
    ModelName { provider: provider.to_owned(), model: model.to_owned() }
}

fn places_age(anew: bool) -> Duration {
    if anew { PAUSE } else { MAX_PLACES_AGE }
}

/// Why it is not known what there is. An OpenCode that fails is one that is not there: whoever asked is to come again.
fn unlisted(cause: CallError, doing: &str) -> Error {
    let fails = matches!(cause, CallError::Refused { status: 500.., .. });
    let error = cause.into_error(doing);
    if fails { error.renamed(ErrorKind::AgentUnavailable) } else { error }
}

/// An OpenCode without worktrees or workspaces says so in its own ways.
fn unless_absent<T: Default>(listed: Result<T, CallError>) -> Result<T, CallError> {
    match listed {
        Err(CallError::Refused { .. } | CallError::NoSuchPath | CallError::Garbled(_)) => Ok(T::default()),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::SessionId;
    use tokio::time::Instant;

    use super::*;
    use crate::Endpoint;

    /// The wait of one who begins a turn is no answer of OpenCode.
    #[tokio::test(start_paused = true)]
    async fn one_who_waits_for_a_place_keeps_nobody_waiting_and_speaks_for_nobody() {
        let endpoint = Endpoint {
            base_url: "http://host".parse().unwrap(),
            username: "opencode".to_owned(),
            password: None,
        };
        let client = Client::new(endpoint, Duration::from_mins(1), 1, Arc::default()).unwrap();
        let _held = client.place().await.unwrap();
        let catalog = Catalog::new(&client, "/w".to_owned());
        let session = Session { id: SessionId::parse("ses_1").unwrap(), directory: "/w".to_owned() };
        let options = PromptOptions { model: ModelName::parse("a/b"), ..PromptOptions::default() };
        let client = client.for_starts();
        let began = Instant::now();
        let (started, ()) = tokio::join!(catalog.takes(&client, &session, &options), async {
            for seconds in 1..20 {
                let refused = catalog.check("/w", &options, &PromptOptions::default()).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::UpstreamBackpressure);
                assert_eq!(began.elapsed(), Duration::from_secs(seconds));
            }
        });
        assert_eq!(started.unwrap_err().kind(), ErrorKind::UpstreamBackpressure);
        assert_eq!(began.elapsed(), Duration::from_mins(1));
    }
}
