//! The engine's side of the simulated agent: a part of the gateway, which dies with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use longshore_engine::Tasks;
use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Description, Input, MAX_STEERING, NewSession, Resume,
    ResumedChild, ResumedChildState, Session, Steering, Turn, TurnRecord, TurnRequest, UnfollowedTurns,
};
use longshore_engine::queue;
use longshore_engine::simulation::Flaw;
use longshore_model::{
    AgentEvent, Answer, Artifact, ArtifactId, Ask, AskKind, AskOptions, BlockKind, BlockRef, ChildEvent,
    ChildStart, ErrorKind, Failure, Json, Outcome, PromptId, RequestId, Resolution, Result, SessionId,
};
use longshore_testkit::external_turns::ExternalTurnSource as _;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::agent::{AgentAsk, AgentTurn, Fate, NotStarted, SimAgent, SubAgent, TextPart};
use crate::other_client::SimControl;
use crate::stage::{Stage, away};

/// Few, so that the driver sometimes waits for the engine.
const REPORTS: usize = 4;

/// How long the driver looks for a prompt that the agent does not show.
const SETTLE: Duration = Duration::from_secs(7);

/// How long a prompt waits for a busy session before it fails with `SessionBusy`.
const BUSY: Duration = Duration::from_secs(3);

/// The note about a joined message that may not have been read.
pub(crate) const UNREAD: &str = "A message that joined this turn may not have been read.";

/// The failure of a turn that the agent does not show.
pub(crate) const NOT_KNOWN: &str = "It is not known whether the agent took the prompt.";

/// The failure of a call to an agent that is away.
pub(crate) const AWAY: &str = "The agent cannot be reached.";

/// The failures of turns and sub-agents.
pub(crate) const MODEL_FAILED: &str = "The model failed.";
pub(crate) const KILLED: &str = "The agent stopped in the middle of the turn.";
pub(crate) const SUB_AGENT_FAILED: &str = "The sub-agent failed.";

#[derive(Debug)]
pub(crate) struct SimDriver {
    pub(crate) agent: Arc<SimAgent>,
    pub(crate) control: Arc<SimControl>,
    pub(crate) tasks: Tasks,
}

impl SimDriver {
    fn stage(&self) -> &Stage {
        &self.agent.stage
    }

    /// Whether a request arrives at the agent.
    async fn reach(&self) -> Result<()> {
        self.stage().pause().await;
        if !self.agent.state().is_up || self.stage().strikes(|fault_rates| fault_rates.agent_fails) {
            return away(ErrorKind::AgentUnavailable, AWAY);
        }
        Ok(())
    }

    async fn start(&self, request: TurnRequest) -> Result<Turn> {
        self.reach().await?;
        if request.resume.is_some() {
            self.stage().note(format_args!("driver: {} is taken up", request.prompt));
            self.agent.state().taken_up.insert(request.task);
        } else {
            self.prompt(&request).await?;
        }
        let (reports, events) = queue::channel(REPORTS);
        let (steering, joining) = queue::channel(MAX_STEERING);
        let changes = self.agent.changes();
        let is_resumed = request.resume.is_some();
        let reported = Reported::from(request.resume.unwrap_or_default());
        let (session, prompt, agent) = (request.session.id, request.prompt, Arc::clone(&self.agent));
        let follower =
            Follower { agent, session, prompt, reports, changes, reported, has_missed_the_end: false };
        self.tasks.spawn("driver", follower.follow(joining, is_resumed));
        Ok(Turn { steering: Some(steering), events, refusal: None })
    }

    async fn prompt(&self, request: &TurnRequest) -> Result<()> {
        let session = &request.session.id;
        let mut changes = self.agent.changes();
        let deadline = Instant::now() + BUSY;
        loop {
            {
                let state = self.agent.state();
                if !state.is_up {
                    return away(ErrorKind::AgentUnavailable, AWAY);
                }
                let Some(conversation) = state.session(session) else {
                    return away(ErrorKind::SessionGone, "The agent does not know the session.");
                };
                if !conversation.is_busy() {
                    break;
                }
            }
            // A turn whose abort was lost may wait for an answer that never comes.
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return away(ErrorKind::SessionBusy, "The session is busy with something else.");
            }
        }
        request.prompting.mark();
        self.reach().await?;
        if self.agent.state().session(session).is_none() {
            return away(ErrorKind::SessionGone, "The agent does not know the session.");
        }
        self.agent.take(session, &request.prompt, words_of(&request.input), None);
        self.stage().pause().await;
        Ok(())
    }
}

fn words_of(input: &[Input]) -> String {
    let text = |input: &Input| match input {
        Input::Text(text) => Some(text.clone()),
        Input::File(_) => None,
    };
    input.iter().filter_map(text).collect()
}

impl Agent for SimDriver {
    fn describe(&self) -> Description {
        Description { name: "The simulated agent".to_owned(), version: None, resumes_turns: true }
    }

    fn admit<'a>(&'a self, admission: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async move {
            self.stage().pause().await;
            Ok(Admitted { directory: admission.current.unwrap_or("workspace").to_owned() })
        })
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(async move {
            self.reach().await?;
            let session = self.agent.open(&request.directory);
            self.control.watch(vec![session.clone()]);
            self.stage().pause().await;
            Ok(session)
        })
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async move {
            let (task, prompting) = (request.task.clone(), request.prompting.clone());
            let started = self.start(request).await;
            if let Err(error) = &started {
                let (why, was_prompting) = (error.message().to_owned(), prompting.has_begun());
                self.agent.state().not_started.insert(task, NotStarted { why, was_prompting });
            }
            started
        })
    }

    fn reply<'a>(
        &'a self,
        session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.reach().await?;
            let resolution = match answer.resolution(&AskOptions::words()) {
                Resolution::Rejected => Resolution::RejectedElsewhere,
                _ => Resolution::Elsewhere,
            };
            if !self.agent.close(&session.id, &ask.request_id, resolution, Some(answer)) {
                return away(ErrorKind::InterruptNotFound, "The agent does not ask this.");
            }
            self.stage().note(format_args!("agent: {} is answered", ask.request_id));
            // The answer may arrive and the connection break before the response.
            self.reach().await
        })
    }

    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.reach().await?;
            if self.stage().strikes(|fault_rates| fault_rates.agent_fails) {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            self.agent.stop(&session.id);
            self.reach().await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.reach())
    }

    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        Some(self)
    }
}

impl UnfollowedTurns for SimDriver {
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.reach().await?;
            Ok(self.agent.state().session(&session.id).is_some_and(crate::agent::Conversation::is_busy))
        })
    }

    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(async move {
            self.reach().await?;
            let mut may_run = Vec::new();
            for over in over {
                let session = &over.session.id;
                let runs = {
                    let state = self.agent.state();
                    let turn = state.session(session).and_then(|session| session.turn(&over.prompt));
                    turn.is_some_and(|turn| turn.fate == Fate::Running)
                };
                if runs {
                    self.agent.stop(session);
                    may_run.push(session.clone());
                }
            }
            self.reach().await?;
            Ok(may_run)
        })
    }
}

/// What was reported to the engine about a turn.
#[derive(Debug, Default)]
struct Reported {
    parts: ReportedParts,
    asked: BTreeSet<RequestId>,
    closed: BTreeSet<RequestId>,
    /// The prompts that joined before a restart.
    joined: Vec<PromptId>,
    children: BTreeMap<SessionId, ReportedChild>,
}

#[derive(Debug, Default)]
struct ReportedParts(BTreeMap<String, ReportedPart>);

#[derive(Debug, Default)]
struct ReportedPart {
    text: String,
    /// Some of it was written while no driver listened, so it is complete only after its end.
    is_deaf: bool,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct ReportedChild {
    is_working: bool,
    is_over: bool,
    parts: ReportedParts,
}

impl ReportedParts {
    fn from(artifacts: &[Artifact]) -> Self {
        let part = |artifact: &Artifact| {
            let text = artifact.parts.iter().filter_map(|part| part.as_text()).collect();
            (artifact.id.as_str().to_owned(), ReportedPart { text, ..ReportedPart::default() })
        };
        Self(artifacts.iter().map(part).collect())
    }

    /// No driver listened until now.
    fn mark_missed(&mut self, parts: &[TextPart]) {
        for part in parts.iter().filter(|part| !part.has_ended) {
            self.0.entry(part.id.clone()).or_default().is_deaf = true;
        }
    }

    fn news(&mut self, parts: &[TextPart]) -> Vec<AgentEvent> {
        let mut news = Vec::new();
        for part in parts {
            let reported = self.0.entry(part.id.clone()).or_default();
            if reported.has_ended || (reported.is_deaf && !part.has_ended) {
                continue;
            }
            let block = block(&part.id);
            match part.text.strip_prefix(reported.text.as_str()) {
                Some("") => {}
                Some(more) => news.push(AgentEvent::Text { block: block.clone(), text: more.to_owned() }),
                None => {
                    news.push(AgentEvent::TextReplaced { block: block.clone(), text: part.text.clone() });
                }
            }
            reported.text.clone_from(&part.text);
            if part.has_ended {
                reported.has_ended = true;
                news.push(AgentEvent::TextEnded { block });
            }
        }
        news
    }
}

impl Reported {
    fn from(resume: Resume) -> Self {
        let child = |child: ResumedChild| {
            let reported = match child.state {
                ResumedChildState::Over => ReportedChild { is_over: true, ..ReportedChild::default() },
                ResumedChildState::Running { prompt, artifacts } => ReportedChild {
                    is_working: prompt.is_some(),
                    is_over: false,
                    parts: ReportedParts::from(&artifacts),
                },
            };
            (child.session, reported)
        };
        Self {
            parts: ReportedParts::from(&resume.artifacts),
            asked: resume.open_asks.into_iter().collect(),
            closed: BTreeSet::new(),
            joined: resume.joined,
            children: resume.children.into_iter().map(child).collect(),
        }
    }

    /// No driver listened until now.
    fn mark_missed(&mut self, turn: &AgentTurn) {
        self.parts.mark_missed(&turn.parts);
        for child in &turn.children {
            if let Some(reported) = self.children.get_mut(&child.session) {
                reported.parts.mark_missed(&child.parts);
            }
        }
    }

    /// What is new. `was_away`: no driver listened until now.
    fn news(&mut self, session: &SessionId, turn: &AgentTurn, was_away: bool) -> Vec<AgentEvent> {
        let mut news = self.parts.news(&turn.parts);
        for child in &turn.children {
            news.extend(self.child_news(session, child, was_away));
        }
        for ask in &turn.asks {
            match ask.closed {
                None if self.asked.insert(ask.id.clone()) => {
                    news.push(AgentEvent::Asked(Box::new(permission(ask))));
                }
                Some(resolution) if self.asked.contains(&ask.id) && self.closed.insert(ask.id.clone()) => {
                    news.push(AgentEvent::AskClosed { request_id: ask.id.clone(), resolution });
                }
                _ => {}
            }
        }
        news
    }

    fn child_news(&mut self, session: &SessionId, child: &SubAgent, was_away: bool) -> Vec<AgentEvent> {
        let mut news = Vec::new();
        let reported = self.children.entry(child.session.clone()).or_insert_with(|| {
            news.push(ChildEvent::Started(ChildStart {
                caller: session.clone(),
                call: Some(child.call.clone()),
                prompt: child.words.clone(),
                title: None,
                kind: None,
                model: None,
            }));
            let mut reported = ReportedChild::default();
            if was_away {
                reported.parts.mark_missed(&child.parts);
            }
            reported
        });
        if !reported.is_over {
            if !std::mem::replace(&mut reported.is_working, true) {
                news.push(ChildEvent::Working(child.prompt.clone()));
            }
            news.extend(reported.parts.news(&child.parts).into_iter().map(ChildEvent::Report));
            if child.fate != Fate::Running {
                reported.is_over = true;
                let outcome = if child.fate == Fate::Completed {
                    Outcome::Completed { remark: None }
                } else {
                    failed(SUB_AGENT_FAILED)
                };
                news.push(ChildEvent::Report(AgentEvent::Ended(outcome)));
            }
        }
        let session = &child.session;
        let of_child = |event| AgentEvent::Child { session: session.clone(), event: Box::new(event) };
        news.into_iter().map(of_child).collect()
    }

    fn outcome(&self, turn: &AgentTurn) -> Outcome {
        let is_there = |id: &PromptId| turn.prompts.iter().any(|prompt| prompt.id == *id);
        let remark = (!self.joined.iter().all(is_there)).then(|| UNREAD.to_owned());
        match turn.fate {
            Fate::Completed | Fate::Running => Outcome::Completed { remark },
            Fate::Failed => failed(MODEL_FAILED),
            Fate::NoCredentials => {
                let text = format!("The agent has no credentials. {}", remark.unwrap_or_default());
                Outcome::AuthRequired(Failure::new(text))
            }
            Fate::Aborted => Outcome::Canceled { reason: "The turn was stopped.".to_owned() },
            Fate::Killed => failed(KILLED),
        }
    }
}

fn block(id: &str) -> BlockRef {
    let id = ArtifactId::parse(id).expect("letters and digits");
    BlockRef { id, kind: BlockKind::Text, message: None }
}

fn permission(ask: &AgentAsk) -> Ask {
    Ask {
        request_id: ask.id.clone(),
        kind: AskKind::Permission,
        session: ask.session.clone(),
        summary: "The agent asks for permission.".to_owned(),
        details: Json::parse("{}").expect("JSON"),
        questions: Vec::new(),
        call: None,
        permission: None,
        options: AskOptions::words(),
    }
}

fn failed(text: &str) -> Outcome {
    Outcome::Failed(Failure::new(text))
}

/// Follows one turn and reports it.
struct Follower {
    agent: Arc<SimAgent>,
    session: SessionId,
    prompt: PromptId,
    reports: queue::Sender<AgentEvent>,
    changes: watch::Receiver<u64>,
    reported: Reported,
    /// The turn ended while no driver listened, and that was not looked up.
    has_missed_the_end: bool,
}

/// A message on its way to the agent.
type Joined = BoxFuture<'static, ()>;

/// The current state of the turn.
enum TurnView {
    /// The agent is away.
    Away,
    Gone,
    At {
        news: Vec<AgentEvent>,
        end: Option<Outcome>,
    },
}

impl Follower {
    async fn follow(mut self, mut steering: queue::Receiver<Box<Steering>>, is_resumed: bool) {
        let mut joins: FuturesUnordered<Joined> = FuturesUnordered::new();
        let (mut was_away, mut is_behind) = (is_resumed, is_resumed);
        loop {
            self.changes.borrow_and_update();
            let view = self.view(was_away);
            was_away = false;
            match view {
                TurnView::Away => was_away = true,
                TurnView::Gone if joins.is_empty() => {
                    tokio::time::sleep(SETTLE).await;
                    self.end(failed(NOT_KNOWN)).await;
                    return;
                }
                TurnView::Gone => {}
                TurnView::At { news, end } => {
                    let is_quiet = news.is_empty();
                    for report in news {
                        if self.reports.send(report).await.is_err() {
                            return;
                        }
                    }
                    match end {
                        // No message may join between this check and the end.
                        Some(end) if is_quiet && joins.is_empty() => {
                            steering.close();
                            if steering.is_empty() {
                                self.end(end).await;
                                return;
                            }
                        }
                        _ if !is_quiet => continue,
                        Some(_) => {}
                        None => {
                            let caught_up = std::mem::take(&mut is_behind).then_some(AgentEvent::CaughtUp);
                            if let Some(report) = caught_up
                                && self.reports.send(report).await.is_err()
                            {
                                return;
                            }
                        }
                    }
                }
            }
            if self.agent.stage.strikes(|fault_rates| fault_rates.stream_breaks) {
                self.agent.stage.wait(0, 500).await;
                was_away = true;
            }
            tokio::select! {
                biased;
                Some(()) = joins.next() => {}
                Some(steering) = steering.recv() => {
                    // A finished turn accepts no message; dropping the message says so.
                    if self.may_join() {
                        joins.push(Box::pin(self.join(steering)));
                    }
                }
                changed = self.changes.changed() => if changed.is_err() { return },
                () = self.reports.closed() => return,
            }
        }
    }

    async fn end(&self, outcome: Outcome) {
        // The engine may no longer listen.
        let _ = self.reports.send(AgentEvent::Ended(outcome)).await;
    }

    fn view(&mut self, was_away: bool) -> TurnView {
        let state = self.agent.state();
        if !state.is_up {
            return TurnView::Away;
        }
        let Some(turn) = state.session(&self.session).and_then(|session| session.turn(&self.prompt)) else {
            return TurnView::Gone;
        };
        if was_away {
            self.reported.mark_missed(turn);
        }
        let mut news = self.reported.news(&self.session, turn, was_away);
        if was_away && self.agent.stage.flaw() == Some(Flaw::NoReconcile) {
            news.clear();
            self.has_missed_the_end = turn.fate != Fate::Running;
        }
        let has_ended = turn.fate != Fate::Running && !self.has_missed_the_end;
        TurnView::At { news, end: has_ended.then(|| self.reported.outcome(turn)) }
    }

    fn may_join(&self) -> bool {
        let state = self.agent.state();
        let turn = state.session(&self.session).and_then(|session| session.turn(&self.prompt));
        state.is_up && turn.is_some_and(|turn| turn.fate == Fate::Running)
    }

    /// Promises that the turn does not end without the message, waits for the engine's go, and sends it.
    fn join(&self, steering: Box<Steering>) -> impl Future<Output = ()> + Send + 'static {
        let (agent, session, first) = (Arc::clone(&self.agent), self.session.clone(), self.prompt.clone());
        async move {
            let Steering { prompt, input, expected, go, sent, .. } = *steering;
            agent.stage.pause().await;
            if expected.send(()).is_err() || go.await.is_err() {
                return;
            }
            agent.stage.pause().await;
            let is_there = {
                let state = agent.state();
                let turn = state.session(&session).and_then(|session| session.turn(&first));
                state.is_up && turn.is_some_and(|turn| matches!(turn.fate, Fate::Running | Fate::Completed))
            };
            let outcome = if is_there && !agent.stage.strikes(|fault_rates| fault_rates.agent_fails) {
                agent.take(&session, &prompt, words_of(&input), Some(&first));
                Ok(())
            } else {
                away(ErrorKind::AgentUnavailable, AWAY)
            };
            agent.stage.pause().await;
            // The engine may have gone.
            let _ = sent.send(outcome);
        }
    }
}
