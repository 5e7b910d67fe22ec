//! What callers look at and change beside turns: who may, when, and what is theirs afterwards.
//!
//! Whatever changes something runs apart from its caller, who may hang up: it is done wholly or not at all, and whoever wants
//! to note what became of it is told. Nothing here prompts the agent: an order becomes a task ([`crate::service`]).

pub(crate) mod claims;
pub(crate) mod content;
mod exclusive;
mod guard;
mod listing;
pub(crate) mod offers;
mod outcome;
mod places;
pub(crate) mod refusal;
pub(crate) mod removals;
mod upstream;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longshore_model::{
    Control as Asked, ControlCommand, ControlQuery, ControlRequest, ControlResult, Error, MessageRef, Offers,
    Order, OrderRequest, Principal, RequestedLocation, Result, SessionId, TaskId, Timestamp,
};
use tokio::task::JoinHandle;

pub(crate) use self::guard::{Entry, Taking};
use self::guard::{Guard, Intent};
pub use self::outcome::Outcome;
pub use self::upstream::{STATUS as UPSTREAM_STATUS, come_again, of_upstream};
use crate::port::{Claim, Claimed, Control, Known, Session, on_behalf_of};
use crate::service::Engine;

/// When a fork is looked for whose answer was lost, each after the look before: the agent may still be about to make it.
const LOOK_FOR_FORK: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_millis(1500)];

/// Who wants something, and what it may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlCaller {
    pub principal: Principal,
    /// It may take a session that is nobody's.
    pub may_claim: bool,
    /// It may have something run in a shell.
    pub may_run: bool,
}

impl Engine {
    /// Looks at the agent, changes something there, or gives it an order, for a caller who has the capabilities that it needs.
    ///
    /// `done` is told what became of it, also when the caller did not wait for it: but for a look, which ends with its caller.
    pub async fn control(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) -> Result<ControlResult> {
        self.control_noting(caller, request, Arc::default(), done).await
    }

    /// The same. `begun` names the task of an order as soon as there is one, for whoever does not wait for its end.
    pub async fn control_noting(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        begun: Arc<OnceLock<TaskId>>,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) -> Result<ControlResult> {
        let mut done = Done(Some(done));
        if let Asked::Query(look) = &request.control {
            let told = self.look(caller, look, &request.place).await;
            done.tell(&told);
            return told;
        }
        self.begin_control(caller, request, begun, done).await.map_err(Error::internal)?
    }

    /// The same for a caller who does not wait for it, and is told nothing.
    pub fn leave_control(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        done: impl FnOnce(&Result<ControlResult>) + Send + 'static,
    ) {
        self.begin_control(caller, request, Arc::default(), Done(Some(done)));
    }

    fn begin_control<F>(
        &self,
        caller: &ControlCaller,
        request: ControlRequest,
        begun: Arc<OnceLock<TaskId>>,
        mut done: Done<F>,
    ) -> JoinHandle<Result<ControlResult>>
    where
        F: FnOnce(&Result<ControlResult>) + Send + 'static,
    {
        let (engine, caller) = (self.clone(), caller.clone());
        let ControlRequest { control: asked, place } = request;
        let work = on_behalf_of(self.trace_of_caller(), async move {
            let told = match asked {
                Asked::Query(look) => engine.look(&caller, &look, &place).await,
                Asked::Command(act) => {
                    let acted = engine.act(&caller, &act, &place);
                    if act_takes_long(&act) {
                        engine.unless_stopping(acted).await
                    } else {
                        Box::pin(acted).await
                    }
                }
                Asked::Order(order) => Box::pin(engine.order(&caller, *order, &place, &begun)).await,
                Asked::Note(note) => Box::pin(engine.say(&caller, *note, &place)).await,
            };
            done.tell(&told);
            told
        });
        self.around().tasks.spawn("control", work)
    }

    /// A gateway that stops does not wait for what takes as long as a model or a program takes. Whatever is soon over is waited for.
    async fn unless_stopping(
        &self,
        work: impl Future<Output = Result<ControlResult>>,
    ) -> Result<ControlResult> {
        tokio::select! {
            biased;
            told = Box::pin(work) => told,
            () = self.around().tasks.stopping().cancelled() => Err(refusal::left_at_work()),
        }
    }

    /// What the agent offers by name, as of not long ago. Nothing, when it has not said so yet and does not say so now.
    pub async fn offers(&self) -> Arc<Offers> {
        match &self.around().control {
            Some(control) => self.around().offers.get(self.around(), control).await,
            None => Arc::default(),
        }
    }

    async fn look(
        &self,
        caller: &ControlCaller,
        look: &ControlQuery,
        place: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let guard = self.guard(caller, &*control);
        let entry = match look.session() {
            Some(id) => Some(guard.admit(id, Intent::Look).await?),
            None => None,
        };
        let at = control.place(place).await?;
        match look {
            ControlQuery::Sessions(query) => Ok(ControlResult::Sessions(guard.sessions(&at, query).await?)),
            ControlQuery::Statuses => Ok(ControlResult::Statuses(guard.statuses(&at).await?)),
            look => {
                let told = control.look(&at, entry.as_ref().map(|entry| &entry.session), look).await?;
                match (look, told) {
                    (ControlQuery::Children(_), ControlResult::Sessions(found)) => {
                        Ok(ControlResult::Sessions(guard.children(found).await?))
                    }
                    (_, told) => Ok(told),
                }
            }
        }
    }

    async fn act(
        &self,
        caller: &ControlCaller,
        act: &ControlCommand,
        place: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let entry = match act.session() {
            Some(id) => Some(self.guard(caller, &*control).admit(id, Intent::Change).await?),
            None => None,
        };
        let at = control.place(place).await?;
        let session = entry.as_ref().map(|entry| &entry.session);
        let _held = match session.filter(|_| exclusive::is_exclusive(act)) {
            Some(session) => Some(self.hold(session).await?),
            None => None,
        };
        let _closed = match act {
            ControlCommand::RemoveWorktree(worktree) | ControlCommand::ResetWorktree(worktree) => {
                Some(self.close_worktree(&*control, worktree).await?)
            }
            ControlCommand::RemoveWorkspace(workspace) => {
                match self.close_workspace(self.guard(caller, &*control), workspace).await? {
                    None => return Ok(ControlResult::Workspace(None)),
                    closed => closed,
                }
            }
            _ => None,
        };
        let began = self.around().clock.now();
        let told = match (control.act(&at, session, act).await, act, session) {
            (Err(lost), ControlCommand::Fork { before, .. }, Some(session)) if lost.may_be_done() => {
                let asked = LostFork { session, before: before.as_ref(), since: began };
                return Err(self.own_lost_fork(&*control, &caller.principal, asked, lost).await);
            }
            (told, ..) => told?,
        };
        if let (ControlCommand::Fork { .. }, Some(session), ControlResult::Session(fork)) =
            (act, session, &told)
        {
            let directory = fork.directory.clone().unwrap_or_else(|| session.directory.clone());
            let fork = Session { id: fork.id.clone(), directory };
            self.own_fork(&*control, &caller.principal, fork).await?;
        }
        self.settle(entry.and_then(|entry| entry.taking)).await?;
        Ok(told)
    }

    /// A fork whose answer was lost may be there nevertheless, and is nobody's then: others could take it, and read in it what was
    /// said. So it is looked for, and is its maker's if the agent finds one that is surely a fork of the session. Gives what is told
    /// of it.
    async fn own_lost_fork(
        &self,
        control: &dyn Control,
        owner: &Principal,
        asked: LostFork<'_>,
        lost: Error,
    ) -> Error {
        let LostFork { session, before, since } = asked;
        for pause in LOOK_FOR_FORK {
            tokio::time::sleep(pause).await;
            // An agent that does not answer may do so with the next look, and one that is at it may be done.
            for fork in control.forks(session, before, since).await.unwrap_or_default() {
                let at = self.around().clock.now();
                let claim = Claim { owner: owner.clone(), session: fork.clone(), at };
                // Who else forked the session meanwhile has that fork already, or is the owner of what was said in it.
                if let Ok(Claimed::Now) = self.around().store.claim(claim).await {
                    tracing::info!(session = %fork.id, "a fork whose answer was lost was found");
                    control.watch(vec![fork.clone()]);
                    return refusal::fork_found(&lost, &fork.id);
                }
            }
        }
        lost
    }

    /// A fork is the caller's before it hears of it.
    async fn own_fork(&self, control: &dyn Control, owner: &Principal, fork: Session) -> Result<()> {
        let (id, at) = (fork.id.clone(), self.around().clock.now());
        let told = |error: Error| error.detail("forkedSessionId", id.as_str());
        let claim = Claim { owner: owner.clone(), session: fork.clone(), at };
        match self.around().store.claim(claim).await {
            Ok(Claimed::Now | Claimed::Yours) => {
                control.watch(vec![fork]);
                Ok(())
            }
            Ok(Claimed::Others) => Err(told(refusal::fork_of_another())),
            Err(error) => Err(told(refusal::fork_not_kept(&error))),
        }
    }

    pub(crate) async fn settle(&self, taking: Option<Taking>) -> Result<()> {
        match taking {
            Some(taking) => taking.settle(self.around()).await,
            None => Ok(()),
        }
    }

    /// The session of an order, if the caller may give one there. It is asked for in any case: whether it can be prompted only
    /// the agent knows.
    pub(crate) async fn admit_order(
        &self,
        control: &dyn Control,
        caller: &ControlCaller,
        id: &SessionId,
    ) -> Result<Entry> {
        let mut entry = self.guard(caller, control).admit(id, Intent::Order).await?;
        let known = match entry.known.take() {
            Some(known) => known,
            None => control.find(id).await?.ok_or_else(|| refusal::not_found(id))?,
        };
        match &known {
            Known { workspace: Some(_), .. } => Err(refusal::in_workspace()),
            Known { parent: Some(_), .. } => Err(refusal::of_sub_agent()),
            _ => Ok(Entry { known: Some(known), ..entry }),
        }
    }

    pub(crate) fn controlled(&self) -> Result<Arc<dyn Control>> {
        self.around().control.clone().ok_or_else(refusal::no_control)
    }

    fn guard<'a>(&'a self, caller: &'a ControlCaller, control: &'a dyn Control) -> Guard<'a> {
        Guard { around: self.around(), control, caller }
    }

    /// Says something that nobody is to answer.
    async fn say(
        &self,
        caller: &ControlCaller,
        note: OrderRequest,
        place: &RequestedLocation,
    ) -> Result<ControlResult> {
        let control = self.controlled()?;
        let OrderRequest { session: id, order, content, options, .. } = note;
        let Entry { session, taking, .. } = self.admit_order(&*control, caller, &id).await?;
        control.place(place).await?;
        control.check_order(&session, &order, &options, caller.may_run).await?;
        let said = content::Said::new(order, content);
        let input = said.prepare(&self.around().config.intake, &session.directory).await?;
        let _held = self.hold(&session).await?;
        control.note(&session, &said.order, &input, &options).await?;
        self.settle(taking).await?;
        Ok(ControlResult::Done { session: id, ok: true, begun: None })
    }
}

/// Whether this takes as long as a model, or a program that somebody wrote, takes.
pub fn takes_long(control: &Asked) -> bool {
    match control {
        Asked::Command(act) => act_takes_long(act),
        Asked::Order(order) => matches!(order.order, Order::Command { .. }),
        Asked::Query(_) | Asked::Note(_) => false,
    }
}

fn act_takes_long(act: &ControlCommand) -> bool {
    match act {
        // A worktree has a program of its own that makes it ready.
        ControlCommand::Summarize { .. }
        | ControlCommand::Shell { .. }
        | ControlCommand::CreateWorktree(_) => true,
        ControlCommand::Fork { .. }
        | ControlCommand::Share(_)
        | ControlCommand::Unshare(_)
        | ControlCommand::Revert { .. }
        | ControlCommand::Unrevert(_)
        | ControlCommand::CreateWorkspace(_)
        | ControlCommand::RemoveWorkspace(_)
        | ControlCommand::RemoveWorktree(_)
        | ControlCommand::ResetWorktree(_) => false,
    }
}

/// What a fork was asked for whose answer was lost.
struct LostFork<'a> {
    session: &'a Session,
    before: Option<&'a MessageRef>,
    since: Timestamp,
}

/// Tells what became of something, exactly once: also when it broke.
struct Done<F: FnOnce(&Result<ControlResult>)>(Option<F>);

impl<F: FnOnce(&Result<ControlResult>)> Done<F> {
    fn tell(&mut self, told: &Result<ControlResult>) {
        if let Some(done) = self.0.take() {
            done(told);
        }
    }
}

impl<F: FnOnce(&Result<ControlResult>)> Drop for Done<F> {
    fn drop(&mut self) {
        self.tell(&Err(Error::internal("it ended without a word")));
    }
}
