//! Lets callers list, copy, delete and continue the sessions that the agent keeps. Implements
//! [`longshore_engine::port::Control`].
//!
//! ACP has no request for a single session, so the gateway looks for a session that is not open in the agent's list.

use std::collections::HashSet;

use longshore_engine::port::{BoxFuture, Control, KnownSession, Session, SessionFinder};
use longshore_engine::to_control_error;
use longshore_model::{
    ControlCommand, ControlQuery, ControlResult, Error, ErrorKind, RequestedLocation, Result, SessionId,
    SessionInfo, SessionQuery,
};
use tokio::time::{Instant, timeout_at};

use super::AcpAgent;
use super::lease::Lease;
use crate::connection::CallError;
use crate::schema::ListedSession;

/// How many pages of the agent's list are read for one call. Sessions on further pages are not found.
const MAX_PAGES: usize = 100;

/// How many sessions of one page are read.
const MAX_ON_PAGE: usize = 10_000;

impl Control for AcpAgent {
    fn resolve_location<'a>(&'a self, location: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        Box::pin(self.workspace.locate(location))
    }

    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>> {
        Box::pin(async move {
            let lease = self.host.lease().await.map_err(to_control_error)?;
            let Some(found) = self.look_up(&lease, id).await? else { return Ok(None) };
            let Some(directory) = found.directory else { return Ok(None) };
            let is_open = self.workspace.is_open(&directory).await;
            let session = Session { id: id.clone(), directory };
            Ok(Some(KnownSession { session, parent: None, is_followed: true, is_open }))
        })
    }

    fn query<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        query: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            let lease = self.host.lease().await.map_err(to_control_error)?;
            match (query, session) {
                (ControlQuery::Sessions(query), _) => {
                    Ok(ControlResult::Sessions(self.listed(&lease, at, query).await?))
                }
                (ControlQuery::Session(_), Some(session)) => {
                    Ok(ControlResult::Session(self.read(&lease, session).await?))
                }
                _ => Err(absent()),
            }
        })
    }

    fn run_command<'a>(
        &'a self,
        _at: &'a str,
        session: Option<&'a Session>,
        command: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            let lease = self.host.lease().await.map_err(to_control_error)?;
            match (command, session) {
                (ControlCommand::Fork { before: None, .. }, Some(session)) => {
                    Ok(ControlResult::Session(self.fork(&lease, session).await?))
                }
                (ControlCommand::Delete(id), Some(_)) => {
                    let deleted = lease.connection().delete_session(id.as_str()).await;
                    deleted.map_err(|cause| changed(cause, "delete the session"))?;
                    self.chosen.forget(id.as_str());
                    Ok(ControlResult::Done { session: id.clone(), ok: true, begun: None })
                }
                _ => Err(absent()),
            }
        })
    }
}

impl SessionFinder for AcpAgent {
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move {
            let found = match self.find(id).await {
                // The agent cannot list its sessions, so the gateway cannot find one.
                Err(error) if error.kind() == ErrorKind::UnsupportedOperation => return Ok(None),
                found => found?,
            };
            Ok(found.filter(|known| known.is_open).map(|known| known.session))
        })
    }
}

impl AcpAgent {
    /// Looks a session up. `None`: the agent has no such session.
    async fn look_up(&self, lease: &Lease, id: &SessionId) -> Result<Option<SessionInfo>> {
        if let Some(facts) = lease.connection().facts(id.as_str()) {
            return Ok(Some(info(id.clone(), facts.title.as_deref(), Some(&facts.directory))));
        }
        self.search(lease, id).await
    }

    /// Reads the facts of a session that the gateway knows.
    async fn read(&self, lease: &Lease, session: &Session) -> Result<SessionInfo> {
        let id = &session.id;
        let open = lease.connection().facts(id.as_str());
        let told = open.as_ref().map(|open| info(id.clone(), open.title.as_deref(), Some(&open.directory)));
        if let Some(told) = told.clone().filter(|told| !told.title.is_empty()) {
            return Ok(told);
        }
        // Some agents report a title only in their list.
        match (self.search(lease, id).await, told) {
            (Ok(Some(found)), _) => Ok(found),
            // Some agents list a session only after its first turn.
            (Ok(None) | Err(_), Some(told)) => Ok(told),
            (Ok(None), None) => Err(not_found(id)),
            // The agent has no list, but the gateway knows the session.
            (Err(error), None) if error.kind() == ErrorKind::UnsupportedOperation => {
                Ok(info(id.clone(), None, Some(&session.directory)))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Looks for a session in the agent's list.
    async fn search(&self, lease: &Lease, id: &SessionId) -> Result<Option<SessionInfo>> {
        // One agent lists nothing unless a directory is given, and others list only the sessions of the given directory.
        let root = self.workspace.root().to_string_lossy().into_owned();
        let deadline = self.list_deadline();
        for directory in [Some(root.as_str()), None] {
            let mut pages = Pages::new(lease, directory, deadline);
            while let Some(page) = pages.next().await? {
                if let Some(found) = page.into_iter().find(|listed| listed.session_id == id.as_str()) {
                    return Ok(described(found, directory));
                }
            }
        }
        Ok(None)
    }

    /// The sessions in a directory, in the agent's order.
    async fn listed(&self, lease: &Lease, at: &str, query: &SessionQuery) -> Result<Vec<SessionInfo>> {
        let mut pages = Pages::new(lease, Some(at), self.list_deadline());
        let mut found: Vec<SessionInfo> = Vec::new();
        while let Some(page) = pages.next().await? {
            let listed = page.into_iter().filter_map(|listed| described(listed, Some(at)));
            found.extend(listed.filter(|session| session.directory.as_deref() == Some(at)));
            if found.len() >= query.limit as usize {
                break;
            }
        }
        found.truncate(query.limit as usize);
        Ok(found)
    }

    /// When the reading of the agent's list must end, however many pages the list has.
    fn list_deadline(&self) -> Instant {
        Instant::now() + self.config.limits.call * 2
    }

    async fn fork(&self, lease: &Lease, session: &Session) -> Result<SessionInfo> {
        self.workspace.check_unchanged(&session.directory).await?;
        let (connection, (servers, ticket)) = (lease.connection(), self.servers_of_new_session(lease));
        let forked = connection.fork_session(session.id.as_str(), &session.directory, &servers).await;
        let forked = forked.map_err(|cause| changed(cause, "copy the session"))?;
        let id = SessionId::parse(&forked.id).map_err(|cause| {
            let text = "The agent gave the copy an id that is not valid.";
            Error::new(ErrorKind::UpstreamPayloadError, text).caused_by(cause)
        })?;
        self.bind(ticket, &id);
        // The copy has the same options as the session.
        self.chosen.copy(session.id.as_str(), id.as_str());
        lease.note_opened(id.as_str());
        lease.trim_sessions();
        let title = connection.facts(id.as_str()).and_then(|facts| facts.title);
        Ok(info(id, title.as_deref(), Some(&session.directory)))
    }
}

/// Reads the pages of the agent's list of sessions.
struct Pages<'a> {
    lease: &'a Lease,
    directory: Option<&'a str>,
    deadline: Instant,
    read: usize,
    /// The cursor of the next page. `None`: the first page is next.
    cursor: Option<String>,
    seen: HashSet<String>,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn new(lease: &'a Lease, directory: Option<&'a str>, deadline: Instant) -> Self {
        Self { lease, directory, deadline, read: 0, cursor: None, seen: HashSet::new(), is_over: false }
    }

    async fn next(&mut self) -> Result<Option<Vec<ListedSession>>> {
        if self.is_over || self.read == MAX_PAGES {
            return Ok(None);
        }
        let cursor = self.cursor.take();
        let page = self.lease.connection().list_sessions(self.directory, cursor.as_deref());
        let mut page = timeout_at(self.deadline, page)
            .await
            .map_err(|_| too_slow())?
            .map_err(|cause| told(cause, "list its sessions"))?;
        page.sessions.truncate(MAX_ON_PAGE);
        self.read += 1;
        // If an agent repeats a cursor, reading stops. Otherwise it would never end.
        self.cursor = page.next_cursor.filter(|next| self.seen.insert(next.clone()));
        self.is_over = self.cursor.is_none();
        Ok(Some(page.sessions))
    }
}

/// Converts an entry of the list. `directory`: used if the agent names none. `None`: the id is not valid, so no caller could name
/// the session.
fn described(listed: ListedSession, directory: Option<&str>) -> Option<SessionInfo> {
    let ListedSession { session_id, cwd, title, updated_at: _ } = listed;
    Some(info(SessionId::parse(&session_id).ok()?, title.as_deref(), cwd.as_deref().or(directory)))
}

fn info(id: SessionId, title: Option<&str>, directory: Option<&str>) -> SessionInfo {
    SessionInfo {
        id,
        title: title.unwrap_or_default().to_owned(),
        project: None,
        directory: directory.map(str::to_owned),
        parent: None,
        workspace: None,
        version: None,
        share_url: None,
        revert: None,
        created: None,
        updated: None,
    }
}

/// The error for a request that changes something. If the response was lost, the agent may have made the change.
fn changed(cause: CallError, what: &str) -> Error {
    let is_lost = matches!(cause, CallError::TimedOut { .. } | CallError::Closed(_) | CallError::Unreadable);
    let error = told(cause, what);
    if is_lost { error.mark_maybe_applied() } else { error }
}

/// The error for callers. A method that the agent advertises but lacks is reported like one that it does not advertise.
fn told(cause: CallError, what: &str) -> Error {
    let is_absent = cause.is_method_absent();
    let error = to_control_error(cause.into_error(what));
    if is_absent { error.with_kind(ErrorKind::UnsupportedOperation) } else { error }
}

fn not_found(id: &SessionId) -> Error {
    let text = "The agent has no such session, or no longer.";
    Error::new(ErrorKind::SessionNotFound, text).detail("sessionId", id.as_str())
}

fn too_slow() -> Error {
    Error::new(ErrorKind::UpstreamUnreachable, "The agent took too long to list its sessions; try again.")
}

fn absent() -> Error {
    Error::new(ErrorKind::UnsupportedOperation, "This agent has no such method.")
}
