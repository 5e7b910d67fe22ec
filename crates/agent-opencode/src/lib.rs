//! Drives OpenCode over its HTTP API: implements [`longshore_engine::port::Agent`].
//!
//! A prompt goes down through [`OpenCode`] and `turn::start`. Events come up from the one `reader` of the session's
//! directory to the turn's driver, through the pure `translate`, to the engine. Where the stream has a gap,
//! `reconcile` asks OpenCode for what is missing.

mod api;
mod ask;
mod client;
mod id;
pub mod managed;
mod outcome;
mod prompt;
mod reader;
mod reconcile;
mod redact;
mod sse;
mod translate;
mod turn;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{Agent, BoxFuture, Clock, NewSession, Session, Turn, TurnRequest};
use longshore_model::{Answer, Ask, Error, ErrorKind, PromptId, Result, SessionId};
use secrecy::SecretString;
use tokio::time::{Instant, sleep};
use url::Url;

use crate::client::{CallError, Client};
use crate::id::{PromptIds, ServerClock};
use crate::reader::Readers;
use crate::turn::Starter;

/// The pause after a session could not be opened because OpenCode just went away.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Where OpenCode is and how to use it.
#[derive(Clone, Debug)]
pub struct OpenCodeConfig {
    pub endpoint: Endpoint,
    /// The workspace root: where sessions work that ask for no directory of their own.
    pub directory: PathBuf,
    /// How long one call may take, and how long a turn waits for a busy session.
    pub control_timeout: Duration,
    pub defaults: Defaults,
}

/// The address of an OpenCode server and the credentials for it.
#[derive(Clone)]
pub struct Endpoint {
    pub base_url: Url,
    /// `opencode`, unless the server was told otherwise.
    pub username: String,
    /// `None`: the server asks for none.
    pub password: Option<SecretString>,
}

/// What every prompt asks for. `None`: OpenCode's own choice.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    pub agent: Option<String>,
    pub system: Option<String>,
    pub variant: Option<String>,
    pub model: Option<ModelName>,
}

/// A model, written `provider/model`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelName {
    pub provider: String,
    pub model: String,
}

impl ModelName {
    /// The model's own name may hold slashes. `None` when either half is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.split_once('/')?;
        let whole = !provider.is_empty() && !model.is_empty();
        whole.then(|| Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

/// One OpenCode server.
#[derive(Debug)]
pub struct OpenCode {
    client: Client,
    directory: String,
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    prompt_ids: PromptIds,
    readers: Arc<Readers>,
    starter: Starter,
}

impl OpenCode {
    pub fn new(config: OpenCodeConfig, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self> {
        let directory = config.directory.to_str().ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                "The workspace's path is no UTF-8 text; choose another workspace.",
            )
        })?;
        let client = Client::new(config.endpoint, config.control_timeout)?;
        let server_clock = Arc::new(ServerClock::default());
        let readers =
            Readers::new(client.clone(), Arc::clone(&clock), Arc::clone(&server_clock), tasks.clone());
        Ok(Self {
            directory: directory.to_owned(),
            clock,
            server_clock,
            prompt_ids: PromptIds::default(),
            readers: Arc::clone(&readers),
            starter: Starter {
                client: client.clone(),
                readers,
                tasks,
                defaults: config.defaults,
                timeout: config.control_timeout,
            },
            client,
        })
    }
}

impl OpenCode {
    /// Waits for an OpenCode that is being started.
    async fn create_session(&self, directory: &str) -> Result<api::Session> {
        let deadline = Instant::now() + turn::PATIENCE.min(self.starter.timeout);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.readers.attached(directory, left).await?;
            match self.client.create_session(directory).await {
                // It went away, and its event stream did not tell us yet. It did not get the request.
                Err(CallError::Unreachable(_)) if Instant::now() + LOOK_AGAIN < deadline => {
                    sleep(LOOK_AGAIN).await;
                }
                made => return made.map_err(|cause| cause.into_error("open a session")),
            }
        }
    }
}

impl Agent for OpenCode {
    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(async move {
            let wanted = request.directory.as_deref().unwrap_or(&self.directory);
            if id::is_misread(wanted) {
                return Err(Error::invalid(
                    "directory",
                    "OpenCode cannot work in a directory whose path has a percent sign and two hexadecimal digits; \
                     choose another.",
                ));
            }
            let made = self.create_session(wanted).await?;
            let id = SessionId::parse(&made.id).map_err(|cause| {
                Error::new(
                    ErrorKind::InvalidAgentResponse,
                    "OpenCode gave a session a name that is no identifier.",
                )
                .caused_by(cause)
            })?;
            // OpenCode resolves links; its events and lists go by the resolved path.
            Ok(Session { id, directory: made.directory.unwrap_or_else(|| wanted.to_owned()) })
        })
    }

    fn new_prompt(&self) -> PromptId {
        self.prompt_ids.make(&self.server_clock, self.clock.now())
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(turn::start(&self.starter, request))
    }

    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if answer.kind() != ask.kind {
                return Err(Error::new(
                    ErrorKind::InterruptTypeMismatch,
                    format!("The agent asks a {}, and this answers a {}.", ask.kind, answer.kind()),
                ));
            }
            let answered = self.client.answer(&session.directory, ask.request_id.as_str(), answer).await;
            answered.map_err(|cause| match cause {
                CallError::NotFound => Error::new(
                    ErrorKind::InterruptNotFound,
                    "OpenCode no longer asks this: it was answered elsewhere, or its turn is over.",
                ),
                cause => cause.into_error("answer the ask"),
            })
        })
    }

    fn abort<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.readers.note_abort(&session.directory, session.id.as_str());
            let aborted = self.client.abort(&session.directory, session.id.as_str()).await;
            aborted.map_err(|cause| cause.into_error("stop the turn"))
        })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may carry credentials of its own.
        f.debug_struct("Endpoint").field("host", &self.base_url.host_str()).finish_non_exhaustive()
    }
}
