//! Leases of an agent process: while something uses the process, the process is not stopped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use longshore_model::SessionId;
use tokio::sync::watch;

use super::host::{Host, lock};
use super::open_sessions::OpenSessions;
use crate::connection::{CallError, Connection};
use crate::launch::Running;
use crate::schema::{InitializeAnswer, McpServer, RemoteKind};

/// A running process.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) connection: Connection,
    pub(super) about: InitializeAnswer,
    /// The number of leases. Changed only while the host's state is locked.
    pub(super) uses: AtomicUsize,
    stuck: Mutex<HashMap<String, Stuck>>,
    pub(super) open_sessions: OpenSessions,
    /// Whether the agent lacked credentials. It may read new ones only when it starts.
    pub(super) lacks_credentials: AtomicBool,
    /// How the process ended. `None`: it still runs.
    pub(super) epitaph: watch::Sender<Option<String>>,
}

/// How a stuck session is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stuck {
    /// The agent was asked to close the session.
    IsClosing,
    /// The session is freed only by the end of the process.
    ForGood,
}

impl Live {
    pub(super) fn new(running: &Running) -> Self {
        Self {
            connection: running.connection.clone(),
            about: running.about.clone(),
            uses: AtomicUsize::new(0),
            stuck: Mutex::default(),
            open_sessions: OpenSessions::default(),
            lacks_credentials: AtomicBool::new(false),
            epitaph: watch::channel(None).0,
        }
    }

    /// Whether the agent may still work on a turn in this session although the turn is over in the gateway.
    pub(super) fn is_stuck(&self, session: &SessionId) -> bool {
        lock(&self.stuck).contains_key(session.as_str())
    }

    /// Whether any session is stuck until the process ends.
    pub(super) fn is_any_stuck(&self) -> bool {
        lock(&self.stuck).values().any(|stuck| *stuck == Stuck::ForGood)
    }
}

/// A lease of a process. While there is one, the process is not stopped for being idle or replaced.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) host: Arc<Host>,
    pub(super) live: Arc<Live>,
}

impl Lease {
    /// Takes another lease of the same process.
    pub(super) fn another(&self) -> Self {
        self.host.one_more_use(&self.live)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.live.connection
    }

    /// The agent's name for itself.
    pub(super) fn agent_name(&self) -> &str {
        &self.live.about.agent_info.name
    }

    /// The configured servers that the agent supports: agents differ in which kinds of remote servers they accept.
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

    /// Marks a session as stuck: the agent still works on a turn that it should have ended. Nothing is prompted in the session
    /// until the agent has closed it. If the agent cannot or does not close it, until the process has ended. A process with such a
    /// session gets no new turns.
    pub(super) fn free_session(&self, session: &str) {
        lock(&self.live.stuck).insert(session.to_owned(), Stuck::IsClosing);
        self.host.tasks.spawn("acp stuck session", free(self.another(), session.to_owned()));
    }

    /// Makes the next use start the agent again so that it reads new credentials, unless the agent would lose its sessions by that.
    pub(super) fn note_missing_credentials(&self) {
        self.live.lacks_credentials.store(true, Ordering::Relaxed);
    }

    /// Records that a turn succeeded, so that the agent no longer counts as failed.
    pub(super) fn note_worked(&self) {
        self.host.note_worked();
    }

    pub(super) fn note_session(&self, session: &str) {
        self.host.note_session(&self.live, session);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.host.one_use_less(&self.live);
    }
}

async fn free(lease: Lease, session: String) {
    let connection = lease.connection();
    let closed = if connection.can_reopen() {
        connection.abandon(&session);
        connection.close_session(&session).await
    } else {
        Err(CallError::Unsupported("a way to open a closed session again"))
    };
    let mut stuck = lock(&lease.live.stuck);
    match closed {
        // When an agent closes a session, it also ends the work in it.
        Ok(()) => drop(stuck.remove(&session)),
        Err(error) => {
            tracing::warn!(session, %error, "a session stays busy; the agent's process will be replaced");
            stuck.insert(session, Stuck::ForGood);
        }
    }
    // The host learns of it when the lease ends.
}
