//! The engine's view of an ACP agent: one process for all sessions, started when it is first needed.

mod admit;
mod choose;
mod commands;
mod drive;
mod facts;
mod host;
mod keep;
mod lease;
mod open_sessions;
mod session_servers;
mod sessions;
mod start;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Description, Input, NewSession, Session, SessionChoices,
    SessionFinder, Turn, TurnRecord, TurnRequest, UnfollowedTurns,
};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_meter::Metrics;
use longshore_model::{Answer, Ask, Choices, Error, PromptOptions, Result, SessionId};

use self::admit::Workspace;
use self::choose::{ChosenOptions, Defaults};
use self::drive::Turns;
pub use self::facts::{AgentFacts, Capabilities};
use self::host::{Host, HostConfig, Source};
pub use self::session_servers::SessionServers;
use crate::client::{ClientConfig, FileAccess};
use crate::connection::{Limits, Role};
use crate::process::ProcessConfig;
use crate::schema::McpServer;

/// How the gateway starts and uses an ACP agent.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a setting of its own")]
pub struct AcpConfig {
    /// The operator's name for the agent.
    pub name: String,
    pub process: ProcessConfig,
    /// The root of the directories that callers may use, and the directory of sessions whose caller requests none.
    pub workspace: PathBuf,
    /// Whether callers may request directories below the workspace.
    pub allow_directory_override: bool,
    /// The gateway's own files, which callers must not reach.
    pub protected: Arc<ProtectedPaths>,
    pub limits: Limits,
    /// Which files the agent may read and write through the gateway (`fs/*`).
    pub client_files: FileAccess,
    /// Whether the agent may run commands through the gateway (`terminal/*`).
    pub client_terminals: bool,
    pub mcp_servers: Vec<McpServer>,
    /// Provides an additional MCP server for each session. `None`: sessions have only the configured servers.
    pub session_servers: Option<Arc<dyn SessionServers>>,
    /// The method of the login after each start of the agent. `None`: the agent needs no login, or is already logged in.
    pub auth_method: Option<String>,
    /// The default mode of a turn. `None`: the mode in which the agent opened the session.
    pub mode: Option<String>,
    /// The default model of a turn. `None`: the model with which the agent opened the session.
    pub model: Option<String>,
    /// The settings (mode, model) that callers may not choose.
    pub pinned: Vec<Role>,
    /// Whether callers may not choose the agent's other options either.
    pub pins_config: bool,
    /// Whether the operator allows the shell, for callers that have the right to it.
    pub shell: bool,
    /// How long the agent may be idle before its process is stopped. `None`: the process is never stopped for being idle.
    pub idle_stop: Option<Duration>,
    /// How long the agent may be silent during a turn, when it neither waits for an answer nor runs a tool. After that the gateway
    /// stops the turn. `None`: no limit.
    pub silence: Option<Duration>,
    /// How long the agent may take to end a canceled turn. After that the gateway ends the turn without the agent, and frees the
    /// session by ending the process if necessary.
    pub cancel_patience: Duration,
    pub metrics: Arc<Metrics>,
}

impl AcpConfig {
    /// Uses the agent's own defaults for everything, and offers the agent no files, commands or servers.
    pub fn new(name: impl Into<String>, process: ProcessConfig, workspace: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            process,
            workspace: workspace.into(),
            allow_directory_override: true,
            protected: Arc::default(),
            limits: Limits::default(),
            client_files: FileAccess::Off,
            client_terminals: false,
            mcp_servers: Vec::new(),
            session_servers: None,
            auth_method: None,
            mode: None,
            model: None,
            pinned: Vec::new(),
            pins_config: false,
            shell: false,
            idle_stop: None,
            silence: None,
            cancel_patience: Duration::from_secs(30),
            metrics: Arc::default(),
        }
    }
}

/// An ACP agent: see the module.
#[derive(Debug)]
pub struct AcpAgent {
    config: AcpConfig,
    workspace: Workspace,
    host: Arc<Host>,
    turns: Arc<Turns>,
    defaults: Defaults,
    chosen: ChosenOptions,
    tasks: Tasks,
}

impl AcpAgent {
    pub fn new(config: AcpConfig, tasks: &Tasks) -> Arc<Self> {
        let source = Source::Command(Box::new(config.process.clone()));
        Arc::new(Self::with_source(config, source, tasks))
    }

    fn with_source(config: AcpConfig, source: Source, tasks: &Tasks) -> Self {
        let workspace =
            Workspace::new(&config.workspace, config.allow_directory_override, Arc::clone(&config.protected));
        let client = ClientConfig {
            files: config.client_files,
            terminals: config.client_terminals,
            root: workspace.root().to_owned(),
            protected: Arc::clone(&config.protected),
            environment: config.process.environment.clone(),
        };
        let host = HostConfig {
            name: config.name.clone(),
            source,
            limits: config.limits.clone(),
            metrics: Arc::clone(&config.metrics),
            client,
            auth_method: config.auth_method.clone(),
            idle_stop: config.idle_stop,
        };
        Self {
            workspace,
            host: Host::new(host, tasks),
            turns: Arc::default(),
            defaults: Defaults::default(),
            chosen: ChosenOptions::default(),
            tasks: tasks.clone(),
            config,
        }
    }

    /// Starts the agent if it does not run, and returns what it says about itself.
    pub async fn start(&self) -> Result<AgentFacts> {
        let _lease = self.host.lease().await?;
        self.facts().ok_or_else(|| Error::internal("an agent that runs has no facts"))
    }

    /// Ends the agent with its whole process group. The agent is not started again.
    pub async fn stop(&self) {
        self.host.stop().await;
    }

    /// The agent's description of itself at its last start. `None`: it has not been started.
    pub fn facts(&self) -> Option<AgentFacts> {
        self.host.facts()
    }
}

impl Agent for AcpAgent {
    fn describe(&self) -> Description {
        let version = self.facts().map(|facts| facts.version).filter(|version| !version.is_empty());
        // The process of a turn ends with the gateway, so a resumed turn is over: `end_resumed` reports how it ended.
        Description { name: self.config.name.clone(), version, resumes_turns: true }
    }

    fn admit<'a>(&'a self, request: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async move {
            choose::refuse_pinned(request.options, &self.config.pinned, self.config.pins_config)?;
            let admitted = self.workspace.admit(request).await?;
            if let Some(session) = self.facts().and_then(|facts| facts.session) {
                self.check_known(request.options, &session, &admitted.directory)?;
            }
            Ok(admitted)
        })
    }

    fn check_input(&self, directory: &str, input: &[Input], options: &PromptOptions) -> Result<()> {
        self.check_known_commands(directory, input, options)
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(self.open(request))
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async move {
            match request.resume {
                Some(resume) => Ok(self.end_resumed(&request.session, resume)),
                None => self.start_new(request).await,
            }
        })
    }

    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.turns.get(&session.id) {
                Some(turn) => turn.reply(&ask.request_id, answer).await,
                None => Err(drive::gone()),
            }
        })
    }

    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            if let Some(turn) = self.turns.get(&session.id) {
                turn.cancel().await;
            }
            Ok(())
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.host.check() })
    }

    fn is_restarted_by_gateway(&self) -> bool {
        true
    }

    fn until_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.host.until_back())
    }

    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        Some(self)
    }

    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        Some(self)
    }

    fn session_choices(&self) -> Option<&dyn SessionChoices> {
        Some(self)
    }
}

/// Offers the choices of the session that was opened last.
impl SessionChoices for AcpAgent {
    fn known(&self) -> Option<Choices> {
        let session = self.facts()?.session?;
        Some(session.offered(&self.defaults_of(&session)))
    }
}

/// The unfollowed turns: they were canceled or ran out of time, but the agent has not ended them yet.
impl UnfollowedTurns for AcpAgent {
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(self.turns.get(&session.id).is_some() || self.host.is_stuck(&session.id)) })
    }

    /// Only turns of this run can still run, because the agent's process ends with the gateway.
    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(async move {
            for TurnRecord { session, prompt, .. } in over {
                if let Some(turn) = self.turns.get(&session.id).filter(|turn| turn.prompt == *prompt) {
                    turn.cancel().await;
                }
            }
            Ok(Vec::new())
        })
    }
}

#[cfg(test)]
mod tests;
