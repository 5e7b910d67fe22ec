//! An agent that the test controls.
//!
//! [`ScriptedAgent::manual`] hands every turn to the test, which sends the reports itself. [`ScriptedAgent::echo`] answers every
//! prompt by itself: one report for each word, then the end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longshore_engine::port::{
    Admission, Admitted, Agent, BoxFuture, Description, Input, MAX_STEERING, NewSession, Session,
    SessionChoices, SessionFinder, Steering, Turn, TurnRecord, TurnRequest, UnfollowedTurns, caller_trace,
};
use longshore_engine::queue;
use longshore_model::{
    AgentEvent, AgentFile, Answer, ArtifactId, Ask, AskKind, AskOptions, BlockKind, BlockRef, ChildEvent,
    ChildStart, Choices, Error, ErrorKind, Json, Outcome, PromptId, RequestId, Result, SessionId,
    TraceContext,
};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Reports that may wait for the engine, as in a real driver.
const REPORTS: usize = 64;
/// Turns that may wait for the test. If the test does not take them, `start_turn` waits.
const TURNS: usize = 64;

#[derive(Debug, Default)]
pub struct ScriptedAgent {
    sessions: AtomicU64,
    /// Has none of the optional abilities.
    is_plain: bool,
    log: Mutex<Log>,
    turns: Option<mpsc::Sender<StartedTurn>>,
    /// Gates at which calls wait while the test holds them.
    pub opens: Gate,
    /// Passed before anything is prompted.
    pub starts: Gate,
    pub aborts: Gate,
    pub stops: Gate,
    pub replies: Gate,
    pub checks: Gate,
    /// What prompts, answers and cancels do. Without it, all are accepted and none has an effect.
    pub reactions: OnceLock<Arc<dyn Reactions>>,
    /// Woken when the agent comes back.
    back: Notify,
    /// The gateway starts the agent again when it is down.
    pub is_restarted: AtomicBool,
    /// The modes, models and commands that the agent has told.
    pub choices: Mutex<Option<Choices>>,
}

/// What an agent does with prompts, answers and cancels.
pub trait Reactions: std::fmt::Debug + Send + Sync {
    /// Called before the turn starts.
    fn start(&self, request: &TurnRequest);

    fn answer(&self, ask: &Ask, answer: &Answer) -> Result<()>;

    fn cancel(&self, session: &SessionId);
}

/// Lets calls through, or holds them until the test releases some.
#[derive(Debug)]
pub struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(Semaphore::MAX_PERMITS))
    }
}

impl Gate {
    /// Makes calls wait from now on.
    pub fn hold(&self) {
        self.0.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets so many calls through.
    pub fn release(&self, calls: usize) {
        self.0.add_permits(calls);
    }

    pub async fn pass(&self) {
        self.0.acquire().await.expect("a gate is never closed").forget();
    }
}

/// The calls of the engine.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub opened: Vec<Session>,
    /// The requested titles of the opened sessions.
    pub titles: Vec<Option<String>>,
    pub prompted: Vec<TurnRequest>,
    pub aborted: Vec<Session>,
    /// The turns that the engine wanted stopped, by call.
    pub stopped: Vec<Vec<TurnRecord>>,
    pub replied: Vec<(RequestId, Answer)>,
    /// The calls, with the trace of the request that each was made for.
    pub called_for: Vec<(&'static str, Option<TraceContext>)>,
    /// How often the engine checked the agent.
    pub checked: usize,
    is_down: bool,
    refusals: VecDeque<Error>,
    unopened: VecDeque<Error>,
    unaborted: VecDeque<Error>,
    stops: VecDeque<Result<bool>>,
    unstoppable: Vec<SessionId>,
    lost: VecDeque<Error>,
    admissions: VecDeque<Error>,
    /// Sessions that another client of the agent created.
    strangers: HashMap<SessionId, Session>,
    busy: HashSet<SessionId>,
    /// The error of the next `is_busy`.
    refused_look: Option<Error>,
    /// The turns that the test plays.
    playing: HashMap<SessionId, queue::WeakSender<AgentEvent>>,
    panics: usize,
}

/// A turn that the engine started. Dropping it ends the turn without an end event, as a broken driver would.
#[derive(Debug)]
pub struct StartedTurn {
    pub request: TurnRequest,
    pub reports: queue::Sender<AgentEvent>,
    pub steering: queue::Receiver<Box<Steering>>,
}

impl StartedTurn {
    /// Adds text to a block of this turn.
    pub async fn say(&self, block: &str, text: &str) {
        self.report(AgentEvent::Text { block: text_block(block), text: text.to_owned() }).await;
    }

    /// Requests a permission.
    pub async fn ask(&self, request: &str) {
        self.report(AgentEvent::Asked(Box::new(permission(&self.request.session.id, request)))).await;
    }

    /// Hands over a file.
    pub async fn file(&self, block: &str, name: &str, media_type: &str, bytes: &[u8]) {
        let block = BlockRef { kind: BlockKind::File, ..text_block(block) };
        let file =
            AgentFile { name: Some(name.to_owned()), media_type: media_type.to_owned(), bytes: bytes.into() };
        self.report(AgentEvent::File { block, file }).await;
    }

    /// Starts a sub-agent.
    pub async fn call_child(&self, session: &str, call: &str, prompt: &str) {
        let start = ChildStart {
            caller: self.request.session.id.clone(),
            call: Some(call.to_owned()),
            prompt: prompt.to_owned(),
            title: None,
            kind: None,
            model: None,
        };
        self.child(session, ChildEvent::Started(start)).await;
        let prompt = PromptId::parse(&format!("msg_of_{session}")).expect("a session id makes a prompt id");
        self.child(session, ChildEvent::Working(prompt)).await;
    }

    pub async fn child(&self, session: &str, event: ChildEvent) {
        let session = SessionId::parse(session).expect("a valid session id");
        self.report(AgentEvent::Child { session, event: Box::new(event) }).await;
    }

    /// Accepts the next message that joins the turn, as a driver does, once the message is durable.
    pub async fn joined(&mut self) -> (PromptId, Vec<Input>) {
        let Steering { prompt, input, expected, go, sent, .. } =
            *self.steering.recv().await.expect("the engine follows the turn");
        expected.send(()).expect("the engine waits for this");
        go.await.expect("the engine releases the message");
        sent.send(Ok(())).expect("the engine waits for this");
        (prompt, input)
    }

    pub async fn complete(self) {
        self.report(AgentEvent::Ended(Outcome::Completed { remark: None })).await;
    }

    /// Reports that a resumed turn has caught up with everything that the gateway missed.
    pub async fn catch_up(&self) {
        self.report(AgentEvent::CaughtUp).await;
    }

    /// Sends a report. The engine may have stopped listening.
    pub async fn report(&self, event: AgentEvent) {
        let _ = self.reports.send(event).await;
    }
}

/// A text block with that name.
pub fn text_block(name: &str) -> BlockRef {
    let id = ArtifactId::parse(name).expect("a valid block id");
    BlockRef { id, kind: BlockKind::Text, message: None }
}

/// A permission request of a session.
pub fn permission(session: &SessionId, request: &str) -> Ask {
    Ask {
        request_id: RequestId::parse(request).expect("a valid request id"),
        kind: AskKind::Permission,
        session: session.clone(),
        summary: format!("The agent asks for permission to run: {request}."),
        details: Json::parse(r#"{"permission":"bash"}"#).expect("JSON"),
        questions: Vec::new(),
        call: None,
        permission: None,
        options: AskOptions::words(),
    }
}

impl ScriptedAgent {
    /// An agent whose turns the test plays.
    pub fn manual() -> (Arc<Self>, mpsc::Receiver<StartedTurn>) {
        let (sender, turns) = mpsc::channel(TURNS);
        (Arc::new(Self { turns: Some(sender), ..Self::default() }), turns)
    }

    /// The same, without any of the optional abilities.
    pub fn plain() -> (Arc<Self>, mpsc::Receiver<StartedTurn>) {
        let (sender, turns) = mpsc::channel(TURNS);
        (Arc::new(Self { turns: Some(sender), is_plain: true, ..Self::default() }), turns)
    }

    /// An agent that sends each word of the prompt back, in one text block, and completes.
    pub fn echo() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn log(&self) -> Log {
        self.lock().clone()
    }

    /// Refuses the next turn with this error. Calls add up.
    pub fn refuse_next(&self, error: Error) {
        self.lock().refusals.push_back(error);
    }

    /// Drops the remaining refusals.
    pub fn refuse_nothing(&self) {
        self.lock().refusals.clear();
    }

    /// Fails to create the next session with this error. Calls add up.
    pub fn refuse_next_session(&self, error: Error) {
        self.lock().unopened.push_back(error);
    }

    /// Fails the next abort with this error. Calls add up.
    pub fn refuse_next_abort(&self, error: Error) {
        self.lock().unaborted.push_back(error);
    }

    /// The next answer to `stop_turns`: whether no turn is running. Calls add up; the default is that none is running.
    pub fn stop_next(&self, answer: Result<bool>) {
        self.lock().stops.push_back(answer);
    }

    /// `stop_turns` never stops the turn in this session.
    pub fn never_stop(&self, session: &SessionId) {
        self.lock().unstoppable.push(session.clone());
    }

    /// Prompts the next turn and then fails it with this error. Calls add up.
    pub fn lose_next(&self, error: Error) {
        self.lock().lost.push_back(error);
    }

    /// Refuses the next options with this error. Calls add up.
    pub fn refuse_next_admission(&self, error: Error) {
        self.lock().admissions.push_back(error);
    }

    /// Another client of the agent created this session.
    pub fn add_foreign_session(&self, session: Session) {
        self.lock().strangers.insert(session.id.clone(), session);
    }

    /// Another client of the agent works in this session.
    pub fn make_busy(&self, session: &SessionId) {
        self.lock().busy.insert(session.clone());
    }

    /// Fails the next `is_busy` with this error.
    pub fn refuse_next_query(&self, error: Error) {
        self.lock().refused_look = Some(error);
    }

    /// Makes the agent unavailable, or available again.
    pub fn set_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    /// Makes the agent available again, and says so.
    pub fn come_back(&self) {
        self.set_down(false);
        self.back.notify_waiters();
    }

    /// Makes the agent panic at the next turn.
    pub fn panic_next(&self) {
        self.lock().panics += 1;
    }

    fn take_panic(&self) -> bool {
        let mut log = self.lock();
        let due = log.panics > 0;
        log.panics = log.panics.saturating_sub(1);
        due
    }

    fn note_caller(&self, call: &'static str) {
        self.lock().called_for.push((call, caller_trace()));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent for ScriptedAgent {
    fn describe(&self) -> Description {
        Description { name: "The scripted agent".to_owned(), version: None, resumes_turns: !self.is_plain }
    }

    fn admit<'a>(&'a self, options: Admission<'a>) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async move {
            self.note_caller("admit");
            if let Some(error) = self.lock().admissions.pop_front() {
                return Err(error);
            }
            let directory = options.directory.or(options.current).unwrap_or("workspace");
            Ok(Admitted { directory: directory.to_owned() })
        })
    }

    fn open_session(&self, request: NewSession) -> BoxFuture<'_, Result<Session>> {
        Box::pin(async move {
            self.note_caller("open_session");
            self.opens.pass().await;
            if let Some(error) = self.lock().unopened.pop_front() {
                return Err(error);
            }
            let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
            let id = SessionId::parse(&format!("ses_{number}")).map_err(Error::internal)?;
            let session = Session { id, directory: request.directory };
            let mut log = self.lock();
            log.opened.push(session.clone());
            log.titles.push(request.title);
            Ok(session)
        })
    }

    fn start_turn(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn>> {
        Box::pin(async move {
            self.starts.pass().await;
            assert!(!self.take_panic(), "the test asked for this panic");
            let refusal = self.lock().refusals.pop_front();
            if let Some(error) = refusal {
                return Err(error);
            }
            request.prompting.mark();
            self.lock().prompted.push(request.clone());
            if let Some(error) = self.lock().lost.pop_front() {
                return Err(error);
            }
            if let Some(reactions) = self.reactions.get() {
                reactions.start(&request);
            }
            let (reports, events) = queue::channel(REPORTS);
            let (steering, joining) = queue::channel(MAX_STEERING);
            match &self.turns {
                Some(turns) => {
                    self.lock().playing.insert(request.session.id.clone(), reports.downgrade());
                    let gone = |_| Error::new(ErrorKind::AgentUnavailable, "The test has ended.");
                    turns.send(StartedTurn { request, reports, steering: joining }).await.map_err(gone)?;
                }
                None => echo(&request, &reports)?,
            }
            Ok(Turn { events, steering: (!self.is_plain).then_some(steering), refusal: None })
        })
    }

    fn reply<'a>(
        &'a self,
        _session: &'a Session,
        ask: &'a Ask,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_caller("reply");
            self.lock().replied.push((ask.request_id.clone(), answer.clone()));
            self.replies.pass().await;
            let refusal = self.lock().refusals.pop_front();
            refusal.map_or(Ok(()), Err)?;
            self.reactions.get().map_or(Ok(()), |reactions| reactions.answer(ask, answer))
        })
    }

    fn cancel<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.note_caller("abort");
            self.lock().aborted.push(session.clone());
            self.aborts.pass().await;
            let refusal = self.lock().unaborted.pop_front();
            refusal.map_or(Ok(()), Err)?;
            if let Some(reactions) = self.reactions.get() {
                reactions.cancel(&session.id);
            }
            Ok(())
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.checks.pass().await;
            let mut log = self.lock();
            log.checked += 1;
            if log.is_down {
                return Err(Error::new(ErrorKind::AgentUnavailable, "The agent cannot be reached."));
            }
            Ok(())
        })
    }

    fn is_restarted_by_gateway(&self) -> bool {
        self.is_restarted.load(Ordering::Relaxed)
    }

    fn until_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.back.notified())
    }

    fn session_finder(&self) -> Option<&dyn SessionFinder> {
        (!self.is_plain).then_some(self)
    }

    fn unfollowed_turns(&self) -> Option<&dyn UnfollowedTurns> {
        (!self.is_plain).then_some(self)
    }

    fn session_choices(&self) -> Option<&dyn SessionChoices> {
        (!self.is_plain).then_some(self)
    }
}

impl SessionChoices for ScriptedAgent {
    fn known(&self) -> Option<Choices> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SessionFinder for ScriptedAgent {
    fn find_session<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Result<Option<Session>>> {
        Box::pin(async move {
            self.note_caller("find_session");
            Ok(self.lock().strangers.get(id).cloned())
        })
    }
}

impl UnfollowedTurns for ScriptedAgent {
    fn is_busy<'a>(&'a self, session: &'a Session) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.note_caller("is_busy");
            let mut log = self.lock();
            if let Some(error) = log.refused_look.take() {
                return Err(error);
            }
            if log.is_down {
                return Err(Error::new(ErrorKind::AgentUnavailable, "The agent cannot be reached."));
            }
            let is_playing = log.playing.get(&session.id).is_some_and(|turn| turn.upgrade().is_some());
            Ok(is_playing || log.busy.contains(&session.id))
        })
    }

    fn stop_turns<'a>(&'a self, over: &'a [TurnRecord]) -> BoxFuture<'a, Result<Vec<SessionId>>> {
        Box::pin(async move {
            self.lock().stopped.push(over.to_vec());
            self.stops.pass().await;
            let mut log = self.lock();
            let is_quiet = log.stops.pop_front().unwrap_or(Ok(true))?;
            let sessions = over.iter().map(|over| &over.session.id);
            Ok(sessions.filter(|session| !is_quiet || log.unstoppable.contains(session)).cloned().collect())
        })
    }
}

/// Sends all reports at once: an echo longer than the channel is a mistake of the test.
fn echo(request: &TurnRequest, reports: &queue::Sender<AgentEvent>) -> Result<()> {
    let text = |input: &Input| match input {
        Input::Text(text) => Some(text.clone()),
        Input::File(_) => None,
    };
    let prompt: String = request.input.iter().filter_map(text).collect();
    let block = text_block(&format!("prt_{}", request.prompt));
    let words = prompt
        .split_inclusive(' ')
        .map(|word| AgentEvent::Text { block: block.clone(), text: word.to_owned() });
    let end = AgentEvent::Ended(Outcome::Completed { remark: None });
    for event in words.chain([end]) {
        reports.try_send(event).map_err(Error::internal)?;
    }
    Ok(())
}
