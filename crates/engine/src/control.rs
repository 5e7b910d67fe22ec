//! Runs the control calls: queries and commands with which callers read and change sessions outside of turns. Decides who may
//! make a call, when a call is possible, and which sessions the caller owns afterwards.
//!
//! A command runs in a background task, because its caller may disconnect: the command is done completely or not at all, and its
//! callback receives the result. Nothing in this module prompts the agent: a native prompt becomes a task
//! ([`crate::service`]).

mod deletion;
mod exclusive;
mod guard;
mod listing;
mod native_prompts;
mod outcome;
mod removal;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore_model::{
    AgentMessageId, Control as Call, ControlCommand, ControlQuery, ControlRequest, ControlResult, Error,
    NativePrompt, NativePromptRequest, Offers, Principal, RequestedLocation, Result, SessionId, TaskId,
    Timestamp,
};
use tokio::task::JoinHandle;

use self::guard::{AdmittedSession, Guard, Intent, PendingClaim};
pub use self::outcome::Outcome;
use crate::control_errors;
use crate::native_prompt::PromptContent;
use crate::port::{
    Claim, Claimed, Control, KnownSession, NativePrompts, Removes, Session, with_caller, with_caller_trace,
};
use crate::service::Engine;

/// The pauses before each search for a fork whose response was lost. The agent may need that time to create the fork.
const FORK_SEARCH_PAUSES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_millis(1500)];

/// A caller of control methods, and what it may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlCaller {
    pub principal: Principal,
    /// The caller may claim unowned sessions.
    pub may_claim: bool,
    /// The caller may run commands in a shell.
    pub may_run: bool,
}

impl Engine {
    /// Runs a query, a command or a native prompt for a caller who has the capabilities that the call needs.
    ///
    /// `done` receives the result, even if the caller has disconnected. A disconnect ends a query, but a command or a prompt
    /// continues.
    pub async fn control(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) -> Result<ControlResult> {
        self.control_with_task(caller, request, Arc::default(), done).await
    }

    /// Like [`Engine::control`], for a caller that does not wait for the end of a native prompt. Sets `begun` to the task of the
    /// prompt as soon as the task exists.
    pub async fn control_with_task(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        begun: Arc<OnceLock<TaskId>>,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) -> Result<ControlResult> {
        let mut done = ResultCallback(Some(done));
        if let Call::Query(query) = &request.control {
            let work = self.query(caller, query, &request.location);
            let result = with_caller(caller.principal.clone(), work).await;
            done.report(&result);
            return result;
        }
        self.begin_control(caller, request, begun, done).await.map_err(Error::internal)?
    }

    /// Like [`Engine::control`], for a caller who does not wait and gets no response.
    pub fn control_detached(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) {
        self.begin_control(caller, request, Arc::default(), ResultCallback(Some(done)));
    }

    fn begin_control<F>(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        begun: Arc<OnceLock<TaskId>>,
        mut done: ResultCallback<F>,
    ) -> JoinHandle<Result<ControlResult>>
    where
        F: FnOnce(&Result<ControlResult>) + Send + 'static,
    {
        let (engine, caller, principal) = (self.clone(), caller.clone(), caller.principal.clone());
        let ControlRequest { control: call, location } = request;
        let work = with_caller_trace(self.caller_trace(), async move {
            let result = match call {
                Call::Query(query) => engine.query(&caller, &query, &location).await,
                Call::Command(command) => {
                    let run = engine.run_command(&caller, &command, &location);
                    if command.takes_long() { engine.unless_stopping(run).await } else { Box::pin(run).await }
                }
                Call::NativePrompt(prompt) => {
                    Box::pin(engine.native_prompt(&caller, *prompt, &location, &begun)).await
                }
                Call::Note(note) => Box::pin(engine.add_note(&caller, *note, &location)).await,
            };
            done.report(&result);
            result
        });
        let work = with_caller(principal, work);
        self.ctx().tasks.spawn("control", work)
    }

    /// Runs a call that takes as long as a model or a program takes, and abandons it when the gateway stops. Short calls do not
    /// need this function: the gateway waits for them before it stops.
    async fn unless_stopping(
        &self,
        work: impl Future<Output = Result<ControlResult>>,
    ) -> Result<ControlResult> {
        tokio::select! {
            biased;
            result = Box::pin(work) => result,
            () = self.ctx().tasks.stopping().cancelled() => Err(control_errors::left_running()),
        }
    }

    /// The agents and commands that the agent has recently offered. Empty if the agent has not answered yet and does not answer
    /// now.
    pub async fn offers(&self) -> Arc<Offers> {
        match &self.ctx().ports.control {
            Some(control) => self.ctx().control_state.offers.get(&self.ctx().tasks, control).await,
            None => Arc::default(),
        }
    }

    async fn query(
        &self,
        caller: &ControlCaller,
        query: &ControlQuery,
        location: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let guard = self.guard(caller, &*control);
        let entry = match query.session() {
            Some(id) => Some(guard.admit(id, Intent::Read).await?),
            None => None,
        };
        let at = control.resolve_location(location).await?;
        match query {
            ControlQuery::Sessions(sessions) => {
                Ok(ControlResult::Sessions(guard.sessions(&at, sessions).await?))
            }
            ControlQuery::Statuses => Ok(ControlResult::Statuses(guard.statuses(&at).await?)),
            query => {
                let result = control.query(&at, entry.as_ref().map(|entry| &entry.session), query).await?;
                match (query, result) {
                    (ControlQuery::Children(_), ControlResult::Sessions(found)) => {
                        Ok(ControlResult::Sessions(guard.children(found).await?))
                    }
                    (_, result) => Ok(result),
                }
            }
        }
    }

    async fn run_command(
        &self,
        caller: &ControlCaller,
        command: &ControlCommand,
        location: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let is_delete = matches!(command, ControlCommand::Delete(_));
        let intent = if is_delete { Intent::Delete } else { Intent::Change };
        let mut entry = match command.session() {
            Some(id) => Some(self.guard(caller, &*control).admit(id, intent).await?),
            None => None,
        };
        if let (ControlCommand::Delete(_), Some(entry)) = (command, &mut entry) {
            deletion::check(&*control, entry).await?;
        }
        let at = control.resolve_location(location).await?;
        let session = entry.as_ref().map(|entry| &entry.session);
        let _held = match session.filter(|_| command.needs_idle_session()) {
            // The agent would delete a session even while a turn runs in it.
            Some(session) => Some(self.hold(session, is_delete).await?),
            None => None,
        };
        let _closed = match control.removes(command).await? {
            Removes::Nothing => None,
            Removes::Absent(result) => return Ok(*result),
            Removes::Place(place) => Some(self.close_place(self.guard(caller, &*control), place).await?),
        };
        let since = self.ctx().ports.clock.now();
        let result = match (control.run_command(&at, session, command).await, command, session) {
            (Err(lost), ControlCommand::Fork { before, .. }, Some(session)) if lost.is_maybe_applied() => {
                let fork = LostFork { session, before: before.as_ref(), since };
                return Err(self.claim_lost_fork(&*control, &caller.principal, fork, lost).await);
            }
            (result, ControlCommand::Delete(_), Some(session)) => {
                if result.as_ref().err().is_none_or(Error::is_maybe_applied) {
                    self.forget_approvals(&session.id).await;
                }
                // The session no longer exists, so there is nothing to claim.
                return result;
            }
            (result, ..) => result?,
        };
        if let (ControlCommand::Fork { .. }, Some(session), ControlResult::Session(fork)) =
            (command, session, &result)
        {
            let directory = fork.directory.clone().unwrap_or_else(|| session.directory.clone());
            let fork = Session { id: fork.id.clone(), directory };
            self.claim_fork(&caller.principal, fork).await?;
        }
        self.settle(entry.and_then(|entry| entry.pending_claim)).await?;
        Ok(result)
    }

    /// Searches for a fork whose response was lost. The fork may exist nevertheless and is then unowned, so other callers could
    /// claim it and read its messages. If the agent finds a session that is certainly a fork of this session, the caller becomes
    /// its owner. Returns the error for the caller.
    async fn claim_lost_fork(
        &self,
        control: &dyn Control,
        owner: &Principal,
        fork: LostFork<'_>,
        lost: Error,
    ) -> Error {
        let LostFork { session, before, since } = fork;
        for pause in FORK_SEARCH_PAUSES {
            tokio::time::sleep(pause).await;
            // If the agent does not answer now, it may answer the next search, and the fork may exist by then.
            for fork in control.forks(session, before, since).await.unwrap_or_default() {
                let at = self.ctx().ports.clock.now();
                let claim = Claim { owner: owner.clone(), session: fork.clone(), at };
                // The fork may have been made for another caller. Then it usually has an owner already, and the claim fails. If
                // not, the fork only has messages that this caller may read anyway.
                if let Ok(Claimed::Now) = self.ctx().ports.store.claim(claim).await {
                    tracing::info!(session = %fork.id, "a fork whose answer was lost was found");
                    self.ctx().ports.watch(vec![fork.clone()]);
                    return control_errors::fork_found(&lost, &fork.id);
                }
            }
        }
        lost
    }

    /// Makes the caller the owner of its new fork, before the caller gets the response.
    async fn claim_fork(&self, owner: &Principal, fork: Session) -> Result<()> {
        let (id, at) = (fork.id.clone(), self.ctx().ports.clock.now());
        let named = |error: Error| error.detail("forkedSessionId", id.as_str());
        let claim = Claim { owner: owner.clone(), session: fork.clone(), at };
        match self.ctx().ports.store.claim(claim).await {
            Ok(Claimed::Now | Claimed::Yours) => {
                self.ctx().ports.watch(vec![fork]);
                Ok(())
            }
            Ok(Claimed::Others) => Err(named(control_errors::fork_of_another())),
            Err(error) => Err(named(control_errors::fork_not_stored(&error))),
        }
    }

    pub(crate) async fn settle(&self, pending_claim: Option<PendingClaim>) -> Result<()> {
        match pending_claim {
            Some(pending_claim) => pending_claim.settle(self.ctx()).await,
            None => Ok(()),
        }
    }

    /// The session of a native prompt, if the caller may prompt it. Always queries the agent, because only the agent knows
    /// whether the session accepts prompts.
    pub(crate) async fn admit_native_prompt(
        &self,
        control: &dyn Control,
        caller: &ControlCaller,
        id: &SessionId,
    ) -> Result<AdmittedSession> {
        let mut entry = self.guard(caller, control).admit(id, Intent::StartTurn).await?;
        match entry.known(control).await? {
            KnownSession { is_followed: false, .. } => Err(control_errors::in_workspace()),
            KnownSession { parent: Some(_), .. } => Err(control_errors::of_sub_agent()),
            _ => Ok(entry),
        }
    }

    pub(crate) fn controlled(&self) -> Result<Arc<dyn Control>> {
        self.ctx().ports.control.clone().ok_or_else(control_errors::no_control)
    }

    fn guard<'a>(&'a self, caller: &'a ControlCaller, control: &'a dyn Control) -> Guard<'a> {
        Guard { ctx: self.ctx(), control, caller }
    }

    /// Adds a message to a session without starting a turn.
    async fn add_note(
        &self,
        caller: &ControlCaller,
        note: NativePromptRequest,
        location: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let native = native_prompts_of(&*control)?;
        let NativePromptRequest { session: id, order, content, options, .. } = note;
        let AdmittedSession { session, pending_claim, .. } =
            self.admit_native_prompt(&*control, caller, &id).await?;
        control.resolve_location(location).await?;
        let prompt = PromptContent::new(order, content);
        let input = prompt.prepare(&self.ctx().config.intake, &session.directory).await?;
        native.check_native_prompt(&session, &prompt.order, &input, &options).await?;
        let _held = self.hold(&session, false).await?;
        native.note(&session, &prompt.order, &input, &options).await?;
        self.settle(pending_claim).await?;
        Ok(ControlResult::Done { session: id, ok: true, begun: None })
    }
}

fn native_prompts_of(control: &dyn Control) -> Result<&dyn NativePrompts> {
    control.native_prompts().ok_or_else(control_errors::no_native_prompts)
}

/// Whether the call takes as long as a model or a user's program takes.
pub fn is_long_running(control: &Call) -> bool {
    match control {
        Call::Command(command) => command.takes_long(),
        Call::NativePrompt(order) => matches!(order.order, NativePrompt::Command { .. }),
        Call::Query(_) | Call::Note(_) => false,
    }
}

/// A fork request whose response was lost.
struct LostFork<'a> {
    session: &'a Session,
    before: Option<&'a AgentMessageId>,
    since: Timestamp,
}

/// Calls the callback exactly once with the result, even if the call panicked.
struct ResultCallback<F: FnOnce(&Result<ControlResult>)>(Option<F>);

impl<F: FnOnce(&Result<ControlResult>)> ResultCallback<F> {
    fn report(&mut self, result: &Result<ControlResult>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl<F: FnOnce(&Result<ControlResult>)> Drop for ResultCallback<F> {
    fn drop(&mut self) {
        self.report(&Err(Error::internal("a control call ended without a result")));
    }
}
