//! An agent that takes one prompt and then sends the reports of the benchmark.

use std::sync::Mutex;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, MAX_STEERING, NewSession, Session, Steering, Turn, TurnRecord,
    TurnRequest,
};
use longshore_engine::queue;
use longshore_model::{AgentEvent, Answer, Ask, Error, Result, SessionId};

/// Reports that may wait for the engine, as in a real driver.
const REPORTS: usize = 256;

#[derive(Debug)]
pub(super) struct ManualAgent {
    reports: Mutex<Option<queue::Receiver<AgentEvent>>>,
    /// Kept open: the engine ends a turn whose driver no longer listens.
    steering: Mutex<Option<queue::Receiver<Box<Steering>>>>,
}

impl ManualAgent {
    /// The agent, and the sender of its reports.
    pub(super) fn new() -> (Self, queue::Sender<AgentEvent>) {
        let (sender, receiver) = queue::channel(REPORTS);
        (Self { reports: Mutex::new(Some(receiver)), steering: Mutex::default() }, sender)
    }
}

impl Agent for ManualAgent {
    fn admit<'a>(&'a self, _: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async { Ok(Admitted { directory: "/workspace".to_owned() }) })
    }

    fn find_session<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async { Ok(None) })
    }

    fn is_busy<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        let id = SessionId::parse("ses_bench");
        Box::pin(
            async move { Ok(Session { id: id.map_err(Error::internal)?, directory: request.directory }) },
        )
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async move {
            request.prompting.mark();
            let (steering, joining) = queue::channel(MAX_STEERING);
            *self.steering.lock().map_err(|_| Error::internal("poisoned"))? = Some(joining);
            let reports = self.reports.lock().ok().and_then(|mut reports| reports.take());
            let events = reports.ok_or_else(|| Error::internal("this agent has only one turn"))?;
            Ok(Turn { steering, events, refusal: None })
        })
    }

    fn reply<'a>(&'a self, _: &'a Session, _: &'a Ask, _: &'a Answer) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn abort<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn stop_turns<'a>(&'a self, _: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
