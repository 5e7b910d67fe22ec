//! An ACP agent as the engine sees it: one process for all sessions, which is started when it is needed.

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

/// How an agent is started and used.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each one is a setting of its own")]
pub struct AcpConfig {
    /// What the operator calls the agent.
    pub name: String,
    pub process: ProcessConfig,
    /// The directory of sessions whose caller requested no other.
    pub workspace: PathBuf,
    /// Callers may work in directories below the workspace.
    pub allow_directory_override: bool,
    /// The gateway's own files, which callers must not reach.
    pub protected: Arc<ProtectedPaths>,
    pub limits: Limits,
    /// The files that the agent may have the gateway read and write.
    pub client_files: FileAccess,
    /// The agent may have the gateway run commands.
    pub client_terminals: bool,
    pub mcp_servers: Vec<McpServer>,
    /// `None`: sessions have only the configured servers.
    pub session_servers: Option<Arc<dyn SessionServers>>,
    /// The method to log in with after each start of the agent. `None`: the agent needs no login, or has one already.
    pub auth_method: Option<String>,
    /// The default mode of a turn. `None`: the mode that the agent gave the session when it was opened.
    pub mode: Option<String>,
    /// The default model of a turn. `None`: the model that the agent gave the session when it was opened.
    pub model: Option<String>,
    /// What callers may not choose.
    pub pinned: Vec<Role>,
    /// Callers may choose no other options of the agent either.
    pub pins_config: bool,
    /// The operator lets callers with the right to it run a shell.
    pub shell: bool,
    /// How long the agent may be idle before its process is stopped. `None`: it runs on.
    pub idle_stop: Option<Duration>,
    /// How long the agent may be silent during a turn while it waits for no answer and runs no tool. Then the turn is stopped.
    /// `None`: it is never too long.
    pub silence: Option<Duration>,
    /// How long the agent may take to end a turn that was canceled. Then the process is ended.
    pub cancel_patience: Duration,
    pub metrics: Arc<Metrics>,
}

impl AcpConfig {
    /// The agent decides everything itself, and is offered nothing.
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

/// See the module.
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

    /// Starts the agent now, if it does not run, and returns what it says about itself.
    pub async fn start(&self) -> Result<AgentFacts> {
        let _lease = self.host.lease().await?;
        self.facts().ok_or_else(|| Error::internal("an agent that runs has no facts"))
    }

    /// Ends the agent and its whole process group. The agent is not started again.
    pub async fn stop(&self) {
        self.host.stop().await;
    }

    /// What the agent said about itself when it was last started. `None`: it never ran.
    pub fn facts(&self) -> Option<AgentFacts> {
        self.host.facts()
    }
}

impl Agent for AcpAgent {
    fn describe(&self) -> Description {
        let version = self.facts().map(|facts| facts.version).filter(|version| !version.is_empty());
        // A turn ends with its process, which ends with the gateway: `end_resumed` says how.
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

/// Those of the session that was opened last.
impl SessionChoices for AcpAgent {
    fn known(&self) -> Option<Choices> {
        let session = self.facts()?.session?;
        Some(session.offered(&self.defaults_of(&session)))
    }
}

/// Turns that were canceled or ran out of time, and that the process has not ended yet.
impl UnfollowedTurns for AcpAgent {
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(self.turns.get(&session.id).is_some() || self.host.is_stuck(&session.id)) })
    }

    /// The process ends with the gateway, so only turns of this run can still run.
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
