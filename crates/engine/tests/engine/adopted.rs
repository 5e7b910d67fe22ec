//! External turns: turns that another client of OpenCode started in a session of the gateway.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::{ExternalTurn, Session, Store};
use longshore_model::{
    AgentEvent, ContextId, Error, ErrorKind, Failure, Outcome, Part, PromptId, Seq, SessionId, Task,
    TaskEvent, TaskId, TaskState, Timestamp,
};
use longshore_testkit::external_turns::{ExternalTurnSource, ExternalTurnsOnly};
use longshore_testkit::faulty_store::FaultyStore;
use tokio::sync::mpsc;

use crate::asks::{once, request};
use crate::harness::{Harness, alice, all_tasks, message, read_all, reason_of, start_controlled, text_of};

/// A control port that reports external turns, and nothing else.
#[derive(Debug)]
pub(crate) struct OtherClient {
    external_turns: mpsc::Sender<ExternalTurn>,
    taken_by: Mutex<Option<mpsc::Receiver<ExternalTurn>>>,
    watched: Mutex<Vec<Session>>,
}

impl OtherClient {
    fn new() -> Arc<Self> {
        let (external_turns, taken_by) = mpsc::channel(16);
        let (taken_by, watched) = (Mutex::new(Some(taken_by)), Mutex::default());
        Arc::new(Self { external_turns, taken_by, watched })
    }

    fn watched(&self) -> Vec<Session> {
        self.watched.lock().expect("the lock").clone()
    }

    /// Another client types into a session.
    pub(crate) async fn types(&self, session: &Session, prompt: &str, text: &str) {
        self.reports(session, prompt, None, text).await;
    }

    /// The agent reports a turn. `engine_prompt`: the id that the engine of some gateway gave to its prompt.
    async fn reports(&self, session: &Session, prompt: &str, engine_prompt: Option<&PromptId>, text: &str) {
        let external_turn = ExternalTurn {
            session: session.clone(),
            prompt: PromptId::parse(prompt).expect("a prompt"),
            engine_prompt: engine_prompt.cloned(),
            content: vec![Part::text(text)],
            at: Timestamp(1),
        };
        self.external_turns.send(external_turn).await.expect("the engine listens");
    }
}

impl ExternalTurnSource for OtherClient {
    fn watch(&self, sessions: Vec<Session>) {
        self.watched.lock().expect("the lock").extend(sessions);
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        self.taken_by.lock().expect("the lock").take().unwrap_or_else(|| mpsc::channel(1).1)
    }
}

pub(crate) async fn start_on(store: Arc<dyn Store>, config: EngineConfig) -> (Harness, Arc<OtherClient>) {
    let other_client = OtherClient::new();
    let control = Arc::new(ExternalTurnsOnly(Arc::clone(&other_client)));
    let h = start_controlled(store, config, Duration::ZERO, Some(control));
    h.engine.recover().await.expect("a start");
    (h, other_client)
}

pub(crate) async fn start() -> (Harness, Arc<OtherClient>) {
    start_on(Arc::new(longshore_store::memory()), EngineConfig::default()).await
}

/// A context of alice's and its idle session.
pub(crate) async fn session(h: &mut Harness) -> Session {
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let session = turn.request.session.clone();
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    session
}

async fn log(h: &Harness, task: &TaskId) -> Vec<TaskEvent> {
    let reader = h.engine.subscribe(&alice(), task, Some(Seq::START.into())).await.expect("a stream").reader;
    read_all(reader).await.into_iter().map(|entry| entry.event).collect()
}

async fn tasks(h: &Harness) -> Vec<Task> {
    h.engine.list(&alice(), all_tasks(None)).await.expect("a list").tasks
}

#[tokio::test]
async fn an_external_turn_becomes_a_task_with_its_stream_and_its_ask() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let turn = h.turn().await;
    assert_eq!(turn.request.prompt.as_str(), "msg_theirs");
    assert_eq!(turn.request.session, session);
    assert!(turn.request.resume.is_some() && turn.request.input.is_empty(), "it is never prompted");
    assert!(turn.request.is_adopted);
    let task = turn.request.task.clone();
    turn.catch_up().await;
    turn.say("a", "for them").await;
    turn.ask("per_1").await;
    let asking = h.reaches(&task, TaskState::InputRequired).await;
    assert_eq!(asking.context_id, ContextId::parse("c").unwrap());
    assert_eq!(asking.history[0].parts, [Part::text("typed elsewhere")]);
    assert!(asking.options.adopted);
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    assert_eq!(h.agent.log().replied.len(), 1);
    turn.complete().await;
    let done = h.reaches(&task, TaskState::Completed).await;
    assert_eq!(text_of(&done), "for them");
    let log = log(&h, &task).await;
    assert!(matches!(log[0], TaskEvent::Submitted { .. }));
    assert_eq!(log[1].status().unwrap().state, TaskState::Working);
    assert_eq!(tasks(&h).await.len(), 2);
    assert_eq!(h.metrics.adopted_turns.get(), 1);
}

#[tokio::test]
async fn a_turn_is_adopted_once_and_only_if_external_in_an_owned_session() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    let sent = h.send("c", "m2").await;
    let ours = h.turn().await;
    other_client.types(&session, ours.request.prompt.as_str(), "it is ours").await;
    other_client.reports(&session, "msg_ours", Some(&ours.request.prompt), "it is ours").await;
    let unowned = Session { id: SessionId::parse("ses_unowned").unwrap(), ..session.clone() };
    other_client.types(&unowned, "msg_unowned", "in an unowned session").await;
    for _ in 0..2 {
        other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    }
    other_client.types(&session, "msg_last", "and more").await;
    let first = h.turn().await;
    let second = h.turn().await;
    assert_eq!([first.request.prompt.as_str(), second.request.prompt.as_str()], ["msg_theirs", "msg_last"]);
    for turn in [ours, first, second] {
        let task = turn.request.task.clone();
        turn.complete().await;
        h.reaches(&task, TaskState::Completed).await;
    }
    // Also after its end.
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    other_client.types(&session, "msg_fence", "fence").await;
    assert_eq!(h.turn().await.request.prompt.as_str(), "msg_fence");
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(tasks(&h).await.len(), 5);
}

#[tokio::test]
async fn only_a_cancel_stops_an_adopted_turn() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs_1", "one").await;
    let turn = h.turn().await;
    let failed = Failure::new("the model melted");
    turn.report(AgentEvent::Ended(Outcome::Failed(failed))).await;
    h.reaches(&turn.request.task, TaskState::Failed).await;
    other_client.types(&session, "msg_theirs_2", "two").await;
    let turn = h.turn().await;
    turn.catch_up().await;
    turn.say("a", "x").await;
    h.reaches(&turn.request.task, TaskState::Working).await;
    let canceled = h.engine.cancel(&alice(), &turn.request.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    h.tasks.stop().await;
    let seen = h.agent.log();
    assert_eq!(seen.aborted.iter().chain(seen.stopped.iter().flatten().map(|turn| &turn.session)).count(), 1);

    // After a restart the canceled turn is stopped, and the failed one is left alone.
    let (h, _stranger) = start_on(h.store, EngineConfig::default()).await;
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
    h.tasks.stop().await;
    let stopped: Vec<_> = h.agent.log().stopped.into_iter().flatten().collect();
    let prompts: Vec<&str> = stopped.iter().map(|turn| turn.prompt.as_str()).collect();
    assert_eq!(prompts, ["msg_theirs_2"]);
}

#[tokio::test]
async fn a_restart_resumes_an_adopted_turn_and_never_prompts_it() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let task = h.turn().await.request.task;
    let store = h.stop().await;

    let (mut h, other_client) = start_on(store, EngineConfig::default()).await;
    assert_eq!(other_client.watched(), std::slice::from_ref(&session));
    let turn = h.turn().await;
    assert_eq!((&turn.request.task, turn.request.prompt.as_str()), (&task, "msg_theirs"));
    assert!(turn.request.resume.is_some() && turn.request.is_adopted);
    // The agent reports the turn once more.
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    other_client.types(&session, "msg_fence", "fence").await;
    assert_eq!(h.turn().await.request.prompt.as_str(), "msg_fence");
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
}

#[tokio::test]
async fn messages_wait_until_an_external_turn_is_over() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let theirs = h.turn().await;
    let sent = h.send("c", "m2").await;
    let named = {
        let mut command = message("d", "m3");
        command.options.session = Some(session.id.clone());
        h.engine.send(&alice(), command).await.unwrap()
    };
    other_client.types(&session, "msg_next", "typed in mid-turn").await;
    let next = h.turn().await;
    assert_eq!(next.request.prompt.as_str(), "msg_next", "no other prompt came before");
    for task in [&sent.task, &named.task] {
        assert_eq!(h.task(task).await.status.state, TaskState::Submitted);
    }
    theirs.complete().await;
    next.complete().await;
    for _ in 0..2 {
        let turn = h.turn().await;
        assert!([&sent.task, &named.task].contains(&&turn.request.task) && turn.request.resume.is_none());
        turn.complete().await;
    }
    h.reaches(&sent.task, TaskState::Completed).await;
    h.reaches(&named.task, TaskState::Completed).await;
}

fn busy() -> Error {
    Error::new(ErrorKind::SessionBusy, "The session is busy.")
}

/// The agent was working on the turn before it was reported.
#[tokio::test(start_paused = true)]
async fn a_message_that_finds_an_external_turn_running_waits_behind_it() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    h.agent.make_busy(&session.id);
    h.agent.refuse_next(busy());
    let sent = h.send("c", "m2").await;
    h.reaches(&sent.task, TaskState::Working).await;
    let waiting = h.reaches(&sent.task, TaskState::Submitted).await;
    assert!(reason_of(&waiting).starts_with("Another client of the agent works"), "{}", reason_of(&waiting));
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let theirs = h.turn().await;
    assert_eq!(theirs.request.prompt.as_str(), "msg_theirs");
    theirs.catch_up().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(h.task(&sent.task).await.status.state, TaskState::Submitted);
    theirs.complete().await;
    let ours = h.turn().await;
    assert_eq!((&ours.request.task, ours.request.resume.is_none()), (&sent.task, true));
    ours.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(log(&h, &sent.task).await.len(), 5, "it began once more, and waited once");
}

#[tokio::test(start_paused = true)]
async fn work_that_never_becomes_a_task_is_waited_for_within_a_bound() {
    let (mut h, _stranger) = start().await;
    let session = session(&mut h).await;
    h.agent.make_busy(&session.id);
    h.agent.refuse_next(busy());
    let sent = h.send("c", "m2").await;
    let began = tokio::time::Instant::now();
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(began.elapsed().as_secs(), 120);
    assert_eq!(reason_of(&failed), "The session is busy.");
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_turn_has_no_time_limit() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_secs(10)), ..EngineConfig::default() };
    let (mut h, other_client) = start_on(Arc::new(longshore_store::memory()), config).await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let turn = h.turn().await;
    turn.catch_up().await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    let task = turn.request.task.clone();
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_create_reported_a_failure_still_has_an_owner() {
    let store = FaultyStore::over(longshore_store::memory());
    let (mut h, other_client) = start_on(Arc::clone(&store) as Arc<dyn Store>, EngineConfig::default()).await;
    let session = session(&mut h).await;
    store.lose_next_create_results(1);
    other_client.types(&session, "msg_theirs", "typed elsewhere").await;
    let turn = h.turn().await;
    let task = turn.request.task.clone();
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    assert_eq!(log(&h, &task).await.len(), 3);
}
