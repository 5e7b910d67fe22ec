//! The tools with which the turns of the gateway's agent call peers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_engine::Tasks;
use longshore_engine::port::{BoxFuture, CallPage, CallStore, Clock, Store, StoredCall};
use longshore_meter::Metrics;
use longshore_meter::label::PeerCall;
use longshore_model::{Answer, Hops, PermissionReply, SessionId, redact};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::audit;
use crate::call::{AnswerError, Call};
use crate::config::{Peer, PeersConfig};
use crate::context::Context;
use crate::drive;
use crate::hops::Identity;
use crate::line::quoted;
use crate::place::{Place, words};
use crate::record::{Body, End, Ending, Record, call_id};
use crate::tools::{
    AnswerRequest, CallHandle, CallKey, CallReport, CallRequest, CallState, PeerSummary, Progress,
    ToolCaller, ToolError, Tools,
};
use crate::turns::{Full, RunningTurn};

/// The longest wait of one tool call, even if the call requests a longer one.
const LONGEST_WAIT: Duration = Duration::from_mins(30);

/// How often the gateway checks whether the task of a call has ended, if no turn shows the call.
const LOOK_AT_TASK: Duration = Duration::from_secs(5);

/// The longest message to a peer, in bytes.
const MAX_TEXT: usize = 1024 * 1024;

/// The longest key ([`CallKey`]) of a call, in bytes.
const MAX_KEY: usize = 1024;

/// The longest description of an agent or a skill that a model gets, in characters, and the most skills of one agent.
const MAX_DESCRIPTION: usize = 500;
const MAX_SKILLS: usize = 32;

/// Calls peers for the turns of the gateway's agent. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct PeerCalls(pub(crate) Arc<Context>);

/// The parts of the gateway that calls need.
#[derive(Debug)]
pub struct PeerParts {
    pub config: PeersConfig,
    pub identity: Identity,
    pub calls: Arc<dyn CallStore>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub tasks: Tasks,
    pub metrics: Arc<Metrics>,
}

/// The user of a tool: the turn that makes the tool call, with its session.
struct Using {
    turn: Arc<RunningTurn>,
    session: SessionId,
    tool_call: Option<String>,
}

impl PeerCalls {
    pub fn new(parts: PeerParts) -> Self {
        Self(Arc::new(Context::new(parts)))
    }

    /// Resumes the calls that an earlier run of the gateway left open. A call whose task has ended is canceled. Call this once,
    /// after the engine has resumed its tasks. Returns the number of resumed calls.
    pub async fn recover(&self) -> longshore_model::Result<usize> {
        self.0.turns.recovered();
        let (mut count, mut after) = (0, None);
        loop {
            let CallPage { calls, next } = self.0.calls.open_calls(after.as_deref()).await?;
            for stored in calls {
                count += usize::from(matches!(self.go_on(&stored).await?, Some(Known::Live(_))));
            }
            if next.is_none() {
                return Ok(count);
            }
            after = next;
        }
    }

    /// Resumes a stored open call, unless it already runs. A call that cannot be resumed ends. `None`: the record of the call
    /// cannot be read.
    pub(crate) async fn go_on(&self, stored: &StoredCall) -> longshore_model::Result<Option<Known>> {
        let Some(mut record) = Record::read(stored) else { return Ok(None) };
        let restored = self.0.store.restored().await?;
        let place = if restored.is_some_and(|last| record.body.epoch <= last.0) {
            Err(
                "The call comes from a backup, and the gateway that made the backup may have gone on with it.",
            )
        } else {
            self.0.places.find(&record.body.peer).map_err(|ToolError(reason)| {
                tracing::warn!(call = record.id, reason, "a call of an earlier run cannot go on");
                "The gateway restarted, and the agent is no longer one that it may call."
            })
        };
        let place = match place {
            Ok(place) => place,
            Err(reason) => {
                record.body.end = Some(End::new(Ending::Unknown, reason));
                self.0.calls.put_call(record.to_stored()).await?;
                self.0.metrics.peer_calls.of(PeerCall::Unknown).increment();
                return Ok(Some(Known::Ended(Arc::new(record))));
            }
        };
        let mut live = self.0.live();
        if let Some(call) = live.get(&record.id) {
            return Ok(Some(Known::Live(Arc::clone(call))));
        }
        let id = record.id.clone();
        let (call, answers) = Call::new(record, place);
        live.insert(id, Arc::clone(&call));
        drop(live);
        self.0.tasks.spawn("peer-call", drive::run(Arc::clone(&self.0), Arc::clone(&call), answers, false));
        self.0.tasks.spawn("peer-call-task", cancel_without_task(Arc::clone(&self.0), Arc::clone(&call)));
        Ok(Some(Known::Live(call)))
    }

    async fn using(&self, caller: &ToolCaller) -> Result<Using, ToolError> {
        let ToolCaller::Session { session, tool_call } = caller else {
            return Err(ToolError("These tools are for the gateway's own agent.".to_owned()));
        };
        let Some(turn) = self.0.turns.find(session).await else {
            let reason = "no turn of a task runs in the session";
            audit::refused(None, session, "", reason);
            return Err(ToolError(
                "The call was refused: no task of this gateway runs in this session now, so nobody could be asked or shown what \
                 the other agent says."
                    .to_owned(),
            ));
        };
        Ok(Using { turn, session: session.clone(), tool_call: tool_call.clone() })
    }

    /// Refuses, counts and records a call.
    fn refuse(&self, using: &Using, target: &str, reason: String) -> ToolError {
        self.0.metrics.peer_calls.of(PeerCall::Refused).increment();
        audit::refused(Some((&using.turn.owner, &using.turn.task)), &using.session, target, &reason);
        ToolError(reason)
    }

    /// Finds a call of the same owner and session. Calls of others give the same error as calls that do not exist.
    async fn known(&self, using: &Using, handle: &CallHandle) -> Result<Known, ToolError> {
        let is_own = |record: &Record| {
            let is_of_session = record.body.session == using.session || record.task == using.turn.task;
            record.owner == using.turn.owner && is_of_session
        };
        let live = self.0.live().get(&handle.0).cloned();
        let known = match live {
            Some(call) => Some(Known::Live(call)),
            None if handle.0.len() > MAX_KEY => None,
            None => self.stored(&handle.0).await?,
        };
        match known {
            Some(known) if is_own(&known.record()) => Ok(known),
            _ => {
                let reason = format!(
                    "There is no call {:?} of this session. A handle comes with the result of a2a_call.",
                    redact::cut_at(&handle.0, 100)
                );
                Err(self.refuse(using, &handle.0, reason))
            }
        }
    }

    /// Reads a call that is not in `live` from the store. Resumes it if it is open, because the model may ask for it before
    /// [`Self::recover`] has resumed it.
    async fn stored(&self, id: &str) -> Result<Option<Known>, ToolError> {
        let unreadable = |error: longshore_model::Error| {
            ToolError(format!("The gateway cannot read its calls now: {error} Try again."))
        };
        Ok(match self.0.calls.call(id).await.map_err(unreadable)? {
            Some(stored) if stored.is_open => self.go_on(&stored).await.map_err(unreadable)?,
            Some(stored) => Record::read(&stored).map(|record| Known::Ended(Arc::new(record))),
            None => None,
        })
    }

    async fn begin(&self, using: &Using, key: &CallKey, request: &CallRequest) -> Result<Known, ToolError> {
        let id = call_id(&using.turn.task, key);
        let live = self.0.live().get(&id).cloned();
        let known = match live {
            Some(call) => Some(Known::Live(call)),
            None => self.stored(&id).await?,
        };
        if let Some(known) = known {
            let record = known.record();
            let peer = request.peer.trim();
            if record.body.text != request.text || !(peer.is_empty() || record.body.peer == peer) {
                return Err(ToolError(
                    "The key of this call was used for another call before. Call again.".to_owned(),
                ));
            }
            return Ok(known);
        }
        let refuse = |reason: String| self.refuse(using, &request.peer, reason);
        if request.text.trim().is_empty() || request.text.len() > MAX_TEXT {
            return Err(refuse(format!("The message must not be empty, and have at most {MAX_TEXT} bytes.")));
        }
        let earlier = match &request.continues {
            Some(handle) => Some(self.known(using, handle).await?.record()),
            None => None,
        };
        // A call that continues another one need not name its peer.
        let named = Some(request.peer.trim()).filter(|name| !name.is_empty());
        let peer = named.or(earlier.as_ref().map(|earlier| earlier.body.peer.as_str())).unwrap_or_default();
        let place = self.0.places.find(peer).map_err(|ToolError(reason)| refuse(reason))?;
        let hops = self.hops(&using.turn).map_err(refuse)?;
        let context = earlier.map(|earlier| continued(&earlier, &place)).transpose().map_err(refuse)?;
        let record = Record {
            id: id.clone(),
            task: using.turn.task.clone(),
            owner: using.turn.owner.clone(),
            at: self.0.clock.now(),
            body: Body {
                session: using.session.clone(),
                turn: using.turn.prompt.clone(),
                epoch: self.0.store.epoch().0,
                tool_call: using.tool_call.clone(),
                peer: place.name().to_owned(),
                text: request.text.clone(),
                trace: using.turn.trace.as_ref().map(|trace| trace.child().traceparent()),
                hops,
                context,
                remote_task: None,
                asks: 0,
                ask: None,
                answers: Vec::new(),
                usage: None,
                end: None,
            },
        };
        let (call, answers) = Call::new(record, place);
        {
            let mut live = self.0.live();
            // Another request with the same key came at the same time, and has already begun the call.
            if let Some(call) = live.get(&id) {
                return Ok(Known::Live(Arc::clone(call)));
            }
            using
                .turn
                .begin(&call, self.0.at_once, self.0.per_task)
                .map_err(|full| refuse(self.full(full)))?;
            live.insert(id.clone(), Arc::clone(&call));
        }
        let record = call.record();
        audit::called(&record.owner, &record.task, &using.session, &record.body.peer, &id);
        self.0.tasks.spawn("peer-call", drive::run(Arc::clone(&self.0), Arc::clone(&call), answers, true));
        Ok(Known::Live(call))
    }

    fn full(&self, full: Full) -> String {
        match full {
            Full::AtOnce => format!(
                "This task already has {} calls that run, the most at the same time. Wait for one of them with a2a_status, or cancel \
                 one with a2a_cancel.",
                self.0.at_once
            ),
            Full::InAll => format!(
                "This task has made {} calls, the most that one task may make. Finish with what you have.",
                self.0.per_task
            ),
            Full::Over => "The turn is over, so its agent can call nobody.".to_owned(),
        }
    }

    /// The chain of gateways for a call of the turn. The error is for the model.
    fn hops(&self, turn: &RunningTurn) -> Result<Hops, String> {
        let hops = self.0.identity.extend(&turn.hops);
        if hops.0.len() > self.0.hop_rules.longest {
            return Err(format!(
                "The call was refused: agents already called each other over {} gateways, the most that this gateway allows: {}.",
                turn.hops.0.len() + 1,
                crate::hops::shown(&hops)
            ));
        }
        Ok(hops)
    }

    /// Waits until the call ends or asks the model, `wait` is over, or the gateway stops. Then reports on the call.
    async fn report(&self, known: Known, wait: Duration, progress: &Progress) -> CallReport {
        let call = match known {
            Known::Live(call) => call,
            Known::Ended(record) => return report_of(&record, false),
        };
        let until = Instant::now() + wait.min(LONGEST_WAIT);
        let mut view = call.view.subscribe();
        let mut told = view.borrow().line.0;
        loop {
            let now = view.borrow_and_update().clone();
            if now.line.0 > told {
                told = now.line.0;
                // If the queue is full, the line is dropped.
                let _ = progress.try_send(now.line.1.clone());
            }
            let model_answers = call.place.model_answers();
            let waits_for_peer_or_user =
                matches!(now.record.state(model_answers), CallState::Working | CallState::AsksUser { .. });
            if !waits_for_peer_or_user {
                return report_of(&now.record, model_answers);
            }
            let changed = async {
                tokio::select! {
                    changed = view.changed() => changed.is_ok(),
                    () = self.0.tasks.stopping().cancelled() => false,
                }
            };
            if !timeout_at(until, changed).await.unwrap_or(false) {
                return report_of(&call.record(), model_answers);
            }
        }
    }
}

/// A call that was found and that the caller may see.
pub(crate) enum Known {
    Live(Arc<Call>),
    Ended(Arc<Record>),
}

impl Known {
    fn report(&self) -> CallReport {
        match self {
            Self::Live(call) => report_of(&call.record(), call.place.model_answers()),
            Self::Ended(record) => report_of(record, false),
        }
    }

    pub(crate) fn record(&self) -> Arc<Record> {
        match self {
            Self::Live(call) => call.record(),
            Self::Ended(record) => Arc::clone(record),
        }
    }
}

fn check_key(key: &CallKey) -> Result<(), ToolError> {
    if key.0.is_empty() || key.0.len() > MAX_KEY {
        return Err(ToolError(format!("The key of the call must have 1 to {MAX_KEY} bytes.")));
    }
    Ok(())
}

/// The peer's context of an earlier call, to continue it. The error says why the call cannot be continued.
fn continued(earlier: &Record, place: &Place) -> Result<String, String> {
    if earlier.body.peer != place.name() {
        return Err("The earlier call was to another agent. Continue it with that agent.".to_owned());
    }
    if earlier.body.end.is_none() {
        return Err("The earlier call still runs. Wait for it with a2a_status, or answer what the agent asks with a2a_answer."
            .to_owned());
    }
    earlier.body.context.clone().ok_or_else(|| {
        "The agent named no context in the earlier call, so it cannot be continued. Make a new call."
            .to_owned()
    })
}

fn report_of(record: &Record, model_answers: bool) -> CallReport {
    let end = record.body.end.as_ref();
    CallReport {
        handle: CallHandle(record.id.clone()),
        peer: record.body.peer.clone(),
        state: record.state(model_answers),
        text: end.map(|end| end.text.clone()).unwrap_or_default(),
        artifacts: end.map(|end| end.artifacts.clone()).unwrap_or_default(),
    }
}

/// Cancels a resumed call if its task ends before a turn of the task shows the call again.
async fn cancel_without_task(ctx: Arc<Context>, call: Arc<Call>) {
    while !call.is_over() && !call.is_shown() {
        let record = call.record();
        let head = ctx.store.head(&record.owner, &record.task).await;
        if head.is_ok_and(|head| head.is_none_or(|head| head.state.is_terminal())) {
            call.cancel.cancel();
            return;
        }
        tokio::select! {
            () = ctx.tasks.stopping().cancelled() => return,
            () = tokio::time::sleep(LOOK_AT_TASK) => {}
        }
    }
}

impl Tools for PeerCalls {
    fn discover<'a>(&'a self, caller: &'a ToolCaller) -> BoxFuture<'a, Result<Vec<PeerSummary>, ToolError>> {
        Box::pin(async move {
            self.using(caller).await?;
            let summaries = self.0.places.peers().iter().map(|peer| self.summary(peer));
            Ok(join_all(summaries).await)
        })
    }

    fn call<'a>(
        &'a self,
        caller: &'a ToolCaller,
        key: &'a CallKey,
        request: CallRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let using = self.using(caller).await?;
            check_key(key)?;
            let known = self.begin(&using, key, &request).await?;
            Ok(self.report(known, request.wait, &progress).await)
        })
    }

    fn status<'a>(
        &'a self,
        caller: &'a ToolCaller,
        call: &'a CallHandle,
        wait: Duration,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let using = self.using(caller).await?;
            let known = self.known(&using, call).await?;
            Ok(self.report(known, wait, &progress).await)
        })
    }

    fn answer<'a>(
        &'a self,
        caller: &'a ToolCaller,
        key: &'a CallKey,
        call: &'a CallHandle,
        request: AnswerRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let AnswerRequest { ask: named, text: answer, wait } = request;
            let using = self.using(caller).await?;
            check_key(key)?;
            let known = self.known(&using, call).await?;
            // The answer is repeated because its result was lost. Do not send it again.
            if known.record().was_answered_with(key) {
                return Ok(self.report(known, wait, &progress).await);
            }
            let refuse = |reason: &str| self.refuse(&using, &call.0, reason.to_owned());
            let Known::Live(live) = &known else {
                return Err(refuse("The call is over, so it asks nothing."));
            };
            let record = live.record();
            let Some(ask) = record.body.ask.as_ref().filter(|_| record.body.end.is_none()) else {
                return Err(refuse("The agent asks nothing now. See what it does with a2a_status."));
            };
            if named.is_some_and(|named| named != ask.id.as_str()) {
                return Err(refuse(
                    "The agent does not wait for an answer to this ask any more. See with a2a_status what it asks now.",
                ));
            }
            if ask.is_permission || !live.place.model_answers() {
                return Err(refuse(
                    "Only the user of the task may answer this, and has been asked. Wait for the answer with a2a_status.",
                ));
            }
            if answer.trim().is_empty() || answer.len() > MAX_TEXT {
                return Err(refuse("The answer must not be empty or very long."));
            }
            let text = Answer::Question { answers: vec![vec![answer.clone()]] };
            let is_rejection = PermissionReply::parse(&answer) == Some(PermissionReply::Reject);
            let given = if is_rejection { Answer::RejectQuestion } else { text };
            match live.answer(Some(ask.id.clone()), given, Some(key.clone())).await {
                Err(AnswerError::NotOpen) if !live.record().was_answered_with(key) => {
                    return Err(ToolError("The question was answered or withdrawn meanwhile.".to_owned()));
                }
                Err(AnswerError::Refused { reason, .. }) => {
                    return Err(ToolError(format!("The agent did not take the answer: {}", quoted(&reason))));
                }
                Ok(()) | Err(AnswerError::NotOpen) => {}
            }
            Ok(self.report(known, wait, &progress).await)
        })
    }

    fn cancel<'a>(
        &'a self,
        caller: &'a ToolCaller,
        call: &'a CallHandle,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            /// How long the tool waits for the cancel. The request to the peer has its own, shorter limit.
            const CANCEL_WAIT: Duration = Duration::from_secs(20);
            let using = self.using(caller).await?;
            let known = self.known(&using, call).await?;
            if let Known::Live(call) = &known {
                call.cancel.cancel();
                // Wait for the end of the call only. A question of the peer must not end the wait, because the call is ending.
                let mut view = call.view.subscribe();
                let over = view.wait_for(|view| view.record.body.end.is_some());
                let _ = tokio::time::timeout(CANCEL_WAIT, over).await;
            }
            Ok(known.report())
        })
    }
}

impl PeerCalls {
    async fn summary(&self, peer: &Peer) -> PeerSummary {
        let short = |text: &str| redact::cut_at(text, MAX_DESCRIPTION);
        let own = peer.description.as_deref().map(short);
        match self.0.places.card(peer).await {
            Ok(found) => {
                let skills = found.card.json["skills"].as_array().into_iter().flatten().take(MAX_SKILLS);
                let text = |skill: &Value, name: &str| short(skill[name].as_str().unwrap_or_default());
                PeerSummary {
                    name: peer.name.clone(),
                    description: own.unwrap_or_else(|| short(&found.card.description)),
                    skills: skills.map(|skill| (text(skill, "name"), text(skill, "description"))).collect(),
                    problem: None,
                }
            }
            Err(error) => PeerSummary {
                name: peer.name.clone(),
                description: own.unwrap_or_default(),
                skills: Vec::new(),
                problem: Some(words(&error)),
            },
        }
    }
}
