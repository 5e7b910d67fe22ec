//! The agent's process: started when it is first used, one for all sessions, started again after its death, and stopped when it
//! is idle.
//!
//! One background task starts a process and watches it until it is gone, so there are never two processes at a time, and a caller
//! who stops waiting for a start does not disturb it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_model::{Error, ErrorKind, Result, SessionId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::facts::AgentFacts;
use crate::client::ClientConfig;
use crate::connection::{Connection, Limits, OUTPUT_ENDED};
use crate::launch::{self, Running};
use crate::process::ProcessConfig;
use crate::schema::{InitializeAnswer, McpServer, RemoteKind};

/// The pause before an agent that failed is started again: doubled with each failure, up to the longest. A turn that worked sets
/// it back.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the host needs to know of the configuration.
#[derive(Debug)]
pub(super) struct HostConfig {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) limits: Limits,
    pub(super) client: ClientConfig,
    pub(super) auth_method: Option<String>,
    pub(super) idle_stop: Option<Duration>,
}

/// Where the agent comes from.
#[derive(Debug)]
pub(super) enum Source {
    Command(Box<ProcessConfig>),
    /// A test plays the agents: each start takes the next.
    #[cfg(test)]
    Played(Mutex<std::collections::VecDeque<tokio::io::DuplexStream>>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Host {
    config: HostConfig,
    tasks: Tasks,
    state: Mutex<State>,
    /// Told after each change of the state, and of the uses of a process.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// What the operator calls the agent.
    name: String,
    phase: Phase,
    /// A background task starts, watches or ends a process.
    has_process: bool,
    /// How often in a row the agent failed.
    failures: u32,
    facts: Option<AgentFacts>,
    last_session: Option<String>,
}

#[derive(Debug)]
enum Phase {
    /// Never started, or stopped on purpose. The next use starts the agent.
    Stopped,
    Starting,
    Running(Arc<Live>),
    /// The process is being ended. The reason, if the agent failed.
    Ending(Option<Error>),
    /// The agent failed, and is not started again before this time.
    Down {
        why: Error,
        until: Instant,
    },
    /// The gateway stops the agent for good.
    Over,
}

/// A process that runs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) about: InitializeAnswer,
    /// How many leases there are. Changed only while the state is locked.
    uses: AtomicUsize,
    /// The sessions in which the agent ignored a cancel. They are of no use until the process is replaced.
    stuck: Mutex<HashSet<String>>,
    /// The agent lacked credentials. It may read new ones only when it starts.
    lacks_credentials: AtomicBool,
    /// How the process ended.
    epitaph: watch::Sender<Option<String>>,
}

/// A use of the process. While there is one, the process is not stopped for being idle or replaced.
#[derive(Debug)]
pub(super) struct Lease {
    host: Arc<Host>,
    pub(super) live: Arc<Live>,
}

impl Lease {
    pub(super) fn connection(&self) -> &Connection {
        &self.live.connection
    }

    /// The configured servers that the agent can use: which remote ones it takes is its choice.
    pub(super) fn servers(&self, configured: &[McpServer]) -> Vec<McpServer> {
        let remote = self.live.about.agent_capabilities.mcp_capabilities;
        let is_usable = |server: &&McpServer| match server {
            McpServer::Stdio { .. } => true,
            McpServer::Remote { r#type: RemoteKind::Http, .. } => remote.http,
            McpServer::Remote { r#type: RemoteKind::Sse, .. } => remote.sse,
        };
        let (usable, others): (Vec<_>, Vec<_>) = configured.iter().partition(is_usable);
        if !others.is_empty() {
            tracing::warn!(
                agent = self.host.config.name,
                servers = others.len(),
                "the agent takes no such MCP servers"
            );
        }
        usable.into_iter().cloned().collect()
    }

    pub(super) fn epitaph(&self) -> watch::Receiver<Option<String>> {
        self.live.epitaph.subscribe()
    }

    /// The agent ignored a cancel in this session. The process is replaced as soon as nothing else uses it: another session's turn
    /// is not worth less than this session.
    pub(super) fn note_stuck(&self, session: &str) {
        lock(&self.live.stuck).insert(session.to_owned());
    }

    /// Lets the next use start the agent again with its new credentials, unless the agent would lose its sessions.
    pub(super) fn note_missing_credentials(&self) {
        self.live.lacks_credentials.store(true, Ordering::Relaxed);
    }

    /// A turn worked, so the agent does.
    pub(super) fn note_worked(&self) {
        self.host.lock().failures = 0;
    }

    pub(super) fn note_session(&self, session: &str) {
        self.host.lock().last_session = Some(session.to_owned());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = self.host.lock();
        self.live.uses.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        self.host.changed.send_replace(());
    }
}

/// Why a process is ended.
enum Ending {
    Closed,
    /// Because it was idle, or to be replaced.
    Unused,
    Over,
}

impl Host {
    pub(super) fn new(config: HostConfig, tasks: &Tasks) -> Arc<Self> {
        let state = State {
            name: config.name.clone(),
            phase: Phase::Stopped,
            has_process: false,
            failures: 0,
            facts: None,
            last_session: None,
        };
        Arc::new(Self {
            config,
            tasks: tasks.clone(),
            state: Mutex::new(state),
            changed: watch::channel(()).0,
        })
    }

    /// Starts the agent if it does not run. Fails at once while the agent has failed and is not to be started yet.
    pub(super) async fn lease(self: &Arc<Self>) -> Result<Lease> {
        loop {
            let mut changed = self.changed.subscribe();
            {
                let mut state = self.lock();
                match &state.phase {
                    Phase::Running(live) if live.connection.closed().is_none() => {
                        live.uses.fetch_add(1, Ordering::Relaxed);
                        return Ok(Lease { host: Arc::clone(self), live: Arc::clone(live) });
                    }
                    // Each of these phases has a time limit.
                    Phase::Running(_) | Phase::Starting | Phase::Ending(_) => {}
                    Phase::Down { why, until } if Instant::now() < *until => return Err(why.clone()),
                    Phase::Stopped | Phase::Down { .. } => {
                        state.phase = Phase::Starting;
                        state.has_process = true;
                        self.tasks.spawn("acp agent", Arc::clone(self).run());
                    }
                    Phase::Over => return Err(over()),
                }
            }
            changed.changed().await.map_err(Error::internal)?;
        }
    }

    /// Whether the agent ignored a cancel in this session and still runs.
    pub(super) fn is_stuck(&self, session: &SessionId) -> bool {
        match &self.lock().phase {
            Phase::Running(live) => lock(&live.stuck).contains(session.as_str()),
            _ => false,
        }
    }

    /// Fails while the agent has failed and cannot be started yet. An agent that does not run because nobody uses it is fine.
    pub(super) fn check(&self) -> Result<()> {
        match &self.lock().phase {
            // Its end is known, and noted in a moment.
            Phase::Running(live) => live.connection.closed().map_or(Ok(()), |why| Err(unavailable(&why))),
            Phase::Ending(Some(why)) => Err(why.clone()),
            Phase::Down { why, until } if Instant::now() < *until => Err(why.clone()),
            Phase::Over => Err(over()),
            _ => Ok(()),
        }
    }

    /// Waits until a failed agent runs again, or may be started again.
    pub(super) async fn until_back(&self) {
        loop {
            let mut changed = self.changed.subscribe();
            let until = match &self.lock().phase {
                Phase::Stopped => return,
                Phase::Running(live) if live.connection.closed().is_none() => return,
                Phase::Down { until, .. } if Instant::now() >= *until => return,
                Phase::Down { until, .. } => Some(*until),
                Phase::Running(_) | Phase::Starting | Phase::Ending(_) | Phase::Over => None,
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = at(until) => return,
            }
        }
    }

    /// Waits until anything changes in the use of processes.
    pub(super) fn next_change(&self) -> impl Future<Output = ()> + use<> {
        let mut changed = self.changed.subscribe();
        async move { drop(changed.changed().await) }
    }

    /// Ends the process for good, and waits until it is gone.
    pub(super) async fn stop(&self) {
        self.lock().set(Phase::Over);
        self.changed.send_replace(());
        loop {
            let mut changed = self.changed.subscribe();
            if !self.lock().has_process || changed.changed().await.is_err() {
                return;
            }
        }
    }

    pub(super) fn facts(&self) -> Option<AgentFacts> {
        let mut state = self.lock();
        state.refresh_facts();
        state.facts.clone()
    }

    /// Starts the agent, and watches it until it is gone.
    async fn run(self: Arc<Self>) {
        let started = tokio::select! {
            biased;
            () = self.tasks.stopping().cancelled() => Err(over()),
            () = self.until_over() => Err(over()),
            started = self.launch() => started,
        };
        let failure = match started {
            Ok(running) => self.watch(running).await,
            Err(why) => Some(why),
        };
        {
            let mut state = self.lock();
            state.has_process = false;
            match failure {
                Some(why) => state.fail(why),
                None => state.set(Phase::Stopped),
            }
        }
        self.changed.send_replace(());
    }

    async fn launch(&self) -> Result<Running> {
        let limits = self.config.limits.clone();
        let running = match &self.config.source {
            Source::Command(command) => {
                let client = self.config.client.clone();
                launch::launch_offering(command, limits, client, &self.tasks).await?
            }
            #[cfg(test)]
            Source::Played(agents) => {
                let next = lock(agents).pop_front();
                let pipe =
                    next.ok_or_else(|| Error::new(ErrorKind::AgentUnavailable, "No agent is left."))?;
                launch::launch_played(pipe, limits, &self.tasks).await?
            }
        };
        if let Some(method) = &self.config.auth_method
            && let Err(cause) = running.connection.authenticate(method).await
        {
            let ended = running.end().await;
            tracing::debug!(?ended, "an agent refused its login");
            return Err(cause.into_error("log in").permanent().mark_needs_credentials());
        }
        Ok(running)
    }

    /// Watches the process until it is gone. Returns the error if the agent failed.
    async fn watch(&self, mut running: Running) -> Option<Error> {
        let live = Arc::new(Live {
            connection: running.connection.clone(),
            about: running.about.clone(),
            uses: AtomicUsize::new(0),
            stuck: Mutex::default(),
            lacks_credentials: AtomicBool::new(false),
            epitaph: watch::channel(None).0,
        });
        {
            let mut state = self.lock();
            state.last_session = None;
            state.set(Phase::Running(Arc::clone(&live)));
        }
        self.changed.send_replace(());
        match self.until_unused(&live, &mut running).await {
            Ending::Closed => {
                let closed = live.connection.closed().unwrap_or_default();
                self.lock().set(Phase::Ending(Some(unavailable(&closed))));
                let log = running.log();
                // The exit status says more than that the output was closed. Another reason, such as a line that is too long,
                // is the gateway's own, and the agent did not end by itself.
                let buried = running.bury().await;
                let why = if closed == OUTPUT_ENDED { buried } else { closed };
                tracing::warn!(agent = self.config.name, why, log, "an agent ended");
                live.epitaph.send_replace(Some(why.clone()));
                Some(unavailable(&why))
            }
            Ending::Unused | Ending::Over => {
                live.epitaph.send_replace(Some("The gateway stopped the agent.".to_owned()));
                let ended = running.end().await;
                tracing::info!(agent = self.config.name, ?ended, "an agent was stopped");
                None
            }
        }
    }

    /// Waits until the process has ended or is to be ended. In the second case nothing uses the process any more.
    async fn until_unused(&self, live: &Arc<Live>, running: &mut Running) -> Ending {
        let mut closed = std::pin::pin!(running.closed());
        loop {
            let mut changed = self.changed.subscribe();
            let may_stop = self.may_stop(live);
            let is_stuck = !lock(&live.stuck).is_empty();
            let is_outdated = may_stop && live.lacks_credentials.load(Ordering::Relaxed);
            if matches!(self.lock().phase, Phase::Over) {
                return Ending::Over;
            }
            if (is_stuck || is_outdated) && self.end_unused(live) {
                return Ending::Unused;
            }
            let idle = self.config.idle_stop.filter(|_| may_stop).map(sleep);
            tokio::select! {
                biased;
                () = &mut closed => return Ending::Closed,
                () = self.tasks.stopping().cancelled() => return Ending::Over,
                _ = changed.changed() => {}
                () = async { match idle { Some(idle) => idle.await, None => std::future::pending().await } } => {
                    if self.end_unused(live) {
                        return Ending::Unused;
                    }
                }
            }
        }
    }

    /// Whether the process may be stopped although it works. Sessions of an agent that cannot open them again live only as long as
    /// its process.
    fn may_stop(&self, live: &Live) -> bool {
        let connection = &live.connection;
        let can_reopen = connection.offers("session/load") || connection.offers("session/resume");
        live.uses.load(Ordering::Relaxed) == 0 && (can_reopen || self.lock().last_session.is_none())
    }

    /// Closes the process to new uses if none runs. Returns whether it did.
    fn end_unused(&self, live: &Live) -> bool {
        let mut state = self.lock();
        let is_unused = live.uses.load(Ordering::Relaxed) == 0;
        if is_unused {
            state.set(Phase::Ending(None));
        }
        is_unused
    }

    async fn until_over(&self) {
        let mut changed = self.changed.subscribe();
        while !matches!(self.lock().phase, Phase::Over) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// An agent that is over stays so.
    fn set(&mut self, phase: Phase) {
        self.refresh_facts();
        if !matches!(self.phase, Phase::Over) {
            self.phase = phase;
        }
    }

    fn fail(&mut self, why: Error) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.set(Phase::Down { why, until: Instant::now() + pause });
    }

    fn refresh_facts(&mut self) {
        if let Phase::Running(live) = &self.phase {
            let session = self.last_session.as_ref().and_then(|session| live.connection.facts(session));
            self.facts = Some(AgentFacts::new(&self.name, live, session, self.facts.take()));
        }
    }
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unavailable(why: &str) -> Error {
    let text = format!("{why} The gateway starts it again when it is needed.");
    Error::new(ErrorKind::AgentUnavailable, text)
}

fn over() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "The gateway stops the agent.")
}
