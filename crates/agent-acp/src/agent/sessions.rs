//! Opens new sessions, and reopens those of an earlier process.

use std::time::Duration;

use longshore_engine::port::{NewSession, Session};
use longshore_model::{Error, ErrorKind, Result, SessionId};
use tokio::time::sleep;

use super::AcpAgent;
use super::lease::Lease;
use crate::connection::{CallError, Connection, OpenedSession};
use crate::schema::McpServer;
use crate::translate::Replay;

/// How often, and with which pause, the opening of a session is repeated while the agent is still opening it for an earlier
/// request. After that the session counts as lost.
const MAX_RETRIES: usize = 20;
const LOADING_PAUSE: Duration = Duration::from_millis(500);

const WITHOUT_HISTORY: &str = "The agent opened the session again and showed no history of it, so it may not know what was said before.";

const WENT_ON: &str = "When the agent opened the session again, it first went on with the turn before, which had broken off. What \
                       it did then is not shown here.";

impl AcpAgent {
    pub(super) async fn open(&self, request: NewSession) -> Result<Session> {
        // ACP has no title for a new session, because the agent chooses one.
        let NewSession { directory, title: _ } = request;
        self.workspace.check_unchanged(&directory).await?;
        let lease = self.host.lease().await?;
        let connection = lease.connection();
        let (servers, ticket) = self.servers_of_new_session(&lease);
        let opened = connection.new_session(&directory, &servers).await;
        let opened = opened.map_err(|cause| told(&lease, cause).into_error("open a session"))?;
        let id = SessionId::parse(&opened.id).map_err(|cause| {
            let text = "The agent gave the new session an id that is not valid.";
            Error::new(ErrorKind::InvalidAgentResponse, text).caused_by(cause)
        })?;
        self.bind(ticket, &id);
        lease.note_session(&opened.id);
        self.defaults.note_new(connection, id.as_str());
        lease.note_opened(id.as_str());
        lease.trim_sessions();
        Ok(Session { id, directory })
    }

    /// The MCP servers for a session that is about to be opened, and the ticket for the session's own server.
    pub(super) fn servers_of_new_session(&self, lease: &Lease) -> (Vec<McpServer>, Option<String>) {
        let mut servers = lease.servers(&self.config.mcp_servers);
        let own = self.config.session_servers.as_ref().map(|own| own.of_new_session(lease.agent_name()));
        let ticket = own.map(|(server, ticket)| {
            servers.push(server);
            ticket
        });
        (servers, ticket)
    }

    /// Binds a ticket to its session after the agent has opened the session.
    pub(super) fn bind(&self, ticket: Option<String>, session: &SessionId) {
        if let Some((own, ticket)) = self.config.session_servers.as_ref().zip(ticket) {
            own.bind(&ticket, session);
        }
    }

    /// Reopens a session of an earlier process. Returns a remark for the caller, if there is one.
    pub(super) async fn reopen(&self, lease: &Lease, session: &Session) -> Result<Option<&'static str>> {
        let (connection, id) = (lease.connection(), session.id.as_str());
        let mut servers = lease.servers(&self.config.mcp_servers);
        let own = self.config.session_servers.as_ref();
        servers.extend(own.map(|own| own.of_session(lease.agent_name(), &session.id)));
        let opened = reopen_when_free(connection, id, &session.directory, &servers).await;
        let opened = opened.inspect_err(
            |cause| tracing::info!(session = id, %cause, "an agent did not open a session again"),
        );
        let opened = opened.map_err(|cause| match told(lease, cause) {
            // All these errors mean that the agent will not continue the old session. Each agent has another error for a session
            // that it does not know.
            cause @ (CallError::Rpc(_) | CallError::Unsupported(_) | CallError::NoSession) => {
                cause.into_error("open the session again").with_kind(ErrorKind::SessionGone)
            }
            cause => cause.into_error("open the session again"),
        })?;
        lease.note_session(id);
        let heard = self.turns.take_broken(&session.id);
        Ok(opened.replay.and_then(|replay| remark(&replay, heard.as_deref())))
    }
}

fn told(lease: &Lease, cause: CallError) -> CallError {
    if matches!(cause, CallError::AuthRequired(_)) {
        lease.note_missing_credentials();
    }
    cause
}

/// Repeats the opening while the agent is still opening the session for an earlier request, which belonged to a task that was
/// canceled.
async fn reopen_when_free(
    connection: &Connection,
    session: &str,
    directory: &str,
    servers: &[McpServer],
) -> std::result::Result<OpenedSession, CallError> {
    for _ in 0..MAX_RETRIES {
        match connection.reopen_session(session, directory, servers).await {
            Err(CallError::Rpc(error)) if error.is_session_loading() => sleep(LOADING_PAUSE).await,
            opened => return opened,
        }
    }
    connection.reopen_session(session, directory, servers).await
}

/// The remark about a reopened session. `heard`: the gateway's text of the last turn, if that turn broke off.
fn remark(replay: &Replay, heard: Option<&str>) -> Option<&'static str> {
    if replay.prompts == 0 {
        return Some(WITHOUT_HISTORY);
    }
    heard.filter(|heard| replay.last.went_on(heard)).map(|_| WENT_ON)
}
