//! A control surface that only tells what somebody else does at the agent, for tests that call none of its methods.

use std::fmt::Debug;
use std::sync::Arc;

use longshore_engine::port::{BoxFuture, Control, ExternalTurn, Inhabited, Input, Known, Session};
use longshore_model::{
    ControlCommand, ControlQuery, ControlResult, Error, MessageRef, Offers, Order, PromptOptions,
    RequestedLocation, Result, SessionId, Timestamp, WorkspaceId, WorktreeRef,
};
use tokio::sync::mpsc;

/// Who hears what others do.
pub trait Hears: Debug + Send + Sync {
    /// See [`Control::watch`].
    fn watch(&self, sessions: Vec<Session>);

    /// See [`Control::external_turns`].
    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn>;
}

/// Has what its inner one hears, and fails whatever else it is asked.
#[derive(Debug)]
pub struct Hearing<H>(pub Arc<H>);

fn nothing<T>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::internal("nobody asks this here")) })
}

impl<H: Hears> Control for Hearing<H> {
    fn place<'a>(&'a self, _: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        nothing()
    }

    fn find<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Option<Known>>> {
        nothing()
    }

    fn look<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a Session>,
        _: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        nothing()
    }

    fn act<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a Session>,
        _: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        nothing()
    }

    fn forks<'a>(
        &'a self,
        _: &'a Session,
        _: Option<&'a MessageRef>,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Session>>> {
        nothing()
    }

    fn check_order<'a>(
        &'a self,
        _: &'a Session,
        _: &'a Order,
        _: &'a PromptOptions,
        _: bool,
    ) -> BoxFuture<'a, Result<()>> {
        nothing()
    }

    fn note<'a>(
        &'a self,
        _: &'a Session,
        _: &'a Order,
        _: &'a [Input],
        _: &'a PromptOptions,
    ) -> BoxFuture<'a, Result<()>> {
        nothing()
    }

    fn worktree<'a>(&'a self, _: &'a WorktreeRef) -> BoxFuture<'a, Result<String>> {
        nothing()
    }

    fn workspace<'a>(&'a self, _: &'a WorkspaceId) -> BoxFuture<'a, Result<Option<Inhabited>>> {
        nothing()
    }

    fn offers(&self) -> BoxFuture<'_, Result<Offers>> {
        nothing()
    }

    fn watch(&self, sessions: Vec<Session>) {
        self.0.watch(sessions);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        self.0.external_turns()
    }

    fn external_turn<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>> {
        nothing()
    }
}
