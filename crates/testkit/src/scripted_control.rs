//! A control surface that knows the sessions that the test gives it, and notes what it is asked.
//!
//! It answers each call with something plain of the right kind, unless the test says otherwise.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_engine::port::{
    BoxFuture, Control, ExternalTurn, Inhabitant, Inhabited, Input, Known, Session,
};
use longshore_model::{
    Catalog, ControlCommand, ControlQuery, ControlResult, Error, MessageRef, Offers, Order, Project,
    PromptOptions, RequestedLocation, Result, Role, SessionId, SessionInfo, SessionStatus, StoredMessage,
    Timestamp, Workspace, WorkspaceId, Worktree, WorktreeRef,
};
use tokio::sync::mpsc;

use crate::scripted_agent::Gate;

/// Where everything happens unless somebody wishes otherwise.
pub const ROOT: &str = "workspace";

#[derive(Debug, Default)]
pub struct ScriptedControl {
    state: Mutex<State>,
    /// Where calls wait while the test holds them.
    pub finds: Gate,
    pub acts: Gate,
    pub notes: Gate,
    pub asked_offers: Gate,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<SessionId, Known>,
    busy: Vec<SessionId>,
    messages: Vec<StoredMessage>,
    worktrees: Vec<Worktree>,
    /// With their directories. Sessions say themselves which they are in.
    workspaces: BTreeMap<WorkspaceId, String>,
    offers: VecDeque<Result<Offers>>,
    refused_acts: VecDeque<Error>,
    lost_acts: VecDeque<Error>,
    refused_orders: VecDeque<Error>,
    refused_looks: VecDeque<Error>,
    forks: usize,
    calls: Vec<Call>,
    watched: Vec<Session>,
}

/// What was asked, in order.
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

    /// The agent has this session, in the root.
    pub fn add(&self, id: &str) -> Session {
        self.add_known(Known { session: session(id), parent: None, workspace: None, is_open: true })
    }

    /// The agent has this session of a sub-agent.
    pub fn add_child(&self, id: &str, parent: &str) -> Session {
        let parent = Some(session(parent).id);
        self.add_known(Known { session: session(id), parent, workspace: None, is_open: true })
    }

    /// The agent has this session in a workspace.
    pub fn add_in_workspace(&self, id: &str) -> Session {
        let workspace = Some(WorkspaceId::parse("wrk_1").expect("an id"));
        self.add_known(Known { session: session(id), parent: None, workspace, is_open: true })
    }

    /// The agent has this session in a directory that callers may not use.
    pub fn add_out_of_bounds(&self, id: &str) -> Session {
        let session = Session { directory: "elsewhere".to_owned(), ..session(id) };
        self.add_known(Known { session, parent: None, workspace: None, is_open: false })
    }

    pub fn add_known(&self, known: Known) -> Session {
        let session = known.session.clone();
        self.lock().known.insert(session.id.clone(), known);
        session
    }

    /// The agent forgets the session.
    pub fn forget(&self, id: &SessionId) {
        self.lock().known.remove(id);
    }

    /// Says that something runs there.
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

    /// A message that a session has, whichever is asked about.
    pub fn add_message(&self, id: &str, role: Role, text: &str) {
        let message = stored(id, &session("ses_any").id, role, text);
        self.lock().messages.push(message);
    }

    /// The next act is refused with this error. Calls add up.
    pub fn refuse_next_act(&self, error: Error) {
        self.lock().refused_acts.push_back(error);
    }

    /// The next act is done, and answered with this error.
    pub fn lose_next_act(&self, error: Error) {
        self.lock().lost_acts.push_back(error);
    }

    pub fn refuse_next_order(&self, error: Error) {
        self.lock().refused_orders.push_back(error);
    }

    pub fn refuse_next_look(&self, error: Error) {
        self.lock().refused_looks.push_back(error);
    }

    /// What is offered when that is asked next. Calls add up; otherwise nothing is.
    pub fn offer_next(&self, offers: Result<Offers>) {
        self.lock().offers.push_back(offers);
    }

    /// What was asked until now, and forgets it.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    pub fn watched(&self) -> Vec<Session> {
        self.lock().watched.clone()
    }

    fn note_call(&self, call: Call) {
        self.lock().calls.push(call);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in the root.
pub fn session(id: &str) -> Session {
    let id = SessionId::parse(id).expect("a test names its sessions by the rule");
    Session { id, directory: ROOT.to_owned() }
}

fn stored(id: &str, session: &SessionId, role: Role, text: &str) -> StoredMessage {
    let id = MessageRef::parse(id).expect("a test names its messages by the rule");
    let (session, text) = (session.clone(), text.to_owned());
    StoredMessage { id, session, role, text, created: None, error: None }
}

fn info(known: &Known) -> SessionInfo {
    let Known { session, parent, workspace, .. } = known;
    SessionInfo {
        id: session.id.clone(),
        title: format!("About {}", session.id),
        project: None,
        directory: Some(session.directory.clone()),
        parent: parent.clone(),
        workspace: workspace.clone(),
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

    fn look(&self, at: &str, session: Option<&Session>, look: &ControlQuery) -> Result<ControlResult> {
        Ok(match look {
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
            ControlQuery::Sessions(query) => {
                let here = self.known.values().filter(|known| known.session.directory == at);
                let wanted = here.filter(|known| query.roots != Some(true) || known.parent.is_none());
                // The newest first, and the name of a newer one is greater.
                ControlResult::Sessions(wanted.rev().take(query.limit as usize).map(info).collect())
            }
            ControlQuery::Session(_) => ControlResult::Session(self.info(session)?),
            ControlQuery::Children(id) => {
                let below = self.known.values().filter(|known| known.parent.as_ref() == Some(id));
                ControlResult::Sessions(below.map(info).collect())
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

    fn act(&mut self, session: Option<&Session>, act: &ControlCommand) -> Result<ControlResult> {
        Ok(match act {
            ControlCommand::Fork { .. } => {
                let of = self.info(session)?;
                self.forks += 1;
                let id =
                    SessionId::parse(&format!("{}_fork_{}", of.id, self.forks)).map_err(Error::internal)?;
                let directory = of.directory.unwrap_or_else(|| ROOT.to_owned());
                let session = Session { id, directory };
                let fork = Known { session, parent: None, workspace: None, is_open: true };
                let told = ControlResult::Session(info(&fork));
                self.known.insert(fork.session.id.clone(), fork);
                told
            }
            ControlCommand::Share(_)
            | ControlCommand::Unshare(_)
            | ControlCommand::Revert { .. }
            | ControlCommand::Unrevert(_) => ControlResult::Session(self.info(session)?),
            ControlCommand::Summarize { session, .. } => {
                ControlResult::Done { session: session.clone(), ok: true, begun: None }
            }
            ControlCommand::Shell { session, .. } => {
                ControlResult::Message(stored("msg_shell", session, Role::Agent, "done"))
            }
            ControlCommand::CreateWorkspace(new) => {
                let id = new.id.clone().map_or_else(|| WorkspaceId::parse("wrk_made"), Ok);
                ControlResult::Workspace(Some(Workspace {
                    id: id.map_err(Error::internal)?,
                    kind: Some(new.kind.clone()),
                    name: None,
                    branch: new.branch.clone(),
                    directory: None,
                    project: None,
                    used: None,
                }))
            }
            ControlCommand::RemoveWorkspace(id) => {
                let workspace = |directory| Workspace {
                    id: id.clone(),
                    kind: None,
                    name: None,
                    branch: None,
                    directory: Some(directory),
                    project: None,
                    used: None,
                };
                self.known.retain(|_, known| known.workspace.as_ref() != Some(id));
                ControlResult::Workspace(self.workspaces.remove(id).map(workspace))
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

impl Control for ScriptedControl {
    fn place<'a>(&'a self, wish: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move {
            self.note_call(Call::Place(wish.clone()));
            match &wish.directory {
                Some(wished) if wished.path.starts_with('/') => {
                    Err(Error::invalid(wished.field, "is out of bounds"))
                }
                Some(wished) => Ok(wished.path.clone()),
                None => Ok(ROOT.to_owned()),
            }
        })
    }

    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Known>>> {
        Box::pin(async move {
            self.note_call(Call::Find(id.clone()));
            self.finds.pass().await;
            Ok(self.lock().known.get(id).cloned())
        })
    }

    fn look<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        look: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            self.note_call(Call::ControlQuery(at.to_owned(), session.cloned(), look.clone()));
            if let Some(error) = self.lock().refused_looks.pop_front() {
                return Err(error);
            }
            self.lock().look(at, session, look)
        })
    }

    fn act<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        act: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(async move {
            self.note_call(Call::ControlCommand(at.to_owned(), session.cloned(), act.clone()));
            self.acts.pass().await;
            if let Some(error) = self.lock().refused_acts.pop_front() {
                return Err(error);
            }
            let mut state = self.lock();
            let told = state.act(session, act);
            state.lost_acts.pop_front().map_or(told, Err)
        })
    }

    fn forks<'a>(
        &'a self,
        session: &'a Session,
        _before: Option<&'a MessageRef>,
        _since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        Box::pin(async move {
            let state = self.lock();
            let name = format!("{}_fork_", session.id);
            let forks = state.known.values().filter(|known| known.session.id.as_str().starts_with(&name));
            Ok(forks.map(|known| known.session.clone()).collect())
        })
    }

    fn check_order<'a>(
        &'a self,
        session: &'a Session,
        _order: &'a Order,
        _options: &'a PromptOptions,
        _may_run: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_call(Call::Check(session.id.clone()));
            self.lock().refused_orders.pop_front().map_or(Ok(()), Err)
        })
    }

    fn note<'a>(
        &'a self,
        session: &'a Session,
        _order: &'a Order,
        input: &'a [Input],
        _options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_call(Call::Note(session.id.clone(), input.to_vec()));
            self.notes.pass().await;
            self.lock().refused_acts.pop_front().map_or(Ok(()), Err)
        })
    }

    fn worktree<'a>(&'a self, wanted: &'a WorktreeRef) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move {
            let is_wanted = |worktree: &&Worktree| match wanted {
                WorktreeRef::Directory(directory) => worktree.directory == *directory,
                WorktreeRef::Name(name) => worktree.name == *name,
            };
            let found = self.lock().worktrees.iter().find(is_wanted).map(|found| found.directory.clone());
            found.ok_or_else(|| Error::invalid("request.directory", "is no worktree"))
        })
    }

    fn workspace<'a>(&'a self, id: &'a WorkspaceId) -> BoxFuture<'a, Result<Option<Inhabited>>> {
        Box::pin(async move {
            let state = self.lock();
            let Some(directory) = state.workspaces.get(id).cloned() else { return Ok(None) };
            let of_it = |known: &&Known| known.workspace.as_ref() == Some(id);
            let sessions = state
                .known
                .values()
                .filter(of_it)
                .map(|known| Inhabitant { session: known.session.clone(), parent: known.parent.clone() });
            Ok(Some(Inhabited { directory: Some(directory), sessions: sessions.collect() }))
        })
    }

    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        Box::pin(async move {
            self.note_call(Call::Offers);
            self.asked_offers.pass().await;
            self.lock().offers.pop_front().unwrap_or_else(|| Ok(Offers::default()))
        })
    }

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
