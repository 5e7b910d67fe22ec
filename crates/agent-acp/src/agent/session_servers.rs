//! MCP servers that are specific to one session.

use std::fmt::Debug;

use longshore_model::SessionId;

use crate::schema::McpServer;

/// Gives each session its own MCP server in addition to the configured ones.
pub trait SessionServers: Send + Sync + Debug {
    /// The server for a session that is about to be opened, and a ticket. The ticket stands for the session, because the agent
    /// starts the server before the session has an id. `agent`: the agent's name for itself.
    fn of_new_session(&self, agent: &str) -> (McpServer, String);

    /// Binds a ticket to its session after the agent has opened the session.
    fn bind(&self, ticket: &str, session: &SessionId);

    /// The server for a session that is reopened.
    fn of_session(&self, agent: &str, session: &SessionId) -> McpServer;
}
