//! A control surface that knows the sessions that the test adds, and logs its calls.
//!
//! Each call gets a simple result of the right kind, unless the test arranges another one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    BoxFuture, Control, ExternalTurn, Input, KnownSession, NativePrompts, RemovedPlace, RemovedSession,
    Removes, Session, SessionWatch, caller,
};
use longshore_model::{
    AgentMessageId, Catalog, ControlCommand, ControlQuery, ControlResult, Error, NativePrompt, Offers,
    Principal, Project, PromptId, PromptOptions, RequestedLocation, Result, Role, SessionId, SessionInfo,
    SessionStatus, StoredMessage, Timestamp, Workspace, WorkspaceId, Worktree, WorktreeRef,
};
use tokio::sync::mpsc;

use crate::scripted_agent::Gate;

/// The directory of everything that names no other.
pub const ROOT: &str = "workspace";

#[derive(Debug, Default)]
pub struct ScriptedControl {
    state: Mutex<State>,
    /// Gates at which calls wait while the test holds them.
    pub finds: Gate,
    pub acts: Gate,
    pub notes: Gate,
    pub asked_offers: Gate,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<SessionId, KnownSession>,
    busy: Vec<SessionId>,
    messages: Vec<StoredMessage>,
    worktrees: Vec<Worktree>,
    /// With their directories.
    workspaces: BTreeMap<WorkspaceId, String>,
    /// The workspaces of the sessions that are in one.
    workspace_of: BTreeMap<SessionId, WorkspaceId>,
    offers: VecDeque<Result<Offers>>,
    refused_acts: VecDeque<Error>,
    lost_acts: VecDeque<Error>,
    refused_orders: VecDeque<Error>,
    refused_looks: VecDeque<Error>,
    forks: usize,
    calls: Vec<Call>,
    /// For whom each call was made. `None`: for the gateway itself.
    callers: Vec<Option<Principal>>,
    watched: Vec<Session>,
}

/// A logged call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Place(RequestedLocation),
    Find(SessionId),
    ControlQuery(String, Option<Session>, ControlQuery),
    ControlCommand(String, Option<Session>, ControlCommand),
    Check(SessionId),
    Note(SessionId, Vec<Input>),
    Offers,
}

impl ScriptedControl {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a session in the root.
    pub fn add(&self, id: &str) -> Session {
        self.add_known(KnownSession { session: session(id), parent: None, is_followed: true, is_open: true })
    }

    /// Adds a session of a sub-agent.
    pub fn add_child(&self, id: &str, parent: &str) -> Session {
        let parent = Some(session(parent).id);
        self.add_known(KnownSession { session: session(id), parent, is_followed: true, is_open: true })
    }

    /// Adds a session in a workspace.
    pub fn add_in_workspace(&self, id: &str) -> Session {
        self.add_to_workspace("wrk_1", session(id), None)
    }

    /// Adds a session in this workspace, optionally with a parent.
    pub fn add_to_workspace(&self, workspace: &str, session: Session, parent: Option<SessionId>) -> Session {
        let workspace = WorkspaceId::parse(workspace).expect("an id");
        self.lock().workspace_of.insert(session.id.clone(), workspace);
        self.add_known(KnownSession { session, parent, is_followed: false, is_open: true })
    }

    /// Adds a session in a directory that callers may not use.
    pub fn add_out_of_bounds(&self, id: &str) -> Session {
        let session = Session { directory: "elsewhere".to_owned(), ..session(id) };
        self.add_known(KnownSession { session, parent: None, is_followed: true, is_open: false })
    }

    pub fn add_known(&self, known: KnownSession) -> Session {
        let session = known.session.clone();
        self.lock().known.insert(session.id.clone(), known);
        session
    }

    /// Removes the session.
    pub fn forget(&self, id: &SessionId) {
        self.lock().known.remove(id);
    }

    /// Makes the session busy.
    pub fn make_busy(&self, id: &SessionId) {
        self.lock().busy.push(id.clone());
    }

    pub fn add_worktree(&self, name: &str, directory: &str) {
        let worktree = Worktree { name: name.to_owned(), branch: None, directory: directory.to_owned() };
        self.lock().worktrees.push(worktree);
    }

    pub fn add_workspace(&self, id: &str, directory: &str) {
        let id = WorkspaceId::parse(id).expect("an id");
        self.lock().workspaces.insert(id, directory.to_owned());
    }

    /// Adds a message that every session has.
    pub fn add_message(&self, id: &str, role: Role, text: &str) {
        let message = stored(id, &session("ses_any").id, role, text);
        self.lock().messages.push(message);
    }

    /// Refuses the next command with this error. Calls add up.
    pub fn refuse_next_command(&self, error: Error) {
        self.lock().refused_acts.push_back(error);
    }

    /// Executes the next command and answers it with this error.
    pub fn lose_next_command(&self, error: Error) {
        self.lock().lost_acts.push_back(error);
    }

    pub fn refuse_next_native_prompt(&self, error: Error) {
        self.lock().refused_orders.push_back(error);
    }

    pub fn refuse_next_query(&self, error: Error) {
        self.lock().refused_looks.push_back(error);
    }

    /// The result of the next `offers`. Calls add up; the default is nothing.
    pub fn offer_next(&self, offers: Result<Offers>) {
        self.lock().offers.push_back(offers);
    }

    /// The calls since the last `take_calls`.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    pub fn watched(&self) -> Vec<Session> {
        self.lock().watched.clone()
    }

    /// The callers of all calls since the last time.
    pub fn take_callers(&self) -> Vec<Option<Principal>> {
        std::mem::take(&mut self.lock().callers)
    }

    fn note_call(&self, call: Call) {
        let mut state = self.lock();
        state.calls.push(call);
        state.callers.push(caller());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in the root.
pub fn session(id: &str) -> Session {
    let id = SessionId::parse(id).expect("a valid session id");
    Session { id, directory: ROOT.to_owned() }
}

fn stored(id: &str, session: &SessionId, role: Role, text: &str) -> StoredMessage {
    let id = AgentMessageId::parse(id).expect("a valid message id");
    let (session, text) = (session.clone(), text.to_owned());
    StoredMessage { id, session, role, text, created: None, error: None }
}

fn info(known: &KnownSession) -> SessionInfo {
    let KnownSession { session, parent, .. } = known;
    SessionInfo {
        id: session.id.clone(),
        title: format!("About {}", session.id),
        project: None,
        directory: Some(session.directory.clone()),
        parent: parent.clone(),
        workspace: None,
        version: None,
        share_url: None,
        revert: None,
        created: None,
        updated: None,
    }
}

fn catalog<T>() -> Catalog<T> {
    Catalog { items: Vec::new(), default_by_provider: BTreeMap::new(), connected: Vec::new() }
}

fn project() -> Project {
    Project {
        id: "global".to_owned(),
        name: None,
        vcs: None,
        worktree: Some(ROOT.to_owned()),
        sandboxes: Vec::new(),
        created: None,
        updated: None,
        initialized: None,
    }
}

impl State {
    fn info(&self, session: Option<&Session>) -> Result<SessionInfo> {
        let id = &session.ok_or_else(|| Error::internal("a session is missing"))?.id;
        let known = self.known.get(id).map(info);
        known.ok_or_else(|| {
            Error::new(longshore_model::ErrorKind::SessionNotFound, "The agent has no such session.")
        })
    }

    fn look(&self, at: &str, session: Option<&Session>, query: &ControlQuery) -> Result<ControlResult> {
        Ok(match query {
            ControlQuery::Statuses => ControlResult::Statuses(
                self.busy
                    .iter()
                    .map(|id| SessionStatus {
                        session: id.clone(),
                        kind: "busy".to_owned(),
                        attempt: None,
                        message: None,
                        next: None,
                    })
                    .collect(),
            ),
            ControlQuery::Sessions(wanted) => {
                let here = self.known.values().filter(|known| known.session.directory == at);
                let listed = here.filter(|known| wanted.roots != Some(true) || known.parent.is_none());
                // The newest first: a newer session has a greater id.
                ControlResult::Sessions(listed.rev().take(wanted.limit as usize).map(info).collect())
            }
            ControlQuery::Session(_) => ControlResult::Session(self.info(session)?),
            ControlQuery::Children(id) => {
                let children = self.known.values().filter(|known| known.parent.as_ref() == Some(id));
                ControlResult::Sessions(children.map(info).collect())
            }
            ControlQuery::Todos(_) => ControlResult::Todos(Vec::new()),
            ControlQuery::Diffs { .. } => ControlResult::Diffs(Vec::new()),
            ControlQuery::Messages { .. } => {
                ControlResult::Messages { items: self.messages.clone(), next: None }
            }
            ControlQuery::Message { session, message } => {
                ControlResult::Message(stored(message.as_str(), session, Role::Agent, ""))
            }
            ControlQuery::Providers => ControlResult::Providers(catalog()),
            ControlQuery::Models { .. } => ControlResult::Models(catalog()),
            ControlQuery::Projects => ControlResult::Projects(vec![project()]),
            ControlQuery::Project => ControlResult::Project(project()),
            ControlQuery::Workspaces => ControlResult::Workspaces(Vec::new()),
            ControlQuery::Worktrees => ControlResult::Worktrees(self.worktrees.clone()),
        })
    }

    fn act(&mut self, session: Option<&Session>, command: &ControlCommand) -> Result<ControlResult> {
        Ok(match command {
            ControlCommand::Fork { .. } => {
                let original = self.info(session)?;
                self.forks += 1;
                let id = format!("{}_fork_{}", original.id, self.forks);
                let id = SessionId::parse(&id).map_err(Error::internal)?;
                let directory = original.directory.unwrap_or_else(|| ROOT.to_owned());
                let session = Session { id, directory };
                let fork = KnownSession { session, parent: None, is_followed: true, is_open: true };
                let result = ControlResult::Session(info(&fork));
                self.known.insert(fork.session.id.clone(), fork);
                result
            }
            ControlCommand::Share(_)
            | ControlCommand::Unshare(_)
            | ControlCommand::Revert { .. }
            | ControlCommand::Unrevert(_) => ControlResult::Session(self.info(session)?),
            ControlCommand::Delete(session) => {
                self.known.retain(|id, known| id != session && known.parent.as_ref() != Some(session));
                ControlResult::Done { session: session.clone(), ok: true, begun: None }
            }
            ControlCommand::Summarize { session, .. } => {
                ControlResult::Done { session: session.clone(), ok: true, begun: None }
            }
            ControlCommand::Shell { session, .. } => {
                ControlResult::Message(stored("msg_shell", session, Role::Agent, "done"))
            }
            ControlCommand::CreateWorkspace(new) => {
                let id = new.id.clone().map_or_else(|| WorkspaceId::parse("wrk_made"), Ok);
                ControlResult::Workspace(Some(Workspace {
                    kind: Some(new.kind.clone()),
                    branch: new.branch.clone(),
                    ..workspace(id.map_err(Error::internal)?)
                }))
            }
            ControlCommand::RemoveWorkspace(id) => {
                let Self { known, workspace_of, .. } = self;
                known.retain(|session, _| workspace_of.get(session) != Some(id));
                let removed = self.workspaces.remove(id);
                let removed = removed
                    .map(|directory| Workspace { directory: Some(directory), ..workspace(id.clone()) });
                ControlResult::Workspace(removed)
            }
            ControlCommand::CreateWorktree(new) => {
                let name = new.name.clone().unwrap_or_else(|| "made".to_owned());
                let directory = format!("worktrees/{name}");
                ControlResult::Worktree(Worktree { name, branch: None, directory })
            }
            ControlCommand::RemoveWorktree(_) | ControlCommand::ResetWorktree(_) => ControlResult::Ok(true),
        })
    }
}

impl State {
    fn is_in(&self, session: &SessionId, workspace: &WorkspaceId) -> bool {
        self.workspace_of.get(session) == Some(workspace)
    }
}

fn workspace(id: WorkspaceId) -> Workspace {
    Workspace { id, kind: None, name: None, branch: None, directory: None, project: None, used: None }
}

impl Control for ScriptedControl {
    fn resolve_location<'a>(&'a self, requested: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move {
            self.note_call(Call::Place(requested.clone()));
            match &requested.directory {
                Some(directory) if directory.path.starts_with('/') => {
                    Err(Error::invalid(directory.field, "is out of bounds"))
                }
                Some(directory) => Ok(directory.path.clone()),
                None => Ok(ROOT.to_owned()),
            }
        })
    }

    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>> {
        Box::pin(async move {
            self.note_call(Call::Find(id.clone()));
            self.finds.pass().await;
            Ok(self.lock().known.get(id).cloned())
        })
    }

    fn query<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        query: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            self.note_call(Call::ControlQuery(at.to_owned(), session.cloned(), query.clone()));
            if let Some(error) = self.lock().refused_looks.pop_front() {
                return Err(error);
            }
            self.lock().look(at, session, query)
        })
    }

    fn run_command<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        command: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            self.note_call(Call::ControlCommand(at.to_owned(), session.cloned(), command.clone()));
            self.acts.pass().await;
            if let Some(error) = self.lock().refused_acts.pop_front() {
                return Err(error);
            }
            let mut state = self.lock();
            let result = state.act(session, command);
            state.lost_acts.pop_front().map_or(result, Err)
        })
    }

    fn forks<'a>(
        &'a self,
        session: &'a Session,
        _before: Option<&'a AgentMessageId>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        Box::pin(async move {
            let state = self.lock();
            let name = format!("{}_fork_", session.id);
            let forks = state.known.values().filter(|known| known.session.id.as_str().starts_with(&name));
            Ok(forks.map(|known| known.session.clone()).collect())
        })
    }

    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        Box::pin(async move {
            self.note_call(Call::Offers);
            self.asked_offers.pass().await;
            self.lock().offers.pop_front().unwrap_or_else(|| Ok(Offers::default()))
        })
    }

    fn native_prompts(&self) -> Option<&dyn NativePrompts> {
        Some(self)
    }

    fn removes<'a>(&'a self, command: &'a ControlCommand) -> BoxFuture<'a, Result<Removes>> {
        Box::pin(async move {
            let state = self.lock();
            Ok(match command {
                ControlCommand::RemoveWorktree(wanted) | ControlCommand::ResetWorktree(wanted) => {
                    let is_wanted = |worktree: &&Worktree| match wanted {
                        WorktreeRef::Directory(directory) => worktree.directory == *directory,
                        WorktreeRef::Name(name) => worktree.name == *name,
                    };
                    let found = state.worktrees.iter().find(is_wanted);
                    let found = found.ok_or_else(|| Error::invalid("request.directory", "is no worktree"))?;
                    let directory = Some(found.directory.clone());
                    Removes::Place(RemovedPlace { directory, sessions: Vec::new() })
                }
                ControlCommand::RemoveWorkspace(id) => match state.workspaces.get(id).cloned() {
                    Some(directory) => {
                        let inside = state.known.values().filter(|known| state.is_in(&known.session.id, id));
                        let sessions = inside.map(|known| RemovedSession {
                            session: known.session.clone(),
                            parent: known.parent.clone(),
                        });
                        let sessions = sessions.collect();
                        Removes::Place(RemovedPlace { directory: Some(directory), sessions })
                    }
                    None => Removes::Absent(Box::new(ControlResult::Workspace(None))),
                },
                _ => Removes::Nothing,
            })
        })
    }

    fn session_watch(&self) -> Option<&dyn SessionWatch> {
        Some(self)
    }
}

impl NativePrompts for ScriptedControl {
    fn check_native_prompt<'a>(
        &'a self,
        session: &'a Session,
        _order: &'a NativePrompt,
        _input: &'a [Input],
        _options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_call(Call::Check(session.id.clone()));
            self.lock().refused_orders.pop_front().map_or(Ok(()), Err)
        })
    }

    fn note<'a>(
        &'a self,
        session: &'a Session,
        _order: &'a NativePrompt,
        input: &'a [Input],
        _options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_call(Call::Note(session.id.clone(), input.to_vec()));
            self.notes.pass().await;
            self.lock().refused_acts.pop_front().map_or(Ok(()), Err)
        })
    }

    fn is_prompt(&self, message: &AgentMessageId, prompt: &PromptId) -> bool {
        message.as_str() == prompt.as_str()
    }
}

impl SessionWatch for ScriptedControl {
    fn watch(&self, sessions: Vec<Session>) {
        self.lock().watched.extend(sessions);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        mpsc::channel(1).1
    }

    fn external_turn<'a>(&'a self, _session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>> {
        Box::pin(async { Ok(None) })
    }
}
