//! Opens new and old sessions, lists them, and closes them.

use std::time::Duration;

use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{CallError, Connection, Pending, Phase, Route, SessionFacts, State};
use crate::schema::{self, McpServer, SessionList};
use crate::translate::{Replay, SessionTotals};

/// How many times the start limit the opening of an old session may take while updates arrive, because one agent first finishes a
/// turn that broke off. After that the request fails.
const MOST_STARTS: u32 = 10;

/// A session that was opened or reopened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedSession {
    pub id: String,
    /// The history that the agent repeated. `None`: the session is new, or was resumed without its history.
    pub replay: Option<Replay>,
}

impl Connection {
    pub async fn new_session(&self, cwd: &str, servers: &[McpServer]) -> Result<OpenedSession, CallError> {
        let (reply, answer) = oneshot::channel();
        let params = json!({"cwd": cwd, "mcpServers": servers});
        let pending = Pending::NewSession { directory: cwd.to_owned(), is_copy: false, reply };
        self.request("session/new", &params, self.0.limits.start, pending, answer).await
    }

    /// Reopens a session of an earlier process: resumes it if the agent can, which repeats no history, or loads it otherwise.
    ///
    /// Success does not prove that the session exists, because one agent loads any id.
    pub async fn reopen_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        if self.offers("session/resume") {
            match self.reopen("session/resume", session, cwd, servers).await {
                Err(error) if error.is_method_absent() => {}
                resumed => return resumed,
            }
        }
        self.load_session(session, cwd, servers).await
    }

    pub async fn load_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        if !self.offers("session/load") {
            return Err(CallError::Unsupported("a way to open an old session again"));
        }
        self.reopen("session/load", session, cwd, servers).await
    }

    async fn reopen(
        &self,
        method: &'static str,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        {
            let mut state = self.lock();
            let route = state.sessions.entry(session.to_owned()).or_insert_with(|| Route {
                facts: SessionFacts::new(cwd.to_owned(), SessionTotals::of_old_session()),
                phase: Phase::Idle,
                heard_at: None,
            });
            if !matches!(route.phase, Phase::Idle) {
                return Err(CallError::Busy);
            }
            route.phase = Phase::Loading(Replay::default());
        }
        let (reply, answer) = oneshot::channel();
        let is_replayed = method == "session/load";
        let pending = Pending::OldSession { session: session.to_owned(), is_replayed, reply };
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": servers});
        let limit = self.0.limits.start;
        tokio::select! {
            biased;
            opened = self.request(method, &params, limit * MOST_STARTS, pending, answer) => opened,
            () = self.replay_stalls(session, limit) => Err(CallError::TimedOut { method, after: limit }),
        }
    }

    /// Waits until no update of a session that is being reopened has come for this long.
    async fn replay_stalls(&self, session: &str, limit: Duration) {
        let mut seen = 0;
        loop {
            sleep(limit).await;
            let now = match self.lock().sessions.get(session).map(|route| &route.phase) {
                Some(Phase::Loading(replay)) => replay.updates,
                _ => 0,
            };
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// Copies a session.
    pub async fn fork_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        self.require("session/fork", "copies of sessions")?;
        let (reply, answer) = oneshot::channel();
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": servers});
        let pending = Pending::NewSession { directory: cwd.to_owned(), is_copy: true, reply };
        self.request("session/fork", &params, self.0.limits.start, pending, answer).await
    }

    /// Reads one page of the agent's list of sessions.
    pub async fn list_sessions(
        &self,
        cwd: Option<&str>,
        cursor: Option<&str>,
    ) -> Result<SessionList, CallError> {
        self.require("session/list", "a list of sessions")?;
        let mut params = json!({});
        for (name, value) in [("cwd", cwd), ("cursor", cursor)] {
            if let Some(value) = value {
                params[name] = value.into();
            }
        }
        let answer = self.call("session/list", &params, self.0.limits.call).await?;
        schema::read(&answer).ok_or(CallError::Unreadable)
    }

    /// Closes a session, which can be reopened later. The session counts as closed even after an error, unless the error says that
    /// the agent lacks the method.
    pub async fn close_session(&self, session: &str) -> Result<(), CallError> {
        self.require("session/close", "a way to close sessions")?;
        // Removed before the request, because nothing can be prompted in a session that is being closed.
        let route = {
            let mut state = self.lock();
            match state.sessions.remove(session) {
                Some(route @ Route { phase: Phase::Idle, .. }) => route,
                Some(busy) => {
                    state.sessions.insert(session.to_owned(), busy);
                    return Err(CallError::Busy);
                }
                None => return Err(CallError::NoSession),
            }
        };
        let params = json!({"sessionId": session});
        let closed = self.call("session/close", &params, self.0.limits.call).await;
        if closed.as_ref().is_err_and(CallError::is_method_absent) {
            self.lock().sessions.entry(session.to_owned()).or_insert(route);
        }
        closed.map(drop)
    }

    /// Deletes a session for good. If the agent does not respond, it may have deleted the session, so the session counts as closed.
    pub async fn delete_session(&self, session: &str) -> Result<(), CallError> {
        self.require("session/delete", "a way to delete sessions")?;
        // Removed before the request, because nothing can be prompted in a session that is being deleted.
        let route = {
            let mut state = self.lock();
            match state.sessions.remove(session) {
                Some(busy) if !matches!(busy.phase, Phase::Idle) => {
                    state.sessions.insert(session.to_owned(), busy);
                    return Err(CallError::Busy);
                }
                route => route,
            }
        };
        let deleted = self.call("session/delete", &json!({"sessionId": session}), self.0.limits.call).await;
        let is_refused = matches!(deleted, Err(CallError::Rpc(_) | CallError::AuthRequired(_)));
        if let Some(route) = route.filter(|_| is_refused) {
            self.lock().sessions.entry(session.to_owned()).or_insert(route);
        }
        deleted.map(drop)
    }

    /// Whether the agent advertises a method and has not turned out to lack it.
    pub fn offers(&self, method: &str) -> bool {
        self.lock().offers(method)
    }

    /// Whether the agent advertises a method to reopen a session that was closed or is from an earlier process.
    pub fn can_reopen(&self) -> bool {
        self.offers("session/load") || self.offers("session/resume")
    }

    fn require(&self, method: &str, what: &'static str) -> Result<(), CallError> {
        if self.offers(method) { Ok(()) } else { Err(CallError::Unsupported(what)) }
    }
}

impl State {
    pub(super) fn offers(&self, method: &str) -> bool {
        let sessions = &self.capabilities.session_capabilities;
        let is_advertised = match method {
            "session/load" => self.capabilities.load_session,
            "session/resume" => sessions.resume,
            "session/list" => sessions.list,
            "session/fork" => sessions.fork,
            "session/close" => sessions.close,
            "session/delete" => sessions.delete,
            _ => false,
        };
        is_advertised && !self.absent.contains(method)
    }
}
