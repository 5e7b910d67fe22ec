//! Asks: none is lost, every one is answered, and only its owner answers it.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AskConfig, DeadlinePolicy, EngineConfig, SubscriptionStart};
use longshore_model::{
    AgentEvent, Answer, AskKind, Error, ErrorKind, InterruptPhase, Json, Part, PermissionReply, Principal,
    Progress, ProgressKind, RequestId, Resolution, SendMessage, SessionNote, StatusUpdate, TaskEvent, TaskId,
    TaskState, Usage,
};
use longshore_testkit::scripted_agent::StartedTurn;

use crate::harness::{Harness, alice, message, read_all, reason_of, start, start_with};

pub(crate) fn request(name: &str) -> RequestId {
    RequestId::parse(name).expect("a good name")
}

pub(crate) fn once() -> Answer {
    Answer::Permission { reply: PermissionReply::Once, message: None }
}

pub(crate) fn reject() -> Answer {
    Answer::Permission { reply: PermissionReply::Reject, message: None }
}

/// A message to a task.
pub(crate) fn on(task: &TaskId, id: &str, part: Part) -> SendMessage {
    let mut command = message("c", id);
    command.message.task_id = Some(task.clone());
    command.message.context_id = None;
    command.message.parts = vec![part];
    command
}

/// A task that waits for an answer to `per_1`.
pub(crate) async fn asking(h: &mut Harness) -> (TaskId, StartedTurn) {
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.ask("per_1").await;
    let settled = h.engine.settled(&alice(), sent.reader).await.expect("the task settles");
    assert_eq!(settled.task.status.state, TaskState::InputRequired);
    (sent.task, turn)
}

/// The statuses of a task's log that report an ask.
async fn ask_events(h: &Harness, task: &TaskId) -> Vec<(TaskState, InterruptPhase)> {
    let reader = h
        .engine
        .subscribe(&alice(), task, Some(longshore_model::Seq::START.into()))
        .await
        .expect("it can be read")
        .reader;
    let log = read_all(reader).await;
    let note = |update: &StatusUpdate| Some((update.status.state, update.notes.interrupt.as_ref()?.phase));
    log.iter()
        .filter_map(|entry| if let TaskEvent::Status(update) = &entry.event { note(update) } else { None })
        .collect()
}

pub(crate) async fn refused(h: &Harness, caller: &str, name: &str, answer: Answer) -> ErrorKind {
    h.engine.answer(&Principal::new(caller), &request(name), answer).await.expect_err("a refusal").kind()
}

#[tokio::test]
async fn a_plain_message_answers_an_ask_and_the_turn_continues() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    let waiting = h.task(&task).await;
    assert!(reason_of(&waiting).contains("per_1") && reason_of(&waiting).contains("once, always"));
    assert_eq!(waiting.open_asks.len(), 1);

    let sent = h.engine.send(&alice(), on(&task, "answer", Part::text("Once"))).await.unwrap();
    let SubscriptionStart::Snapshot(snapshot) = &sent.opening else { panic!("{:?}", sent.opening) };
    assert_eq!(snapshot.task.status.state, TaskState::Working);
    assert_eq!(h.agent.log().replied, [(request("per_1"), once())]);
    turn.say("a", "done").await;
    turn.complete().await;
    let done = h.engine.settled(&alice(), sent.reader).await.unwrap().task;
    assert_eq!(done.status.state, TaskState::Completed);
    let said: Vec<_> = done.history.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(said, ["m1", "answer"]);
    assert!(done.open_asks.is_empty());
    let expected = [
        (TaskState::InputRequired, InterruptPhase::Asked),
        (TaskState::Working, InterruptPhase::Resolved(Resolution::Replied)),
    ];
    assert_eq!(ask_events(&h, &task).await, expected);
}

#[tokio::test]
async fn the_record_says_who_answered_when_and_how() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    let open = h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap();
    assert_eq!((open.len(), &open[0].task), (1, &task));
    assert!(h.engine.open_asks(&alice(), AskKind::Question).await.unwrap().is_empty());
    assert!(h.engine.open_asks(&Principal::new("bob"), AskKind::Permission).await.unwrap().is_empty());
    h.engine.answer(&alice(), &request("per_1"), reject()).await.unwrap();
    assert!(h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap().is_empty());
    let closed = h.store.interrupt(&alice(), &request("per_1")).await.unwrap().unwrap().closed.unwrap();
    assert_eq!(
        (closed.by, closed.how.as_deref(), closed.resolution),
        (Some(alice()), Some("reject"), Resolution::Rejected)
    );
}

#[tokio::test]
async fn wrong_kind_wrong_caller_and_wrong_name_are_refused() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    assert_eq!(refused(&h, "alice", "per_1", Answer::RejectQuestion).await, ErrorKind::InterruptTypeMismatch);
    assert_eq!(refused(&h, "bob", "per_1", once()).await, ErrorKind::InterruptNotFound);
    assert_eq!(refused(&h, "alice", "per_2", once()).await, ErrorKind::InterruptNotFound);
    let wrong = h.engine.send(&alice(), on(&task, "x", Part::text("perhaps"))).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidParams);
    assert!(h.agent.log().replied.is_empty());
    assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
}

#[tokio::test]
async fn with_several_open_asks_the_answer_names_one_and_the_task_waits_for_the_rest() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    turn.ask("per_2").await;
    h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap();
    while h.task(&task).await.open_asks.len() < 2 {
        tokio::task::yield_now().await;
    }
    let vague = h.engine.send(&alice(), on(&task, "v", Part::text("once"))).await.unwrap_err();
    assert!(vague.message().contains("per_1") && vague.message().contains("per_2"), "{vague}");
    let data = Json::parse(r#"{"request_id":"per_2","reply":"once"}"#).unwrap();
    let sent = h.engine.send(&alice(), on(&task, "a2", Part::data(data))).await.unwrap();
    let settled = h.engine.settled(&alice(), sent.reader).await.unwrap().task;
    assert_eq!(settled.status.state, TaskState::InputRequired, "per_1 is still open");
    assert!(reason_of(&settled).contains("per_1"));
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
}

#[tokio::test]
async fn an_ask_answered_elsewhere_is_noticed() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    turn.report(AgentEvent::AskClosed { request_id: request("per_1"), resolution: Resolution::Elsewhere })
        .await;
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    assert_eq!(ask_events(&h, &task).await[1].1, InterruptPhase::Resolved(Resolution::Elsewhere));
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptNotFound);
}

#[tokio::test]
async fn the_agents_report_may_come_before_the_answer_is_known_to_have_arrived() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    h.agent.replies.hold();
    let engine = h.engine.clone();
    let answer =
        h.tasks.spawn("answer", async move { engine.answer(&alice(), &request("per_1"), once()).await });
    while h.agent.log().replied.is_empty() {
        tokio::task::yield_now().await;
    }
    turn.report(AgentEvent::AskClosed { request_id: request("per_1"), resolution: Resolution::Elsewhere })
        .await;
    turn.say("a", "going on").await;
    assert!(turn.reports.emptied().await);
    assert_eq!(
        refused(&h, "alice", "per_1", once()).await,
        ErrorKind::InterruptNotFound,
        "one answer at a time"
    );
    h.agent.replies.release(1);
    answer.await.unwrap().unwrap();
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    assert_eq!(ask_events(&h, &task).await[1].1, InterruptPhase::Resolved(Resolution::Replied));
}

#[tokio::test]
async fn an_answer_that_does_not_arrive_can_be_given_again() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "away"));
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::UpstreamUnreachable);
    assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
}

#[tokio::test]
async fn an_ask_that_the_agent_forgot_is_closed() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "unknown"));
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptNotFound);
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_policy_answers_and_late_answers_are_refused() {
    for (policy, expected) in [(DeadlinePolicy::Reject, reject()), (DeadlinePolicy::Once, once())] {
        let asks = AskConfig {
            time_to_live: Some(Duration::from_mins(1)),
            tombstone: Duration::from_mins(10),
            at_deadline: policy,
            ..AskConfig::default()
        };
        let config = EngineConfig { asks, ..EngineConfig::default() };
        let mut h = start_with(Arc::new(longshore_store::memory()), config);
        let (task, _turn) = asking(&mut h).await;
        h.reaches(&task, TaskState::Working).await;
        while h.task(&task).await.status.state != TaskState::Working || h.agent.log().replied.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(h.agent.log().replied, [(request("per_1"), expected)]);
        assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptExpired);
        tokio::time::sleep(Duration::from_mins(11)).await;
        assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptNotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_answer_does_not_count_as_work() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let (task, _turn) = asking(&mut h).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    let failed = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&failed).contains("longer than"), "{}", reason_of(&failed));
}

#[tokio::test]
async fn a_cancel_drops_open_asks() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    h.engine.cancel(&alice(), &task).await.unwrap();
    assert!(h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap().is_empty());
    let closed = h.store.interrupt(&alice(), &request("per_1")).await.unwrap().unwrap().closed.unwrap();
    assert_eq!(closed.resolution, Resolution::Dropped);
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptNotFound);
}

#[tokio::test]
async fn an_open_ask_survives_a_restart_and_can_be_answered() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    let store = h.stop().await;
    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.resume.as_ref().unwrap().open_asks, [request("per_1")]);
    let open = h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap();
    assert_eq!(open.len(), 1);
    let sent = h.engine.send(&alice(), on(&task, "answer", Part::text("always"))).await.unwrap();
    turn.complete().await;
    let done = h.engine.settled(&alice(), sent.reader).await.unwrap();
    assert_eq!(done.task.status.state, TaskState::Completed);
}

#[tokio::test]
async fn the_usage_of_a_turn_is_reported_with_its_end_also_after_a_cancel() {
    let used = Usage { input: 7, output: 3, total: 10, ..Usage::default() };
    for cancel in [false, true] {
        let mut h = start();
        let sent = h.send("c", "m1").await;
        let turn = h.turn().await;
        turn.report(AgentEvent::Usage(used)).await;
        turn.say("a", "x").await;
        assert!(turn.reports.emptied().await);
        while h.task(&sent.task).await.artifacts.is_empty() {
            tokio::task::yield_now().await;
        }
        if cancel {
            h.engine.cancel(&alice(), &sent.task).await.unwrap();
        } else {
            turn.complete().await;
        }
        let task = h.engine.settled(&alice(), sent.reader).await.unwrap().task;
        assert_eq!(task.usage, Some(used));
    }
}

#[tokio::test]
async fn notes_repeat_the_state_and_an_unchanged_session_title_is_reported_once() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let named = SessionNote { id: turn.request.session.id.clone(), title: Some("A title".to_owned()) };
    for _ in 0..2 {
        turn.report(AgentEvent::Session(named.clone())).await;
    }
    turn.report(AgentEvent::Progress(Progress { kind: ProgressKind::StepStarted, details: None })).await;
    turn.complete().await;
    let log = read_all(sent.reader).await;
    let states: Vec<_> =
        log.iter().filter_map(|entry| entry.event.status()).map(|status| status.state).collect();
    let working = TaskState::Working;
    assert_eq!(
        states,
        [working, working, working, TaskState::Completed],
        "the turn, its name, its step, its end"
    );
    assert_eq!(h.task(&sent.task).await.session, Some(named));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_answer_does_not_count_as_work_across_a_restart() {
    let config = || EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let (task, _turn) = asking(&mut h).await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let store = h.stop().await;
    let mut h = start_with(store, config());
    h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "not yet"));
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
}

#[tokio::test]
async fn an_answer_while_the_turn_is_being_resumed_can_be_retried() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    let store = h.stop().await;
    let mut h = start_with(store, EngineConfig::default());
    h.agent.starts.hold();
    h.engine.recover().await.unwrap();
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::UpstreamUnreachable);
    h.agent.starts.release(1);
    let turn = h.turn().await;
    h.engine.answer(&alice(), &request("per_1"), once()).await.unwrap();
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
}

#[tokio::test]
async fn an_answer_that_lost_to_another_is_not_recorded_as_given() {
    let mut h = start();
    let (_task, turn) = asking(&mut h).await;
    h.agent.replies.hold();
    h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "answered already"));
    let engine = h.engine.clone();
    let answer =
        h.tasks.spawn("answer", async move { engine.answer(&alice(), &request("per_1"), once()).await });
    while h.agent.log().replied.is_empty() {
        tokio::task::yield_now().await;
    }
    turn.report(AgentEvent::AskClosed { request_id: request("per_1"), resolution: Resolution::Elsewhere })
        .await;
    assert!(turn.reports.emptied().await);
    h.agent.replies.release(1);
    assert_eq!(answer.await.unwrap().unwrap_err().kind(), ErrorKind::InterruptNotFound);
    let closed = h.store.interrupt(&alice(), &request("per_1")).await.unwrap().unwrap().closed.unwrap();
    assert_eq!((closed.resolution, closed.by), (Resolution::Elsewhere, None));
}

#[tokio::test(start_paused = true)]
async fn the_policys_answer_reaches_an_agent_that_is_away_for_a_moment() {
    let mut h = start();
    let (_task, _turn) = asking(&mut h).await;
    for _ in 0..3 {
        h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "away"));
    }
    while h.agent.log().replied.len() < 4 {
        tokio::time::sleep(Duration::from_mins(10)).await;
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(h.agent.log().replied.len(), 4, "three times in vain, then once more");
}

#[tokio::test]
async fn an_ask_during_a_cancel_is_reported_as_dropped() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    turn.ask("per_2").await;
    while h.task(&task).await.open_asks.len() < 2 {
        tokio::task::yield_now().await;
    }
    h.engine.cancel(&alice(), &task).await.unwrap();
    let dropped = InterruptPhase::Resolved(Resolution::Dropped);
    let asked = (TaskState::InputRequired, InterruptPhase::Asked);
    let ended = (TaskState::InputRequired, dropped);
    assert_eq!(ask_events(&h, &task).await, [asked, asked, ended, ended]);
    let kept = h.store.interrupt(&alice(), &request("per_1")).await.unwrap().unwrap();
    assert_eq!(kept.closed.unwrap().resolution, Resolution::Dropped);
}
