//! Opens sessions: new ones, and those of an earlier process.

use std::time::Duration;

use longshore_engine::port::{NewSession, Session};
use longshore_model::{Error, ErrorKind, Result, SessionId};
use tokio::time::sleep;

use super::AcpAgent;
use super::lease::Lease;
use crate::connection::{CallError, Connection, OpenedSession};
use crate::schema::McpServer;
use crate::translate::Replay;

/// How often, and after which pause, the opening of a session is tried again while the agent still opens it for an earlier
/// request. Then the session counts as lost.
const MAX_RETRIES: usize = 20;
const LOADING_PAUSE: Duration = Duration::from_millis(500);

const WITHOUT_HISTORY: &str = "The agent opened the session again and showed no history of it, so it may not know what was said before.";

const WENT_ON: &str = "When the agent opened the session again, it first went on with the turn before, which had broken off. What \
                       it did then is not shown here.";

impl AcpAgent {
    pub(super) async fn open(&self, request: NewSession) -> Result<Session> {
        // ACP has no title for a new session: the agent chooses one.
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

    /// The MCP servers of a session that is about to be opened, and the ticket of its own one.
    pub(super) fn servers_of_new_session(&self, lease: &Lease) -> (Vec<McpServer>, Option<String>) {
        let mut servers = lease.servers(&self.config.mcp_servers);
        let own = self.config.session_servers.as_ref().map(|own| own.of_new_session(lease.agent_name()));
        let ticket = own.map(|(server, ticket)| {
            servers.push(server);
            ticket
        });
        (servers, ticket)
    }

    /// The agent has opened the session of a ticket.
    pub(super) fn bind(&self, ticket: Option<String>, session: &SessionId) {
        if let Some((own, ticket)) = self.config.session_servers.as_ref().zip(ticket) {
            own.bind(&ticket, session);
        }
    }

    /// Opens a session of an earlier process again. Returns what the caller should know.
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
            // Whatever the agent says about an old session: it does not go on with it. Each agent has another error for a session
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

/// Tries again while the agent still opens the session for an earlier request: a task that was canceled meanwhile gave it up.
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

/// `heard`: what the gateway had heard of the last turn, if that broke off.
fn remark(replay: &Replay, heard: Option<&str>) -> Option<&'static str> {
    if replay.prompts == 0 {
        return Some(WITHOUT_HISTORY);
    }
    heard.filter(|heard| replay.last.went_on(heard)).map(|_| WENT_ON)
}
