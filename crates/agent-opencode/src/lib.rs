//! Drives OpenCode over its HTTP API. Implements [`longshore_engine::port::Agent`], and
//! [`longshore_engine::port::Control`] in `control`.
//!
//! [`OpenCode`] and `turn::start` send a prompt to OpenCode. Events come from the `reader` of the session's directory to the turn's
//! driver, and through `translate`, which does no IO, to the engine. If the event stream has a gap, `reconcile` reads the state
//! from OpenCode.

mod address;
mod admit;
mod api;
mod ask;
mod catalog;
mod clear;
mod client;
mod control;
mod directories;
mod disk;
mod id;
pub mod managed;
#[doc(hidden)]
pub mod measure;
mod outage;
mod outcome;
mod preview;
mod probe;
mod prompt;
mod reader;
mod reconcile;
mod rules;
mod skim;
mod sse;
mod stop;
mod translate;
mod turn;
mod warm_up;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Clock, Description, NewSession, Session, SessionFinder, Turn,
    TurnRecord, TurnRequest, UnfollowedTurns,
};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_meter::Metrics;
use longshore_model::{Answer, Ask, Error, ErrorKind, Result, SessionId, redact};
use secrecy::SecretString;
use tokio::time::{Instant, sleep};

pub use crate::address::Address;
use crate::address::Outage;
use crate::admit::AccessPolicy;
use crate::catalog::Catalog;
use crate::client::{CallError, Client};
use crate::directories::DirectoryKeeper;
pub use crate::directories::DirectoryLimits;
use crate::id::{MessageIds, ServerClock};
use crate::prompt::Prompts;
use crate::reader::{Readers, lock};
pub use crate::rules::{Pin, PromptRules};
pub use crate::turn::Watchdog;
use crate::turn::{Starter, UnpromptedSessions};
use crate::watch::Watch;

/// The pause before the next attempt to open a session after OpenCode became unreachable.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The address of OpenCode, and how the gateway uses it.
#[derive(Clone, Debug)]
pub struct OpenCodeConfig {
    pub endpoint: Endpoint,
    /// The workspace root. It is the directory of sessions whose caller requests none.
    pub directory: PathBuf,
    /// How long one call may take, and how long a turn waits for a busy session.
    pub control_timeout: Duration,
    /// The time limit of a call that lasts as long as a model or a command runs. `None`: no limit.
    pub long_timeout: Option<Duration>,
    /// How long the event stream may be silent before the gateway considers it dead and opens it again. OpenCode sends a
    /// heartbeat every 10 s.
    pub stream_silence: Duration,
    pub rules: PromptRules,
    /// Whether callers may work in directories below the root, and in worktrees and workspaces of its project.
    pub allow_directory_override: bool,
    /// The gateway's own files, which callers must not reach.
    pub protected: Arc<ProtectedPaths>,
    pub watchdog: Watchdog,
    /// Whether the files that a turn wrote are attached to the task at the end of the turn.
    pub written_files: bool,
    /// How many short calls to OpenCode may run at the same time; 0 means no limit. See [`UPSTREAM_CALLS`].
    pub upstream_calls: usize,
    /// How many directories, including the root, the gateway watches for prompts of other OpenCode clients. 0: none. A watched
    /// directory costs OpenCode as much memory as a directory in use. See [`WATCH_DIRECTORIES`].
    pub watch_directories: usize,
    pub directories: DirectoryLimits,
    pub metrics: Arc<Metrics>,
}

/// The default for the largest number of short calls at the same time.
pub const UPSTREAM_CALLS: usize = 32;

/// The default for the largest number of watched directories.
pub const WATCH_DIRECTORIES: usize = 16;

/// The address of an OpenCode server and the credentials for it.
#[derive(Clone)]
pub struct Endpoint {
    pub base_url: Address,
    /// The user name: `opencode`, unless the server is configured otherwise.
    pub username: String,
    /// The password. `None`: the server requires none. The new password of a server that moved is in `base_url`.
    pub password: Option<SecretString>,
}

/// One OpenCode server.
#[derive(Debug)]
pub struct OpenCode {
    client: Client,
    /// The client for callers who wait for the response, so that the lack of a call slot can be reported to them.
    for_callers: Client,
    access: AccessPolicy,
    directories: Arc<DirectoryKeeper>,
    long_timeout: Option<Duration>,
    /// Whether the workspace root exists on this machine. If so, the gateway resolves paths before it sends them to OpenCode.
    is_root_here: bool,
    server_clock: Arc<ServerClock>,
    readers: Arc<Readers>,
    starter: Starter,
    /// How many turns are waiting for OpenCode before they begin.
    waiting: Arc<AtomicUsize>,
    pub(crate) watch: Arc<Watch>,
    /// OpenCode's version, as the last health check found it.
    version: Mutex<Option<String>>,
}

impl OpenCode {
    pub fn new(config: OpenCodeConfig, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self> {
        // OpenCode uses resolved paths. A directory on another machine can only be resolved by OpenCode.
        let root = std::fs::canonicalize(&config.directory);
        let is_root_here = root.is_ok();
        let root = root.unwrap_or(config.directory).into_os_string().into_string().map_err(|_| {
            Error::new(
                ErrorKind::Internal,
                "The path of the workspace is not valid UTF-8; choose another workspace.",
            )
        })?;
        let (calls, metrics) = (config.upstream_calls, Arc::clone(&config.metrics));
        let client = Client::new(config.endpoint, config.control_timeout, calls, metrics)?;
        let server_clock = Arc::new(ServerClock::default());
        let readers = Readers::new(
            client.clone(),
            Arc::clone(&clock),
            Arc::clone(&server_clock),
            tasks.clone(),
            config.stream_silence,
            Arc::clone(&config.metrics),
        );
        let watch = Watch::new(
            client.clone(),
            Arc::clone(&readers),
            tasks.clone(),
            root.clone(),
            config.watch_directories,
            Arc::clone(&config.metrics),
        );
        let watch = Arc::new(watch);
        let waiting = Arc::new(AtomicUsize::new(0));
        outage::spawn(&client, &readers, &waiting, &tasks);
        let catalog = Arc::new(Catalog::new(&client, root.clone()));
        let directories = DirectoryKeeper::new(&client, &watch, &root, config.directories, &tasks);
        let rules = Arc::new(config.rules);
        let ids = MessageIds::new(clock, Arc::clone(&server_clock));
        let prompts = Prompts { catalog: Arc::clone(&catalog), rules: Arc::clone(&rules), ids };
        Ok(Self {
            access: AccessPolicy {
                catalog,
                root: root.clone(),
                other_roots: Vec::new(),
                allow_override: config.allow_directory_override,
                protected: Arc::clone(&config.protected),
                rules,
                directories: Arc::clone(&directories),
            },
            directories,
            long_timeout: config.long_timeout,
            is_root_here,
            server_clock,
            readers: Arc::clone(&readers),
            starter: Starter {
                client: client.clone(),
                for_starts: client.for_starts(),
                readers,
                tasks,
                prompts: Arc::new(prompts),
                root,
                protected: config.protected,
                timeout: config.control_timeout,
                watchdog: config.watchdog,
                written_files: config.written_files,
                unprompted: UnpromptedSessions::default(),
                watch: Arc::clone(&watch),
            },
            watch,
            waiting,
            version: Mutex::default(),
            for_callers: client.for_callers(),
            client,
        })
    }

    /// Also lets callers work in these directories and below them.
    #[must_use]
    pub fn with_roots(mut self, roots: Vec<PathBuf>) -> Self {
        self.access.other_roots = roots;
        self
    }

    /// Opens a session. Waits for an OpenCode that is still starting, but fails at once if OpenCode is known to be down.
    async fn create_session(&self, directory: &str, title: Option<&str>) -> Result<api::Session> {
        let deadline = Instant::now() + turn::STREAM_TIMEOUT.min(self.starter.timeout);
        let _in_use = self.directories.enter_for_call(directory).await?;
        loop {
            // A supervisor knows when OpenCode answers requests. For an unsupervised OpenCode, only the event stream shows it.
            if !self.client.address().is_supervised() {
                let left = deadline.saturating_duration_since(Instant::now());
                let attached = self.readers.attached(directory, left);
                self.client.address().unless_down(attached).await.map_err(Outage::into_error)??;
            }
            match self.starter.for_starts.create_session(directory, title).await {
                // OpenCode is down and did not get the request, but its event stream has not reported the end yet.
                Err(cause @ CallError::Unreachable(_)) if Instant::now() + RETRY_PAUSE < deadline => {
                    tracing::debug!(%cause, "could not open a session; trying again");
                    sleep(RETRY_PAUSE).await;
                }
                made => return made.map_err(|cause| cause.into_error("open a session")),
            }
        }
    }
}

impl Agent for OpenCode {
    fn describe(&self) -> Description {
        Description { name: "OpenCode".to_owned(), version: lock(&self.version).clone(), resumes_turns: true }
    }

    fn admit<'a>(&'a self, requested: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(self.access.admit(requested))
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(async move {
            let requested = request.directory.as_str();
            if id::is_misread(requested) {
                return Err(Error::invalid(
                    "directory",
                    "OpenCode cannot work in a directory whose path has a percent sign followed by two hexadecimal digits; \
                     choose another.",
                ));
            }
            let made = self.create_session(requested, request.title.as_deref()).await?;
            let id = SessionId::parse(&made.id).map_err(|cause| {
                Error::new(
                    ErrorKind::InvalidAgentResponse,
                    "OpenCode gave the new session an id that is not valid.",
                )
                .caused_by(cause)
            })?;
            // OpenCode resolves links; its events and lists use the resolved path.
            let directory = made.directory.unwrap_or_else(|| requested.to_owned());
            // The root itself may be a link, because the operator chose it.
            if self.is_root_here && directory != requested && requested != self.access.root {
                return Err(Error::invalid(
                    "metadata.opencode.directory",
                    "This directory was replaced by a link after it was checked; name the directory that the link points to, \
                     or choose another.",
                ));
            }
            self.starter.unprompted.note(&id);
            let session = Session { id, directory };
            self.watch.watch_new(&session);
            Ok(session)
        })
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async move {
            let directory = &request.session.directory;
            let in_use = if request.resume.is_some() {
                self.directories.enter_running(directory).await?
            } else {
                self.directories.enter_for_call(directory).await?
            };
            turn::start(&self.starter, request, in_use).await
        })
    }

    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let answer = ask::fit_answer(ask, answer)?;
            let answered = self.client.answer(&session.directory, ask.request_id.as_str(), &answer).await;
            answered.map_err(|cause| match cause {
                CallError::NotFound => Error::new(
                    ErrorKind::InterruptNotFound,
                    "This request is no longer open in OpenCode: it was answered elsewhere, or its turn is over.",
                ),
                cause => cause.into_error("answer the request"),
            })
        })
    }

    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.readers.note_abort(&session.directory, session.id.as_str());
            // The descendants are read first, because they are no longer known once the session has stopped.
            let below = self.readers.descendants(&session.directory, session.id.as_str());
            let aborted = self.client.abort(&session.directory, session.id.as_str()).await;
            aborted.map_err(|cause| cause.into_error("stop the turn"))?;
            clear::reject_asks(&self.client.for_cleanup(), session, below).await;
            Ok(())
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            *lock(&self.version) = Some(self.version().await?);
            Ok(())
        })
    }

    fn is_restarted_by_gateway(&self) -> bool {
        self.client.address().is_supervised()
    }

    fn until_back(&self) -> BoxFuture<'_, ()> {
        let back = self.client.address().until_back();
        Box::pin(async move {
            let _waiting = outage::count(&self.waiting);
            back.await;
        })
    }

    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        Some(self)
    }

    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        Some(self)
    }
}

impl SessionFinder for OpenCode {
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move {
            // If an id is not in OpenCode's form, OpenCode returns an error other than "not found".
            if id::segment(id::Kind::Session, id.as_str()).is_err() {
                return Ok(None);
            }
            let found = match self.for_callers.session(&self.access.root, id.as_str()).await {
                Err(CallError::NotFound) => return Ok(None),
                found => found.map_err(|cause| cause.into_error("look up the session"))?,
            };
            // The session of a sub-agent belongs to its parent. The events of a session in an OpenCode workspace do not come on the
            // stream of the directory.
            let Some(directory) = found.directory else { return Ok(None) };
            if found.parent.is_some() || found.workspace.is_some() {
                return Ok(None);
            }
            let open = self.access.is_open_to_callers(&directory).await?;
            Ok(open.then(|| Session { id: id.clone(), directory }))
        })
    }
}

impl UnfollowedTurns for OpenCode {
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            // A session counts as busy while one of its sub-agents works.
            let statuses = self.for_callers.statuses(&session.directory).await;
            let statuses = statuses.map_err(|cause| cause.into_error("check whether the session is idle"))?;
            Ok(statuses.contains_key(session.id.as_str()))
        })
    }

    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(stop::orphaned_turns(&self.client, over))
    }
}

#[cfg(test)]
impl Endpoint {
    /// The endpoint of a server that requires no password.
    pub(crate) fn without_password(url: &str) -> Self {
        Self { base_url: url.parse().unwrap(), username: "opencode".to_owned(), password: None }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}
