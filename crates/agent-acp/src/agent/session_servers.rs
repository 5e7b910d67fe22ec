//! MCP servers that know their session.

use std::fmt::Debug;

use longshore_model::SessionId;

use crate::schema::McpServer;

/// Gives each session an MCP server of its own, besides the configured ones.
pub trait SessionServers: Send + Sync + Debug {
    /// The server of a session that is about to be opened, and a ticket, because the agent starts the server before the session has an
    /// id. `agent`: what the agent calls itself.
    fn of_new_session(&self, agent: &str) -> (McpServer, String);

    /// The agent has opened the session of a ticket.
    fn bind(&self, ticket: &str, session: &SessionId);

    /// The server of a session that is opened again.
    fn of_session(&self, agent: &str, session: &SessionId) -> McpServer;
}
