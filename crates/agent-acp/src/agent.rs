//! An ACP agent as the engine sees it: one process for all sessions, which is started when it is needed.

mod facts;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, NewSession, Session, Turn, TurnRecord, TurnRequest,
};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_model::{Answer, Ask, Error, ErrorKind, PromptId, Result, SessionId};

pub use self::facts::{AgentFacts, Capabilities};
use crate::connection::Limits;
use crate::process::ProcessConfig;
use crate::schema::McpServer;

/// How an agent is started and used.
#[derive(Clone, Debug)]
pub struct AcpConfig {
    /// What the operator calls the agent.
    pub name: String,
    pub process: ProcessConfig,
    /// The directory of sessions whose caller requested no other. Callers may work in directories below it.
    pub workspace: PathBuf,
    /// The gateway's own files, which callers must not reach.
    pub protected: Arc<ProtectedPaths>,
    pub limits: Limits,
    pub mcp_servers: Vec<McpServer>,
    /// The method to log in with after each start of the agent. `None`: the agent needs no login, or has one already.
    pub auth_method: Option<String>,
    /// The mode of new sessions. `None`: the agent's own.
    pub mode: Option<String>,
    /// The model of sessions whose caller requested no other. `None`: the agent's own.
    pub model: Option<String>,
    /// How long the agent may be idle before its process is stopped. `None`: it runs on.
    pub idle_stop: Option<Duration>,
    /// How long the agent may take to end a turn that was canceled. Then the process is ended.
    pub cancel_patience: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct AcpAgent {
    config: AcpConfig,
}

impl AcpAgent {
    pub fn new(config: AcpConfig, _tasks: &Tasks) -> Arc<Self> {
        Arc::new(Self { config })
    }

    /// Starts the agent now, if it does not run, and returns what it says about itself.
    pub async fn start(&self) -> Result<AgentFacts> {
        Err(unfinished())
    }

    /// Ends the agent and its whole process group. The agent is not started again.
    pub async fn stop(&self) {}

    /// What the agent said about itself when it was last started. `None`: it never ran.
    pub fn facts(&self) -> Option<AgentFacts> {
        None
    }
}

fn unfinished() -> Error {
    Error::new(ErrorKind::Internal, "not there yet")
}

impl Agent for AcpAgent {
    fn admit<'a>(&'a self, _request: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(
            async move { Ok(Admitted { directory: self.config.workspace.to_string_lossy().into_owned() }) },
        )
    }

    fn find_session<'a>(&'a self, _id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async { Ok(None) })
    }

    fn is_busy<'a>(&'a self, _session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn open_session(&self, _request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(async { Err(unfinished()) })
    }

    fn new_prompt(&self) -> PromptId {
        PromptId::parse("unfinished").expect("it is an id")
    }

    fn start_turn(&self, _request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async { Err(unfinished()) })
    }

    fn reply<'a>(
        &'a self,
        _session: &'a Session,
        _ask: &'a Ask,
        _answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(unfinished()) })
    }

    fn abort<'a>(&'a self, _session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn stop_turns<'a>(&'a self, _over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn is_restarted_by_gateway(&self) -> bool {
        true
    }
}
