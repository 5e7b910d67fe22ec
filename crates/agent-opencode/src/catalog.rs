//! Caches the lists that OpenCode offers: models, agents, commands, worktrees and workspaces.
//!
//! Models, agents and commands are cached for each directory, because a project can define its own.

mod cached;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_engine::port::Session;
use longshore_model::{Error, ErrorKind, ModelName, PromptOptions, Result};

use self::cached::{Cached, PAUSE, with_timeout};
pub(crate) use self::names::{LOOKUP, Unverified};
use crate::api::control::Command;
use crate::api::{self, FileKinds, Workspace};
use crate::client::{CallError, Client};

/// How long cached models, agents and commands are used.
const MAX_AGE: Duration = Duration::from_mins(1);

/// How long cached worktrees and workspaces of the project are used.
const MAX_WORKSPACES_AGE: Duration = Duration::from_secs(30);

/// The most directories with cached lists. When this number is reached, all are forgotten, and are read again when needed.
const MAX_DIRECTORIES: usize = 100;

/// How many of the available names an error text lists.
const LISTED_NAMES: usize = 5;

/// The purpose of the calls in this module. Completes the error text "could not ...".
pub(crate) const PURPOSE: &str = "look up what OpenCode offers";

/// The request fields that hold the checked names, for error texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) model: &'a str,
    /// The field that names the provider. Equal to `model` if one field holds both.
    pub(crate) provider: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) variant: &'a str,
    pub(crate) system: &'a str,
}

impl Fields<'static> {
    /// The fields of an A2A message.
    pub(crate) const OF_MESSAGE: Self = Self {
        model: "metadata.shared.model",
        provider: "metadata.shared.model",
        agent: "metadata.opencode.agent",
        variant: "metadata.opencode.variant",
        system: "metadata.opencode.system",
    };
}

#[derive(Debug)]
pub(crate) struct Catalog {
    client: Client,
    /// The workspace root. Worktrees and workspaces are read for its project.
    root: String,
    worktrees: Cached<Vec<String>>,
    workspaces: Cached<Vec<Workspace>>,
    directories: Mutex<HashMap<String, Arc<DirectoryCatalog>>>,
}

/// The lists that OpenCode offers in one directory.
#[derive(Debug, Default)]
struct DirectoryCatalog {
    models: Cached<Models>,
    agents: Cached<Vec<api::Agent>>,
    commands: Cached<Vec<Command>>,
    default_model: Cached<Option<ModelName>>,
}

#[derive(Debug)]
struct Models {
    providers: BTreeMap<String, BTreeMap<String, Model>>,
    /// The model that answers if a prompt chooses none.
    default: Option<ModelName>,
}

#[derive(Debug, Default)]
struct Model {
    file_kinds: FileKinds,
    /// The names of the model's variants. Empty: OpenCode reports none.
    variants: Vec<String>,
}

impl Catalog {
    pub(crate) fn new(client: &Client, root: String) -> Self {
        Self {
            client: client.for_callers(),
            root,
            worktrees: Cached::default(),
            workspaces: Cached::default(),
            directories: Mutex::default(),
        }
    }

    /// The kinds of file that a model accepts. The model is the one that OpenCode will use for a prompt with these options. If it
    /// is unknown, no kind is accepted.
    pub(crate) async fn accepted_files(
        &self,
        client: &Client,
        session: &Session,
        options: &PromptOptions,
    ) -> Result<FileKinds> {
        let Some(models) = unless_failed(self.models(client, &session.directory, MAX_AGE).await)? else {
            return Ok(FileKinds::default());
        };
        let model = self.responding_model(client, session, options, &models).await?;
        Ok(model.and_then(|model| Some(models.get(&model)?.file_kinds)).unwrap_or_default())
    }

    /// Makes OpenCode load a directory and its providers.
    pub(crate) async fn load(&self, directory: &str) -> Result<(), CallError> {
        self.models(&self.client, directory, MAX_AGE).await.map(drop)
    }

    /// The worktrees of the project in OpenCode's spelling. `refresh`: use a cached response only if it is at most a few seconds
    /// old.
    pub(crate) async fn worktrees(&self, refresh: bool) -> Result<Arc<Vec<String>>> {
        let ask = |client: Client| async move {
            let mut found = match client.worktrees(&self.root).await {
                // The root is in a git repository, so a 5xx status is a failure and does not mean that there are no worktrees.
                Err(cause @ CallError::Refused { status: 500.., .. }) => return Err(cause),
                listed => unless_absent(listed)?,
            };
            found.extend(client.project(&self.root).await?.sandboxes);
            let workspaces = self.read_workspaces(client).await.unwrap_or_default();
            found.extend(workspaces.into_iter().filter_map(|workspace| workspace.directory));
            Ok(found)
        };
        let listed = self.worktrees.get(workspaces_age(refresh), &self.client, ask).await;
        listed.map_err(|cause| list_error(cause, "look up the project's worktrees"))
    }

    pub(crate) async fn workspace(&self, id: &str) -> Result<Option<Workspace>> {
        for refresh in [false, true] {
            if let Some(found) = self.workspaces(refresh).await?.iter().find(|workspace| workspace.id == id) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }

    /// The workspaces of the project. `refresh`: use a cached response only if it is at most a few seconds old.
    pub(crate) async fn workspaces(&self, refresh: bool) -> Result<Arc<Vec<Workspace>>> {
        let ask = |client| self.read_workspaces(client);
        let listed = self.workspaces.get(workspaces_age(refresh), &self.client, ask).await;
        listed.map_err(|cause| list_error(cause, "look up the project's workspaces"))
    }

    async fn read_workspaces(&self, client: Client) -> Result<Vec<Workspace>, CallError> {
        unless_absent(client.workspaces(&self.root).await)
    }

    /// Discards the cached worktrees and workspaces. Called after they were changed.
    pub(crate) async fn forget_workspaces(&self) {
        self.worktrees.forget().await;
        self.workspaces.forget().await;
    }

    /// The model that will answer, chosen as OpenCode chooses it. `None`: OpenCode does not report it.
    async fn responding_model(
        &self,
        client: &Client,
        session: &Session,
        options: &PromptOptions,
        models: &Models,
    ) -> Result<Option<ModelName>> {
        if let Some(model) = &options.model {
            return Ok(Some(model.clone()));
        }
        let Some(agents) = unless_failed(self.agents(client, &session.directory, MAX_AGE).await)? else {
            return Ok(None);
        };
        let agent = match &options.agent {
            Some(name) => agents.iter().find(|agent| agent.name == *name),
            None => agents.first(),
        };
        if let Some(model) = agent.and_then(|agent| agent.model.as_ref()) {
            return Ok(Some(model_name(&model.provider, &model.model)));
        }
        // The session keeps the model of its last prompt.
        let slot = client.slot().await.map_err(|cause| cause.into_error(PURPOSE))?;
        let with_slot = client.with_slot(&slot);
        let asked = with_timeout(with_slot.session(&session.directory, session.id.as_str())).await;
        drop(slot);
        let Ok(asked) = asked else { return Ok(None) };
        if let Some(model) = asked.model {
            return Ok(Some(model_name(&model.provider, &model.model)));
        }
        let configured = unless_failed(self.configured_model(client, &session.directory).await)?;
        Ok(configured.and_then(|configured| (*configured).clone().or_else(|| models.default.clone())))
    }

    /// The default model in the directory's configuration.
    async fn configured_model(
        &self,
        client: &Client,
        directory: &str,
    ) -> Result<Arc<Option<ModelName>>, CallError> {
        let ask = |client: Client| async move {
            let config = client.config(directory).await?;
            Ok(config.model.as_deref().and_then(ModelName::parse))
        };
        self.directory(directory).default_model.get(MAX_AGE, client, ask).await
    }

    async fn models(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Models>, CallError> {
        let ask = |client: Client| async move { Ok(Models::from(client.providers(directory).await?)) };
        self.directory(directory).models.get(max_age, client, ask).await
    }

    async fn agents(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Vec<api::Agent>>, CallError> {
        let ask = |client: Client| async move { client.agents(directory).await };
        self.directory(directory).agents.get(max_age, client, ask).await
    }

    async fn commands(
        &self,
        client: &Client,
        directory: &str,
        max_age: Duration,
    ) -> Result<Arc<Vec<Command>>, CallError> {
        let ask = |client: Client| async move { client.commands(directory).await };
        self.directory(directory).commands.get(max_age, client, ask).await
    }

    fn directory(&self, directory: &str) -> Arc<DirectoryCatalog> {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if directories.len() >= MAX_DIRECTORIES && !directories.contains_key(directory) {
            directories.clear();
        }
        Arc::clone(directories.entry(directory.to_owned()).or_default())
    }
}

impl Models {
    fn get(&self, name: &ModelName) -> Option<&Model> {
        self.providers.get(&name.provider)?.get(&name.model)
    }

    /// Refuses a model or variant that OpenCode does not have. `requested`: whether the caller named the model. A model that the
    /// caller did not name is never refused.
    fn check(
        &self,
        name: &ModelName,
        requested: bool,
        variant: Option<&str>,
        fields: Fields<'_>,
    ) -> Result<()> {
        let Some(models) = self.providers.get(&name.provider) else {
            let names = choices(self.providers.keys().map(String::as_str));
            let refusal = format!("OpenCode has no provider of this name{names}");
            return if requested { Err(Error::invalid(fields.provider, refusal)) } else { Ok(()) };
        };
        let Some(model) = models.get(&name.model) else {
            let names = choices(models.keys().map(String::as_str));
            let refusal = format!("OpenCode's provider '{}' has no model of this name{names}", name.provider);
            return if requested { Err(Error::invalid(fields.model, refusal)) } else { Ok(()) };
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
                (name, Model { file_kinds: model.capabilities.input, variants })
            });
            (provider.id, models.collect())
        };
        let first = listed.providers.first().map(|first| first.id.as_str());
        let default = first.and_then(|first| Some(model_name(first, listed.default.get(first)?)));
        Self { default, providers: listed.providers.into_iter().map(provider).collect() }
    }
}

/// The end of an error text: the available names.
fn choices<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    if count == 0 {
        return "; it has none.".to_owned();
    }
    let shown: Vec<&str> = names.take(LISTED_NAMES).collect();
    let mut text = format!("; there is: {}", shown.join(", "));
    if count > shown.len() {
        let _ = write!(text, " and {} more", count - shown.len());
    }
    text.push('.');
    text
}

fn model_name(provider: &str, model: &str) -> ModelName {
    ModelName { provider: provider.to_owned(), model: model.to_owned() }
}

fn workspaces_age(refresh: bool) -> Duration {
    if refresh { PAUSE } else { MAX_WORKSPACES_AGE }
}

/// Returns `None` if OpenCode did not answer the call; the caller of this function then skips its check. If the gateway had no free
/// slot for the call, returns the error.
fn unless_failed<T>(found: Result<Arc<T>, CallError>) -> Result<Option<Arc<T>>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(cause @ CallError::NoFreeSlot { .. }) => Err(cause.into_error(PURPOSE)),
        Err(_) => Ok(None),
    }
}

/// The error when a list cannot be read. An OpenCode that fails counts as unavailable, so that callers retry later.
fn list_error(cause: CallError, doing: &str) -> Error {
    let fails = matches!(cause, CallError::Refused { status: 500.., .. });
    let error = cause.into_error(doing);
    if fails { error.with_kind(ErrorKind::AgentUnavailable) } else { error }
}

/// Turns the errors of an OpenCode that has no worktrees or workspaces into an empty list.
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

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_for_a_slot_neither_blocks_other_callers_nor_counts_as_a_failure() {
        let endpoint = Endpoint::without_password("http://host");
        let client = Client::new(endpoint, Duration::from_mins(1), 1, Arc::default()).unwrap();
        let _held = client.slot().await.unwrap();
        let catalog = Catalog::new(&client, "/w".to_owned());
        let session = Session { id: SessionId::parse("ses_1").unwrap(), directory: "/w".to_owned() };
        let options = PromptOptions { model: ModelName::parse("a/b"), ..PromptOptions::default() };
        let client = client.for_starts();
        let began = Instant::now();
        let (started, ()) = tokio::join!(catalog.accepted_files(&client, &session, &options), async {
            for seconds in 1..20 {
                let none = PromptOptions::default();
                let checked =
                    catalog.check("/w", &options, &none, Fields::OF_MESSAGE, Unverified::Accept).await;
                let refused = checked.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::UpstreamBackpressure);
                assert_eq!(began.elapsed(), Duration::from_secs(seconds));
            }
        });
        assert_eq!(started.unwrap_err().kind(), ErrorKind::UpstreamBackpressure);
        assert_eq!(began.elapsed(), Duration::from_mins(1));
    }
}
