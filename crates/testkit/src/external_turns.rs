//! A control surface that reports external turns and nothing else, for tests that call none of its methods.

use std::fmt::Debug;
use std::sync::Arc;

use longshore_engine::port::{BoxFuture, Control, ExternalTurn, KnownSession, Session, SessionWatch};
use longshore_model::{
    ControlCommand, ControlQuery, ControlResult, Error, RequestedLocation, Result, SessionId,
};
use tokio::sync::mpsc;

/// Reports the turns that other clients of the agent start.
pub trait ExternalTurnSource: Debug + Send + Sync {
    /// See [`SessionWatch::watch`].
    fn watch(&self, sessions: Vec<Session>);

    /// See [`SessionWatch::external_turns`].
    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn>;
}

/// Passes the external turns of its source on, and fails every other call.
#[derive(Debug)]
pub struct ExternalTurnsOnly<H>(pub Arc<H>);

fn unsupported<T>() -> BoxFuture<'static, Result<T>> {
    Box::pin(async { Err(Error::internal("this control surface only reports external turns")) })
}

impl<H: ExternalTurnSource> Control for ExternalTurnsOnly<H> {
    fn resolve_location<'a>(&'a self, _: &'a RequestedLocation) -> BoxFuture<'a, Result<String>> {
        unsupported()
    }

    fn find<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Option<KnownSession>>> {
        unsupported()
    }

    fn query<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a Session>,
        _: &'a ControlQuery,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        unsupported()
    }

    fn run_command<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a Session>,
        _: &'a ControlCommand,
    ) -> BoxFuture<'a, Result<ControlResult>> {
        unsupported()
    }

    fn session_watch(&self) -> Option<&dyn SessionWatch> {
        Some(self)
    }
}

impl<H: ExternalTurnSource> SessionWatch for ExternalTurnsOnly<H> {
    fn watch(&self, sessions: Vec<Session>) {
        self.0.watch(sessions);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        self.0.external_turns()
    }

    fn external_turn<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<Option<ExternalTurn>>> {
        unsupported()
    }
}
