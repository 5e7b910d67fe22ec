//! An agent that takes one prompt and then sends the reports of the benchmark.

use std::sync::Mutex;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Description, NewSession, Session, Turn, TurnRequest,
};
use longshore_engine::queue;
use longshore_model::{AgentEvent, Answer, Ask, Error, Result, SessionId};

/// Reports that may wait for the engine, as in a real driver.
const REPORTS: usize = 256;

#[derive(Debug)]
pub(super) struct ManualAgent {
    reports: Mutex<Option<queue::Receiver<AgentEvent>>>,
}

impl ManualAgent {
    /// The agent, and the sender of its reports.
    pub(super) fn new() -> (Self, queue::Sender<AgentEvent>) {
        let (sender, receiver) = queue::channel(REPORTS);
        (Self { reports: Mutex::new(Some(receiver)) }, sender)
    }
}

impl Agent for ManualAgent {
    fn describe(&self) -> Description {
        Description { name: "The manual agent".to_owned(), version: None, resumes_turns: true }
    }

    fn admit<'a>(&'a self, _: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async { Ok(Admitted { directory: "/workspace".to_owned() }) })
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
            let reports = self.reports.lock().ok().and_then(|mut reports| reports.take());
            let events = reports.ok_or_else(|| Error::internal("this agent has only one turn"))?;
            Ok(Turn { steering: None, events, refusal: None })
        })
    }

    fn reply<'a>(&'a self, _: &'a Session, _: &'a Ask, _: &'a Answer) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn cancel<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
