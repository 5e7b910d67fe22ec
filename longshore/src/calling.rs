//! Lets the agent call the configured peers: configures `longshore mcp` in the agent, and serves the processes that the agent then
//! starts.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longshore_agent_acp::SessionServers;
use longshore_agent_acp::schema::{McpServer, NamedValue};
use longshore_calling::{
    Connections, Listener, OpenCodeFiles, SERVER, SOCKET, SOCKET_VARIABLE, Secret, TOKEN_VARIABLE, Tickets,
    Token, merged,
};
use longshore_engine::Tasks;
use longshore_meter::Metrics;
use longshore_model::SessionId;
use longshore_peers::Tools;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::config::Plan;
use crate::config::agents::AcpPlan;
use crate::config::plan::AgentPlan;
use crate::data_dir::{self, DataDir};
use crate::output;

/// The variable with configuration for OpenCode. OpenCode adds it to the configuration of its files.
const OPENCODE_CONFIGURATION: &str = "OPENCODE_CONFIG_CONTENT";

/// What the gateway needs to configure the agent and to serve its bridges.
#[derive(Debug)]
pub(crate) struct Calling {
    /// The path of this program.
    program: PathBuf,
    socket: PathBuf,
    secret: Secret,
    tickets: Arc<Tickets>,
    files: OpenCodeFiles,
    listener: Listener,
}

impl Calling {
    /// Opens the socket. The agent's bridges that connect wait until [`Self::serve`] runs. `None`: no peer is configured.
    pub(crate) fn prepare(plan: &Plan, data_dir: &DataDir) -> anyhow::Result<Option<Self>> {
        if plan.peers.is_none() {
            return Ok(None);
        }
        let data_dir = data_dir.path().canonicalize().context("the data directory is gone")?;
        let program = std::env::current_exe().context("the program cannot find its own file")?;
        let secret = Secret::new(data_dir::secret(&data_dir)?);
        let written = || format!("cannot write the files for OpenCode to {}", data_dir.display());
        let files = OpenCodeFiles::write(&data_dir, &program, &secret).with_context(written)?;
        let listener = Listener::bind(&data_dir)
            .with_context(|| format!("cannot listen on {}", data_dir.join(SOCKET).display()))?;
        if matches!(plan.agent, AgentPlan::Attached { .. }) {
            output::progress(
                "The OpenCode that is attached must be configured to call the peers: docs/mcp-opencode.md says how.",
            );
        }
        let socket = data_dir.join(SOCKET);
        Ok(Some(Self { program, socket, secret, tickets: Arc::default(), files, listener }))
    }

    /// Serves the bridges that the agent has started.
    pub(crate) fn serve(self, tools: Arc<dyn Tools>, metrics: Arc<Metrics>, tasks: &Tasks) {
        let Self { secret, tickets, listener, .. } = self;
        let connections = Connections { secret, tickets, tools, metrics, tasks: tasks.clone() };
        tasks.spawn("mcp bridges", listener.serve(connections));
    }

    /// Adds the configuration to the variables of an OpenCode. `inherits`: the OpenCode also gets the gateway's own variables.
    /// Returns a digest that identifies the added configuration.
    pub(crate) fn configure_opencode(
        &self,
        environment: &mut BTreeMap<OsString, OsString>,
        inherits: bool,
    ) -> anyhow::Result<String> {
        let ours = self.files.configuration();
        configure(environment, inherits, &ours)?;
        let digest = Sha256::digest(ours.to_string());
        Ok(digest.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }

    /// Makes the MCP servers for each session of an ACP agent. `None`: the agent has one server for all sessions
    /// ([`Self::configure_acp`]).
    pub(crate) fn session_servers(&self, agent: &AcpPlan) -> Option<Arc<dyn SessionServers>> {
        if agent.is_opencode() {
            return None;
        }
        Some(Arc::new(BridgeOfSession {
            is_confirmed: agent.mcp_per_session,
            program: self.program.clone(),
            socket: self.socket.clone(),
            secret: self.secret.clone(),
            tickets: Arc::clone(&self.tickets),
        }))
    }

    /// Configures an OpenCode that is started as an ACP agent. The MCP server must not be named for each session: each new session
    /// would start it again, which would break the open calls of the other sessions in its directory.
    pub(crate) fn configure_acp(
        &self,
        agent: &AcpPlan,
        environment: &mut BTreeMap<OsString, OsString>,
    ) -> anyhow::Result<()> {
        if !agent.is_opencode() {
            return Ok(());
        }
        configure(environment, false, &self.files.configuration())
    }
}

fn configure(
    environment: &mut BTreeMap<OsString, OsString>,
    inherits: bool,
    ours: &Value,
) -> anyhow::Result<()> {
    let inherited = std::env::var_os(OPENCODE_CONFIGURATION).filter(|_| inherits);
    let existing = environment.get(OsStr::new(OPENCODE_CONFIGURATION)).cloned().or(inherited);
    let existing = existing.as_deref().map(OsStr::to_string_lossy);
    let Some(all) = merged(existing.as_deref(), ours) else {
        bail!(
            "{OPENCODE_CONFIGURATION} is no JSON object, so the gateway cannot add the tools that call the configured peers; \
             correct the variable, or move its content to OpenCode's configuration file"
        );
    };
    environment.insert(OPENCODE_CONFIGURATION.into(), all.into());
    Ok(())
}

#[derive(Debug)]
struct BridgeOfSession {
    /// Whether the operator has confirmed that each session starts its own MCP server.
    is_confirmed: bool,
    program: PathBuf,
    socket: PathBuf,
    secret: Secret,
    tickets: Arc<Tickets>,
}

impl BridgeOfSession {
    fn server(&self, token: &Token) -> McpServer {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let variable = |name: &str, value: String| NamedValue { name: name.to_owned(), value };
        McpServer::Stdio {
            name: SERVER.to_owned(),
            command: text(&self.program),
            args: vec!["mcp".to_owned()],
            env: vec![
                variable(SOCKET_VARIABLE, text(&self.socket)),
                variable(TOKEN_VARIABLE, token.write(&self.secret)),
            ],
        }
    }
}

/// Agents that were tested to start a separate MCP server for each session.
const TESTED: [&str; 2] = ["@agentclientprotocol/claude-agent-acp", "qwen-code"];

impl BridgeOfSession {
    /// The token for a bridge that may serve several sessions. `None`: the agent has a separate bridge for each session.
    fn shared(&self, agent: &str) -> Option<Token> {
        // OpenCode over ACP uses one bridge for all sessions of a directory: the bridge of the session that was opened last.
        if agent.eq_ignore_ascii_case("opencode") {
            return Some(Token::OpenCode);
        }
        (!self.is_confirmed && !TESTED.contains(&agent)).then_some(Token::Untested)
    }
}

impl SessionServers for BridgeOfSession {
    fn of_new_session(&self, agent: &str) -> (McpServer, String) {
        if let Some(token) = self.shared(agent) {
            return (self.server(&token), String::new());
        }
        let ticket = self.tickets.issue();
        (self.server(&Token::Ticket(ticket.clone())), ticket)
    }

    fn bind(&self, ticket: &str, session: &SessionId) {
        self.tickets.bind(ticket, session.clone());
    }

    fn of_session(&self, agent: &str, session: &SessionId) -> McpServer {
        self.server(&self.shared(agent).unwrap_or_else(|| Token::Session(session.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(is_confirmed: bool) -> BridgeOfSession {
        BridgeOfSession {
            is_confirmed,
            program: PathBuf::from("/bin/longshore"),
            socket: PathBuf::from("/data/mcp.sock"),
            secret: Secret::new([1; 32]),
            tickets: Arc::default(),
        }
    }

    fn token(server: &McpServer) -> Option<Token> {
        let McpServer::Stdio { env, .. } = server else { panic!("{server:?}") };
        let token = env.iter().find(|variable| variable.name == TOKEN_VARIABLE).expect("it has a token");
        Token::read(&token.value, &Secret::new([1; 32]))
    }

    #[test]
    fn only_an_agent_with_a_server_for_each_session_is_known_by_its_token() {
        let session = SessionId::parse("ses_1").expect("a valid id");
        let own = || Some(Token::Session(session.clone()));
        for (agent, is_confirmed, expected) in [
            ("OpenCode", false, Some(Token::OpenCode)),
            ("OpenCode", true, Some(Token::OpenCode)),
            ("qwen-code", false, own()),
            ("@agentclientprotocol/claude-agent-acp", false, own()),
            ("fake", false, Some(Token::Untested)),
            ("", false, Some(Token::Untested)),
            ("fake", true, own()),
        ] {
            let servers = servers(is_confirmed);
            assert_eq!(token(&servers.of_session(agent, &session)), expected, "{agent}");
            let (server, ticket) = servers.of_new_session(agent);
            let is_own = matches!(token(&server), Some(Token::Ticket(_)));
            assert_eq!((is_own, ticket.is_empty()), (expected == own(), expected != own()), "{agent}");
        }
    }
}
