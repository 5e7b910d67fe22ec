//! What callers may look at and change in OpenCode beside turns: implements [`longshore_engine::port::Control`].
//!
//! OpenCode believes whatever it is told: it answers yes to what it does not have, writes into whichever session a message is
//! in, and deletes whatever directory is named. So names are looked up before they are used, and what cannot be looked up is
//! not done. Whatever changes something is called once.

mod act;
mod failure;
mod look;
mod order;
mod places;
mod ready;
pub(crate) mod references;
mod told;

use longshore_engine::of_upstream;
use longshore_engine::port::{BoxFuture, Control, ExternalTurn, Inhabited, Input, Known, Session};
use longshore_model::{
    ControlCommand, ControlQuery, ControlResult, Error, MessageRef, Offers, Order, PromptOptions,
    RequestedLocation, Result, SessionId, Timestamp, WorkspaceId, WorktreeRef,
};
use tokio::sync::mpsc;

pub(crate) use self::failure::Doing;
use crate::client::CallError;
use crate::{OpenCode, id};

impl Control for OpenCode {
    fn place<'a>(&'a self, wish: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move { self.gate.place_of(wish).await.map_err(of_upstream) })
    }

    fn find<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Known>>> {
        Box::pin(async move {
            // OpenCode answers such a name with an error of its own, and not that there is none.
            if id::segment(id::Kind::Session, id.as_str()).is_err() {
                return Ok(None);
            }
            let doing = Doing::looking("look up the session").of(id);
            let found = match self.for_callers.session(&self.gate.root, id.as_str()).await {
                Err(CallError::NotFound) => return Ok(None),
                found => found.map_err(|cause| cause.told(&doing))?,
            };
            let strange = |what: &str| CallError::Garbled(what.to_owned()).told(&doing);
            let directory = found.directory.ok_or_else(|| strange("a session without a directory"))?;
            // A parent that is not understood must not make this a session that nobody has.
            let parent = found.parent.as_deref().map(SessionId::parse).transpose();
            let workspace = found.workspace.as_deref().map(WorkspaceId::parse).transpose();
            let is_open = self.gate.is_open_to_callers(&directory).await.map_err(of_upstream)?;
            Ok(Some(Known {
                session: Session { id: id.clone(), directory },
                parent: parent.map_err(|_| strange("a session with a strange parent"))?,
                workspace: workspace.map_err(|_| strange("a session with a strange workspace"))?,
                is_open,
            }))
        })
    }

    fn look<'a>(
        &'a self,
        at: &'a str,
        session: Option<&'a Session>,
        look: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(self.looked(at, session, look))
    }

    fn act<'a>(
        &'a self,
        _at: &'a str,
        session: Option<&'a Session>,
        act: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        Box::pin(self.acted(session, act))
    }

    fn forks<'a>(
        &'a self,
        session: &'a Session,
        before: Option<&'a MessageRef>,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        Box::pin(self.copies(session, before, since))
    }

    fn check_order<'a>(
        &'a self,
        session: &'a Session,
        order: &'a Order,
        options: &'a PromptOptions,
        may_run: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.check(session, order, options, may_run))
    }

    fn note<'a>(
        &'a self,
        session: &'a Session,
        order: &'a Order,
        input: &'a [Input],
        options: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.noted(session, order, input, options))
    }

    fn worktree<'a>(&'a self, wanted: &'a WorktreeRef) -> BoxFuture<'a, Result<String>> {
        Box::pin(self.removable_worktree(wanted))
    }

    fn workspace<'a>(&'a self, id: &'a WorkspaceId) -> BoxFuture<'a, Result<Option<Inhabited>>> {
        Box::pin(self.removable_workspace(id))
    }

    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        Box::pin(async move {
            let (agents, commands) = self.gate.catalog.offers().await?;
            Ok(told::offers(&agents, &commands))
        })
    }

    fn watch(&self, sessions: Vec<Session>) {
        self.watch.watch(sessions);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        self.watch.external_turns()
    }

    fn external_turn<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>> {
        Box::pin(self.watch.external_turn(session))
    }
}

/// Whatever is about a session comes with it.
fn given(session: Option<&Session>) -> Result<&Session> {
    session.ok_or_else(|| Error::internal("a look or an act of a session came without it"))
}
