//! Wraps the gateway's agent so that its turns can call peers. A turn's event stream then also carries the events of its calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Description, Input, NewSession, Session, SessionChoices,
    SessionFinder, Turn, TurnRequest, UnfollowedTurns, caller,
};
use longshore_engine::queue;
use longshore_model::{
    AgentEvent, Answer, Ask, Error, ErrorKind, PromptOptions, RequestId, Resolution, Result, Usage,
};
use tokio::sync::mpsc;

use crate::call::{AnswerError, Call, MAX_REPORTS, Report};
use crate::calls::{Known, PeerCalls};
use crate::record::{End, Ending, Record, call_of_ask};
use crate::turns::RunningTurn;
use crate::{audit, show};

/// The most events that may wait for the engine. When the queue is full, the turn waits.
const MAX_EVENTS: usize = 64;

/// An agent whose turns can call peers.
#[derive(Debug)]
pub struct CallingAgent {
    agent: Arc<dyn Agent>,
    calls: PeerCalls,
}

impl CallingAgent {
    pub fn new(agent: Arc<dyn Agent>, calls: PeerCalls) -> Self {
        Self { agent, calls }
    }

    async fn start(&self, mut request: TurnRequest) -> Result<Turn> {
        // A call needs an owner. The engine always names one, so this is only a fallback.
        let Some(owner) = caller() else { return self.agent.start_turn(request).await };
        let ctx = &self.calls.0;
        let stored = match ctx.calls.calls_of(&request.task).await {
            Ok(stored) => stored,
            Err(error) if request.resume.is_some() => return Err(error),
            // Without the stored calls, the count for the limit `per_task` starts again at zero.
            Err(error) => {
                tracing::warn!(task = %request.task, error = ?error, "the earlier calls of a task could not be read");
                Vec::new()
            }
        };
        let begun = stored.len();
        let (reports, of_calls) = mpsc::channel(MAX_REPORTS);
        let turn = Arc::new(RunningTurn::new(
            request.task.clone(),
            request.prompt.clone(),
            owner,
            (request.options.hops.clone(), request.trace.clone()),
            reports,
            begun,
        ));
        let mut resumed = Resumed::default();
        if let Some(resume) = &mut request.resume {
            resume.artifacts.retain(|artifact| !show::is_of_call(&artifact.id));
            let is_of_peer = |ask: &RequestId| call_of_ask(ask).is_some();
            resumed.asks = resume.open_asks.iter().filter(|ask| is_of_peer(ask)).cloned().collect();
            resume.open_asks.retain(|ask| !is_of_peer(ask));
            for stored in &stored {
                let Some(record) = Record::read(stored).filter(|record| record.body.turn == request.prompt)
                else {
                    continue;
                };
                let known = if stored.is_open { self.calls.go_on(stored).await? } else { None };
                resumed.calls.push(known.unwrap_or_else(|| Known::Ended(Arc::new(record))));
            }
        }
        let session = request.session.id.clone();
        // Register the turn before the prompt is sent: the agent may call a peer as soon as it has the prompt.
        ctx.turns.add(session, &turn);
        let starting = Starting { calls: &self.calls, turn: Some(turn) };
        let mut started = self.agent.start_turn(request).await?;
        let turn = starting.has_started();
        for call in &resumed.calls {
            if let Known::Live(call) = call {
                turn.adopt(call);
            }
        }
        let (events, outer) = queue::channel(MAX_EVENTS);
        let inner = std::mem::replace(&mut started.events, outer);
        let merging = Merging {
            calls: self.calls.clone(),
            turn,
            events,
            own: None,
            of_calls: HashMap::new(),
            asked: HashSet::new(),
        };
        ctx.tasks.spawn("peer-calls-of-turn", merging.run(inner, of_calls, resumed));
        Ok(started)
    }

    async fn reply_to_peer(&self, call: &str, ask: &Ask, answer: &Answer) -> Result<()> {
        let not_open = || {
            Error::new(ErrorKind::InterruptNotFound, "The agent that asked no longer waits for an answer.")
        };
        let Some(call) = self.calls.0.live().get(call).cloned() else { return Err(not_open()) };
        call.answer(Some(ask.request_id.clone()), answer.clone(), None).await.map_err(|error| match error {
            AnswerError::NotOpen => not_open(),
            AnswerError::Refused { reason, may_retry } => {
                let text = format!("The agent {} did not take the answer: {reason}", call.place.name());
                let kind = if may_retry { ErrorKind::AgentUnavailable } else { ErrorKind::InvalidParams };
                Error::new(kind, text)
            }
        })
    }
}

/// A turn whose start the agent has not confirmed. If the start fails or its future is dropped, this type cancels the turn's calls.
struct Starting<'a> {
    calls: &'a PeerCalls,
    turn: Option<Arc<RunningTurn>>,
}

impl Starting<'_> {
    fn has_started(mut self) -> Arc<RunningTurn> {
        self.turn.take().expect("a turn starts once")
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            end_turn(self.calls, &turn);
        }
    }
}

/// Ends a turn: cancels its running calls and returns them. While the gateway stops, the calls are not canceled, because they
/// resume after the restart.
fn end_turn(calls: &PeerCalls, turn: &Arc<RunningTurn>) -> Vec<Arc<Call>> {
    let ctx = &calls.0;
    ctx.turns.remove(turn);
    let (over, running): (Vec<_>, Vec<_>) = turn.end().into_iter().partition(|call| call.is_over());
    for call in over {
        ctx.live().remove(&call.id());
    }
    if !ctx.tasks.stopping().is_cancelled() {
        for call in &running {
            call.cancel.cancel();
        }
    }
    running
}

/// The calls that an earlier run of the gateway began in this turn.
#[derive(Default)]
struct Resumed {
    calls: Vec<Known>,
    /// The asks of peers that are still open according to the task's log.
    asks: Vec<RequestId>,
}

impl Agent for CallingAgent {
    fn describe(&self) -> Description {
        self.agent.describe()
    }

    fn admit<'a>(&'a self, request: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        let ctx = &self.calls.0;
        if let Err(reason) = ctx.identity.check(&request.options.hops, ctx.hop_rules) {
            audit::loop_refused(caller().as_ref(), &reason);
            let error = Error::invalid("metadata.shared.hops", format!("is refused: {reason}"));
            return Box::pin(async { Err(error) });
        }
        self.agent.admit(request)
    }

    fn check_input(&self, directory: &str, input: &[Input], options: &PromptOptions) -> Result<()> {
        self.agent.check_input(directory, input, options)
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        self.agent.open_session(request)
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(self.start(request))
    }

    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        match call_of_ask(&ask.request_id) {
            Some(call) => Box::pin(self.reply_to_peer(call, ask, answer)),
            None => self.agent.reply(session, ask, answer),
        }
    }

    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        if let Some(turn) = self.calls.0.turns.get(&session.id) {
            for call in turn.calls() {
                call.cancel.cancel();
            }
        }
        self.agent.cancel(session)
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        self.agent.check()
    }

    fn is_restarted_by_gateway(&self) -> bool {
        self.agent.is_restarted_by_gateway()
    }

    fn until_back(&self) -> BoxFuture<'_, ()> {
        self.agent.until_back()
    }

    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        self.agent.session_finder()
    }

    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        self.agent.unfollowed_turns()
    }

    fn session_choices(&self) -> Option<&dyn SessionChoices> {
        self.agent.session_choices()
    }
}

/// Merges the events of a turn with those of its calls.
struct Merging {
    calls: PeerCalls,
    turn: Arc<RunningTurn>,
    events: queue::Sender<AgentEvent>,
    /// The usage of the agent, without that of the calls.
    own: Option<Usage>,
    of_calls: HashMap<String, Usage>,
    /// The asks that the task has shown. A resumed call may report an ask that was already shown from its stored record.
    asked: HashSet<RequestId>,
}

/// The next thing that happens to a turn.
enum Next {
    /// The engine no longer follows the turn.
    Dropped,
    OfAgent(Option<AgentEvent>),
    OfCall(Option<Report>),
}

impl Merging {
    async fn run(
        mut self,
        mut inner: queue::Receiver<AgentEvent>,
        mut of_calls: mpsc::Receiver<Report>,
        resumed: Resumed,
    ) {
        self.show_resumed(resumed).await;
        loop {
            let next = tokio::select! {
                () = self.events.closed() => Next::Dropped,
                event = inner.recv() => Next::OfAgent(event),
                report = of_calls.recv() => Next::OfCall(report),
            };
            match next {
                Next::Dropped | Next::OfAgent(None) => {
                    self.end("The turn ended before the call did.");
                    return;
                }
                Next::OfCall(Some(report)) => self.take_report(report).await,
                // Unreachable: the turn itself holds a sender.
                Next::OfCall(None) => {}
                Next::OfAgent(Some(AgentEvent::Ended(outcome))) => {
                    while let Ok(report) = of_calls.try_recv() {
                        self.take_report(report).await;
                    }
                    for event in self.end("The turn ended before the call did, and the call was canceled.") {
                        self.send(event).await;
                    }
                    self.send(AgentEvent::Ended(outcome)).await;
                    return;
                }
                Next::OfAgent(Some(AgentEvent::Usage(usage))) => {
                    self.own = Some(usage);
                    self.send_usage().await;
                }
                Next::OfAgent(Some(event)) => {
                    if let AgentEvent::Child { session, .. } = &event {
                        self.calls.0.turns.add(session.clone(), &self.turn);
                    }
                    self.send(event).await;
                }
            }
        }
    }

    /// Shows the current state of the calls of an earlier run. The log may lack the last report of a call.
    async fn show_resumed(&mut self, resumed: Resumed) {
        let mut open = HashSet::new();
        for call in &resumed.calls {
            let record = call.record();
            if let Some(usage) = record.body.usage {
                self.of_calls.insert(record.id.clone(), usage);
            }
            self.take_report(show::tool(&record)).await;
            if let Some(ask) = &record.body.ask {
                open.insert(ask.id.clone());
                let shown = AgentEvent::Asked(ask.shown.clone());
                self.take_report(Report::Event(shown)).await;
            }
        }
        for request_id in resumed.asks.into_iter().filter(|ask| !open.contains(ask)) {
            self.send(AgentEvent::AskClosed { request_id, resolution: Resolution::Elsewhere }).await;
        }
        if !self.of_calls.is_empty() {
            self.send_usage().await;
        }
    }

    async fn take_report(&mut self, report: Report) {
        match report {
            Report::Event(AgentEvent::Asked(ask)) if !self.asked.insert(ask.request_id.clone()) => {}
            Report::Event(event) => self.send(event).await,
            Report::Usage { call, usage } => {
                self.of_calls.insert(call, usage);
                self.send_usage().await;
            }
        }
    }

    /// Sends the sum of the agent's usage and that of the calls. Each call also shows its own usage.
    async fn send_usage(&self) {
        let own = self.own.unwrap_or_default();
        let all = self.of_calls.values().fold(own, |sum, usage| sum.plus(*usage));
        self.send(AgentEvent::Usage(all)).await;
    }

    async fn send(&self, event: AgentEvent) {
        // The error means that the engine no longer follows the turn, so the event is not needed.
        let _ = self.events.send(event).await;
    }

    /// Cancels the calls that still run, and returns a final event for each.
    fn end(&self, reason: &str) -> Vec<AgentEvent> {
        let last = |call: Arc<Call>| {
            let mut record = call.record().as_ref().clone();
            record.body.end = Some(End::new(Ending::Canceled, reason));
            match show::tool(&record) {
                Report::Event(event) => Some(event),
                Report::Usage { .. } => None,
            }
        };
        end_turn(&self.calls, &self.turn).into_iter().filter_map(last).collect()
    }
}
