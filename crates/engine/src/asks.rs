//! The open asks of one task: who may answer them, until when, and how they ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_model::{
    Answer, Approval, Ask, AskKind, Closed, Error, ErrorKind, Interrupt, InterruptNote, Message,
    PermissionReply, PermissionRequest, Principal, RequestId, Resolution, Result, Retry, SessionId,
    Timestamp,
};

use crate::actor_request::{GivenAnswer, Reply};
use crate::config::{AlwaysScope, AskConfig, DeadlinePolicy};
use crate::engine_context::Ports;
use crate::open_asks::{OpenAsk, OpenAsks};
use crate::port::{Agent, AskChange, BoxFuture, Session, with_caller_trace};
use crate::retry::Backoff;
use crate::writer::Writer;
use crate::{audit, fail_point, lifecycle};

/// An answer on its way to the agent.
struct PendingAnswer {
    send: Option<[u8; 32]>,
    /// A short description of the answer, for error messages.
    how: String,
    /// Whether the answer also applies to later asks.
    is_always: bool,
    /// Whether the gateway stores an approval because of this answer.
    keeps: bool,
    /// Callers that sent the same message again while the answer was on its way.
    others: Vec<Reply>,
    /// How the ask ended according to the agent. `None`: the agent has not reported the end yet.
    reported: Option<Resolution>,
}

/// An answer that was sent to the agent, and whether the agent accepted it.
pub(crate) struct Delivered {
    answer: DeliveredAnswer,
    outcome: Result<()>,
}

enum DeliveredAnswer {
    /// The answer of a caller.
    Given(GivenAnswer),
    /// The answer of the gateway to an ask that a kept approval covers.
    Approved(Ask),
}

/// A change to an ask of a sub-agent. The root task owns the ask and passes the change on to the child task.
#[derive(Debug)]
pub(crate) enum AskChangeForChild {
    Asked(Ask),
    Closed { session: SessionId, note: InterruptNote },
}

/// How many asks of one task may be open. The gateway answers further asks with the deadline policy, so that the agent can
/// continue.
const MAX_OPEN: usize = 64;

/// How often the gateway tries to answer an ask that a kept approval covers, before it asks the owner.
const APPROVAL_ATTEMPTS: usize = 3;

pub(crate) struct Asks {
    config: AskConfig,
    /// The session of the task itself. Asks from other sessions are those of its sub-agents.
    session: Option<SessionId>,
    open: Vec<Interrupt>,
    all: Arc<OpenAsks>,
    /// The entry of each open ask in the metrics.
    counted: HashMap<RequestId, OpenAsk>,
    child_changes: Vec<AskChangeForChild>,
    answering: HashMap<RequestId, PendingAnswer>,
    /// The sessions in which the gateway rejected an ask at its deadline, with that deadline.
    rejected: HashMap<SessionId, Timestamp>,
    deliveries: FuturesUnordered<BoxFuture<'static, Box<Delivered>>>,
}

impl Asks {
    /// `all`: counts the open asks of all tasks, for the metrics.
    pub(crate) fn new(config: AskConfig, open: Vec<Interrupt>, all: &Arc<OpenAsks>) -> Self {
        let (answering, deliveries) = (HashMap::new(), FuturesUnordered::new());
        let known = |open: &Interrupt| (open.ask.request_id.clone(), all.known(open.asked_at));
        let counted = open.iter().map(known).collect();
        let (session, child_changes, all) = (None, Vec::new(), Arc::clone(all));
        let rejected = HashMap::new();
        Self { config, session, open, all, counted, child_changes, answering, rejected, deliveries }
    }

    /// Ends the measurement of the open asks, because the task is over.
    pub(crate) fn end(self, at: Timestamp) {
        for counted in self.counted.into_values() {
            counted.resolved(at);
        }
    }

    /// Sets the session in which the turn runs.
    pub(crate) fn run_in(&mut self, session: &SessionId) {
        self.session = Some(session.clone());
    }

    /// Removes and returns the changes since the last call that must also be written to the child tasks.
    pub(crate) fn take_child_changes(&mut self) -> Vec<AskChangeForChild> {
        std::mem::take(&mut self.child_changes)
    }

    pub(crate) fn has_child_changes(&self) -> bool {
        !self.child_changes.is_empty()
    }

    /// Whether an answer is on its way to the agent.
    pub(crate) fn is_answering(&self) -> bool {
        !self.deliveries.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn requests(&self) -> Vec<RequestId> {
        self.open.iter().map(|open| open.ask.request_id.clone()).collect()
    }

    /// Opens an ask of the agent, unless it is already open. If too many asks are open, returns the ask and the deadline policy's
    /// answer to it.
    pub(crate) fn opened(
        &mut self,
        writer: &mut Writer,
        owner: &Principal,
        ask: Ask,
    ) -> Option<(Ask, Answer)> {
        if self.open.iter().any(|open| open.ask.request_id == ask.request_id) || writer.is_over() {
            return None;
        }
        if self.open.len() >= MAX_OPEN {
            tracing::warn!(task = %writer.task().id, "too many open asks; the policy answers this one");
            self.all.answered_at_once();
            let answer = self.policy_answer(&ask);
            return Some((ask, answer));
        }
        if self.is_of_sub_agent(&ask) {
            self.child_changes.push(AskChangeForChild::Asked(ask.clone()));
        }
        let now = writer.now();
        let event = lifecycle::asked(writer.task(), now, &ask, self.config.always);
        let interrupt = self.interrupt(writer, owner, ask);
        writer.push_ask(event, [AskChange::Opened(Box::new(interrupt.clone()))]);
        self.counted.insert(interrupt.ask.request_id.clone(), self.all.opened(now));
        self.open.push(interrupt);
        None
    }

    fn interrupt(&self, writer: &Writer, owner: &Principal, ask: Ask) -> Interrupt {
        let (task, now) = (writer.task(), writer.now());
        Interrupt {
            ask,
            owner: owner.clone(),
            task: task.id.clone(),
            context: task.context_id.clone(),
            asked_at: now,
            expires_at: self.config.time_to_live.map(|limit| later(now, limit)),
            closed: None,
        }
    }

    /// The permission that the ask requests, if a kept approval may answer the ask. No caller's answer may be on its way. With
    /// `is_new` the ask must not be open yet; otherwise it must be open.
    pub(crate) fn may_be_approved<'a>(&self, ask: &'a Ask, is_new: bool) -> Option<&'a PermissionRequest> {
        let is_open = self.open.iter().any(|open| open.ask.request_id == ask.request_id);
        let is_free = is_open != is_new && !self.answering.contains_key(&ask.request_id);
        let is_kept_here = self.config.always == AlwaysScope::Session;
        // If the agent offers no option that allows once, an approval cannot answer the ask, and the owner is asked.
        let allows_once = || ask.options.choose(PermissionReply::Once).is_ok();
        ask.permission.as_deref().filter(|_| is_free && is_kept_here && allows_once())
    }

    pub(crate) fn open(&self) -> Vec<Ask> {
        self.open.iter().map(|open| open.ask.clone()).collect()
    }

    /// Records that a kept approval covers an ask. [`Asks::send_approval`] then sends the answer.
    pub(crate) fn approved(&mut self, writer: &mut Writer, owner: &Principal, ask: &Ask) {
        let how = Some(PermissionReply::Once.as_str().to_owned());
        let closed = Closed { resolution: Resolution::Approved, at: writer.now(), by: None, how };
        if self.open.iter().any(|open| open.ask.request_id == ask.request_id) {
            return self.close(writer, &ask.request_id, closed, None);
        }
        if writer.is_over() {
            return;
        }
        self.all.answered_at_once();
        let interrupt = self.interrupt(writer, owner, ask.clone());
        // The task never waited for an answer, so this note is the only record of what was approved.
        let details = Some(ask.details.clone());
        let note = InterruptNote { details, ..InterruptNote::resolved(&interrupt, &closed) };
        if self.is_of_sub_agent(ask) {
            let (session, note) = (ask.session.clone(), note.clone());
            self.child_changes.push(AskChangeForChild::Closed { session, note });
        }
        let request_id = ask.request_id.clone();
        let changes = [AskChange::Opened(Box::new(interrupt)), AskChange::Closed { request_id, closed }];
        writer.push_ask(lifecycle::approved(writer.task(), note), changes);
    }

    /// Answers an ask that a kept approval covers. If the agent does not accept the answer, the gateway asks the owner after all.
    pub(crate) fn send_approval(&mut self, agent: &Arc<dyn Agent>, session: &Session, ask: Ask) {
        let (agent, session) = (Arc::clone(agent), session.clone());
        self.deliveries.push(Box::pin(async move {
            let (mut backoff, mut attempts) = (Backoff::new(), 1);
            let once = Answer::Permission { reply: PermissionReply::Once, message: None };
            let outcome = loop {
                match agent.reply(&session, &ask, &once).await {
                    Err(error) if error.retry() == Retry::Later && attempts < APPROVAL_ATTEMPTS => {
                        attempts += 1;
                        tokio::time::sleep(backoff.next_pause()).await;
                    }
                    outcome => break outcome,
                }
            };
            Box::new(Delivered { answer: DeliveredAnswer::Approved(ask), outcome })
        }));
    }

    fn is_of_sub_agent(&self, ask: &Ask) -> bool {
        self.session.as_ref().is_some_and(|session| *session != ask.session)
    }

    /// Handles the agent's report that an ask is closed.
    pub(crate) fn closed(&mut self, writer: &mut Writer, request: &RequestId, resolution: Resolution) {
        if let Some(answering) = self.answering.get_mut(request) {
            // Most likely the answer that is on its way closed the ask. [`Asks::settle`] decides whether it did.
            answering.reported = Some(resolution);
            return;
        }
        let mut closed = Closed { resolution, at: writer.now(), by: None, how: None };
        if resolution == Resolution::RejectedElsewhere
            && let Some(open) = self.open.iter_mut().find(|open| open.ask.request_id == *request)
            && let Some(deadline) = self.rejected.get(&open.ask.session)
        {
            // When the gateway rejects one ask of a session, an agent may reject the other asks of that session too. This ask then
            // counts as expired.
            open.expires_at = Some(*deadline);
            closed = Closed {
                resolution: Resolution::Expired,
                how: Some(PermissionReply::Reject.as_str().to_owned()),
                ..closed
            };
        }
        self.close(writer, request, closed, None);
    }

    /// Sends an answer to the agent. The caller who gave it gets the result from [`Asks::settle`].
    ///
    /// For the answer `always`, the gateway first stores an approval, if the ask names patterns for one, and then sends
    /// `once` to the agent. With [`AlwaysScope::Agent`] the agent gets `always` itself.
    ///
    /// The caller must have checked the answer against the options of the ask ([`crate::answer::fit`]).
    pub(crate) fn answer(&mut self, ports: &Ports, session: &Session, given: GivenAnswer) {
        let Some(open) = self.open.iter().find(|open| open.ask.request_id == given.request) else {
            let _ = given.reply.send(Err(not_open(&given.request)));
            return;
        };
        if open.ask.kind != given.answer.kind() {
            let error = type_mismatch(&open.ask, &given.answer);
            let _ = given.reply.send(Err(error));
            return;
        }
        let send = given.send.as_ref().map(|send| send.digest);
        if let Some(answering) = self.answering.get_mut(&given.request) {
            if send.is_some() && send == answering.send {
                answering.others.push(given.reply);
            } else {
                let _ = given.reply.send(Err(answered_meanwhile(&given.request, &answering.how)));
            }
            return;
        }
        let (agent, store) = (Arc::clone(&ports.agent), Arc::clone(&ports.store));
        let (session, ask, at) = (session.clone(), open.ask.clone(), ports.clock.now());
        let is_always = is_always(&open.ask, &given.answer);
        let is_kept = is_always && self.config.always == AlwaysScope::Session;
        let asked = open.ask.permission.as_deref().filter(|asked| is_kept && !asked.always.is_empty());
        let approval = asked.map(|asked| Approval {
            request_id: given.request.clone(),
            owner: given.by.clone(),
            session: session.id.clone(),
            context: open.context.clone(),
            permission: asked.permission.clone(),
            patterns: asked.always.clone(),
            action: asked.action.clone(),
            at,
        });
        let approval = approval.filter(Approval::may_be_kept);
        let (how, keeps) = (given.answer.how(), approval.is_some());
        let pending = PendingAnswer { send, how, is_always, keeps, others: Vec::new(), reported: None };
        self.answering.insert(given.request.clone(), pending);
        self.deliveries.push(Box::pin(async move {
            let once = Answer::Permission { reply: PermissionReply::Once, message: None };
            let answer = if is_kept { &once } else { &given.answer };
            let outcome = async {
                if let Some(approval) = approval {
                    store.keep_approval(approval).await?;
                }
                fail_point::hit("reply.before");
                agent.reply(&session, &ask, answer).await
            };
            let outcome = with_caller_trace(given.trace.clone(), outcome).await;
            fail_point::hit("reply.after");
            Box::new(Delivered { answer: DeliveredAnswer::Given(given), outcome })
        }));
    }

    /// Waits until the agent has accepted or refused an answer. Never returns while no answer is on its way. Cancel safe.
    pub(crate) async fn delivered(&mut self) -> Box<Delivered> {
        match self.deliveries.next().await {
            Some(delivered) => delivered,
            None => std::future::pending().await,
        }
    }

    /// Records the result of an answer. The actor sends it to the callers once it is durable.
    pub(crate) fn settle(&mut self, writer: &mut Writer, owner: &Principal, delivered: Delivered) -> Settled {
        let Delivered { answer, outcome } = delivered;
        match answer {
            DeliveredAnswer::Given(given) => {
                let request = given.request.clone();
                let pending = self.answering.get(&request);
                let (is_always, keeps) =
                    pending.map_or((false, false), |pending| (pending.is_always, pending.keeps));
                let result = self.settle_given(writer, given, outcome);
                let is_taken = result.refusal.is_none();
                if is_always && is_taken {
                    audit::always_answered(owner, &request, self.session.as_ref(), self.config.always);
                }
                let change = if is_taken { ApprovalChange::Kept } else { ApprovalChange::Withdrawn(request) };
                let approval = keeps.then_some(change);
                Settled { result: Some(result), approval, too_many: None }
            }
            DeliveredAnswer::Approved(ask) => {
                let error = outcome.err().filter(|error| error.kind() != ErrorKind::InterruptNotFound);
                let too_many = error.and_then(|error| {
                    tracing::warn!(request = %ask.request_id, error = ?error, "a kept approval did not reach the agent; its owner is asked");
                    self.opened(writer, owner, ask)
                });
                Settled { result: None, approval: None, too_many }
            }
        }
    }

    fn settle_given(&mut self, writer: &mut Writer, given: GivenAnswer, outcome: Result<()>) -> AnswerResult {
        let GivenAnswer { request, answer, by, send, reply, .. } = given;
        let answering = self.answering.remove(&request);
        let (reported, others) = answering.map_or((None, Vec::new()), |known| (known.reported, known.others));
        let replies = others.into_iter().chain([reply]).collect();
        let elsewhere = match (outcome, reported) {
            // The agent accepted the answer. Or the connection broke, and the agent reports that the ask was answered.
            (Ok(()), _) => None,
            (Err(error), Some(Resolution::Elsewhere | Resolution::RejectedElsewhere))
                if error.retry() == Retry::Later =>
            {
                None
            }
            (Err(error), None) if error.kind() == ErrorKind::InterruptNotFound => Some(Resolution::Elsewhere),
            // The answer did not arrive, and as far as the gateway knows the ask is still open: it can be answered again.
            (Err(error), None) => return AnswerResult { replies, refusal: Some(error) },
            // Another client answered the ask first.
            (Err(_), Some(resolution)) => Some(resolution),
        };
        if let Some(resolution) = elsewhere {
            let closed = Closed { resolution, at: writer.now(), by: None, how: None };
            self.close(writer, &request, closed, None);
            return AnswerResult { replies, refusal: Some(not_open(&request)) };
        }
        let open = self.open.iter().find(|open| open.ask.request_id == request);
        let resolution = open.map_or(Resolution::Replied, |open| answer.resolution(&open.ask.options));
        let how = Some(answer.how());
        let closed = Closed { resolution, at: writer.now(), by: Some(by), how };
        self.close(writer, &request, closed, send.and_then(|send| send.message));
        AnswerResult { replies, refusal: None }
    }

    /// The deadline policy's answer to an ask that was not answered in time.
    pub(crate) fn policy_answer(&self, ask: &Ask) -> Answer {
        let reply = match (ask.kind, self.config.at_deadline) {
            (AskKind::Question, _) => return Answer::RejectQuestion,
            // If no option allows once, the agent would refuse that answer and wait for ever.
            (AskKind::Permission, DeadlinePolicy::Once)
                if ask.options.choose(PermissionReply::Once).is_ok() =>
            {
                PermissionReply::Once
            }
            (AskKind::Permission, DeadlinePolicy::Once | DeadlinePolicy::Reject) => PermissionReply::Reject,
        };
        Answer::Permission { reply, message: None }
    }

    /// The time until the next deadline among the asks for which no answer is on its way. `None`: there is no such deadline.
    pub(crate) fn until_deadline(&self, now: Timestamp) -> Option<Duration> {
        let unanswered = self.open.iter().filter(|open| !self.answering.contains_key(&open.ask.request_id));
        let next = unanswered.filter_map(|open| open.expires_at).min()?;
        Some(Duration::from_millis(u64::try_from(next.0.saturating_sub(now.0)).unwrap_or(0)))
    }

    /// Closes the asks whose deadline has passed. Returns the policy's answers, which the caller sends to the agent.
    pub(crate) fn expire(&mut self, writer: &mut Writer, now: Timestamp) -> Vec<(Ask, Answer)> {
        let due = |open: &&Interrupt| {
            open.expires_at.is_some_and(|at| at <= now) && !self.answering.contains_key(&open.ask.request_id)
        };
        let due: Vec<Interrupt> = self.open.iter().filter(due).cloned().collect();
        let mut answers = Vec::new();
        for Interrupt { ask, expires_at, .. } in due {
            let answer = self.policy_answer(&ask);
            if answer.resolution(&ask.options) == Resolution::Rejected {
                self.rejected.insert(ask.session.clone(), expires_at.unwrap_or(now));
            }
            let closed =
                Closed { resolution: Resolution::Expired, at: now, by: None, how: Some(answer.how()) };
            self.close(writer, &ask.request_id, closed, None);
            answers.push((ask, answer));
        }
        answers
    }

    fn close(&mut self, writer: &mut Writer, request: &RequestId, closed: Closed, joined: Option<Message>) {
        let Some(index) = self.open.iter().position(|open| open.ask.request_id == *request) else { return };
        let interrupt = self.open.remove(index);
        if let Some(counted) = self.counted.remove(request) {
            counted.resolved(closed.at);
        }
        if writer.is_over() {
            return;
        }
        let note = InterruptNote::resolved(&interrupt, &closed);
        if self.is_of_sub_agent(&interrupt.ask) {
            let (session, note) = (interrupt.ask.session, note.clone());
            self.child_changes.push(AskChangeForChild::Closed { session, note });
        }
        let next = self.open.first().map(|open| (&open.ask, self.config.always));
        let event = lifecycle::ask_closed(writer.task(), writer.now(), note, next, joined);
        writer.push_ask(event, [AskChange::Closed { request_id: request.clone(), closed }]);
    }
}

/// The consequences of an answer that the agent has accepted or refused.
pub(crate) struct Settled {
    /// The result for the callers who gave the answer. `None`: no caller gave it.
    pub(crate) result: Option<AnswerResult>,
    /// What happens to the approval for the answer `always`. `None`: the answer concerns no approval.
    pub(crate) approval: Option<ApprovalChange>,
    /// An ask beyond the limit of open asks, and the deadline policy's answer to it.
    pub(crate) too_many: Option<(Ask, Answer)>,
}

/// A change to a kept approval.
pub(crate) enum ApprovalChange {
    /// The agent accepted the answer, and the approval may cover other open asks.
    Kept,
    /// The agent did not accept the answer, so its approval is removed.
    Withdrawn(RequestId),
}

/// The result for the callers who gave an answer. Sent once the events before it are durable.
pub(crate) struct AnswerResult {
    replies: Vec<Reply>,
    refusal: Option<Error>,
}

impl AnswerResult {
    pub(crate) fn send(self, writer: &Writer) {
        let answer = match self.refusal {
            Some(error) => Err(error),
            None => Ok(writer.snapshot()),
        };
        for reply in self.replies {
            // The caller may have disconnected; the answer counts anyway.
            let _ = reply.send(answer.clone());
        }
    }
}

pub(crate) fn not_open(request: &RequestId) -> Error {
    let text = format!("No ask {request} is open that you may answer; list the open ones, or get the task.");
    Error::new(ErrorKind::InterruptNotFound, text).detail("requestId", request.as_str())
}

/// The error for an answer that comes too late. Tells the owner of the ask who closed it, how and when.
pub(crate) fn too_late(request: &RequestId, closed: &Closed, kind: ErrorKind) -> Error {
    let (who, words) = match (closed.resolution, &closed.how) {
        (Resolution::Replied | Resolution::Rejected, how) => {
            let how = how.as_deref().unwrap_or(closed.resolution.as_str());
            (
                "principal",
                format!("was already answered by you, or by another client of the same principal: {how}"),
            )
        }
        (Resolution::Elsewhere, _) => {
            ("agent_client", "was already answered at the agent, by another of its clients".to_owned())
        }
        (Resolution::RejectedElsewhere, _) => {
            let words =
                "was already rejected at the agent, by another of its clients or together with another ask";
            ("agent_client", words.to_owned())
        }
        (Resolution::Expired, how) => {
            let how = how.as_deref().unwrap_or("reject");
            ("deadline", format!("was not answered in time, so the gateway answered it: {how}"))
        }
        (Resolution::Approved, _) => (
            "approval",
            "was already answered by the gateway, with an approval that you gave for this session: once"
                .to_owned(),
        ),
        (Resolution::Dropped, _) => ("agent", "was closed by the agent, because the turn ended".to_owned()),
    };
    let text = format!("The ask {request} {words} (at {}). Get the task to see how it went on.", closed.at);
    let error = Error::new(kind, text)
        .detail("requestId", request.as_str())
        .detail("outcome", closed.resolution.as_str())
        .detail("answeredBy", who)
        .detail("answeredAt", closed.at.to_string());
    match &closed.how {
        Some(how) => error.detail("answer", how.as_str()),
        None => error,
    }
}

/// The error for an answer that comes while another answer to the same ask is on its way to the agent. Both callers are the
/// owner of the ask.
fn answered_meanwhile(request: &RequestId, how: &str) -> Error {
    let text = format!(
        "The ask {request} is being answered already by you, or by another client of the same principal: {how}. Get the \
         task to see how it goes on."
    );
    Error::new(ErrorKind::InterruptNotFound, text)
        .detail("requestId", request.as_str())
        .detail("answeredBy", "principal")
        .detail("answer", how)
}

/// The error for an answer when no turn runs, or when the turn is not resumed yet after a restart.
pub(crate) fn not_now(open: &[RequestId], request: &RequestId) -> Error {
    if !open.contains(request) {
        return not_open(request);
    }
    let text = "The agent is not back yet; the ask is still open, so answer it again in a moment.";
    Error::new(ErrorKind::AgentUnavailable, text).detail("requestId", request.as_str())
}

pub(crate) fn type_mismatch(ask: &Ask, answer: &Answer) -> Error {
    let text = format!("{} is a {}; answer it as one.", ask.request_id, ask.kind);
    Error::new(ErrorKind::InterruptTypeMismatch, text)
        .detail("requestId", ask.request_id.as_str())
        .detail("expectedInterruptType", answer.kind().as_str())
        .detail("actualInterruptType", ask.kind.as_str())
}

/// Whether an answer also applies to later asks: because the gateway keeps it, or because the agent's own option says so.
fn is_always(ask: &Ask, answer: &Answer) -> bool {
    match answer {
        Answer::Permission { reply, .. } => *reply == PermissionReply::Always,
        Answer::PermissionOption { option, .. } => {
            ask.options.named(option).is_ok_and(|option| option.kind.is_always())
        }
        Answer::Question { .. } | Answer::RejectQuestion => false,
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}

impl std::fmt::Debug for Asks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asks").field("open", &self.open).finish_non_exhaustive()
    }
}
