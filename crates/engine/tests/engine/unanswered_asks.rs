//! Asks that nobody answers in time: the task says so, whatever the agent makes of the gateway's answer.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AskConfig, DeadlinePolicy, EngineConfig};
use longshore_model::{
    AgentEvent, ArtifactId, Ask, AskKind, BlockKind, BlockRef, ChildEvent, Entry, FailedCall, Failure,
    Outcome, PartContent, PermissionReply, Resolution, Seq, SessionId, StatusUpdate, Task, TaskEvent, TaskId,
    TaskState, Timestamp, ToolCall, ToolStatus,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission};

use crate::harness::{Harness, alice, all_tasks, reason_of, start_with};

/// What OpenCode says of every rejection.
const UNTRUE: &str = "The user rejected permission to use this specific tool call.";

fn start(at_deadline: DeadlinePolicy) -> Harness {
    let asks = AskConfig { time_to_live: Some(Duration::from_mins(1)), at_deadline, ..AskConfig::default() };
    start_with(Arc::new(longshore_store::memory()), EngineConfig { asks, ..EngineConfig::default() })
}

fn ask(session: &SessionId, kind: AskKind, number: usize) -> Ask {
    let call = Some(format!("call_{number}"));
    Ask { kind, call, ..permission(session, &format!("ask_{number}")) }
}

/// The agent reports that a tool call was rejected, and that the turn is over.
fn rejected(call: &str) -> [AgentEvent; 2] {
    let id = ArtifactId::parse(&format!("prt_{call}")).expect("a good name");
    let block = BlockRef { id, kind: BlockKind::ToolCall, message: None };
    let tool = ToolCall { error: Some(UNTRUE.to_owned()), ..ToolCall::new(call, "bash", ToolStatus::Error) };
    let failure = Failure {
        failed_call: Some(Box::new(FailedCall { call_id: call.to_owned(), error: UNTRUE.to_owned() })),
        ..Failure::new(format!("The turn ended: {UNTRUE} And a remark."))
    };
    let ended = AgentEvent::Ended(Outcome::Failed(failure));
    [AgentEvent::Tool { block, call: Box::new(tool) }, ended]
}

/// The deadline of the only open ask.
async fn deadline(h: &Harness, kind: AskKind) -> Timestamp {
    loop {
        let open = h.engine.open_asks(&alice(), kind).await.expect("a list");
        if let Some(ask) = open.first() {
            return ask.expires_at.expect("a deadline");
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the policy has answered.
async fn answered(h: &Harness) {
    while h.agent.log().replied.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The newest status in the log.
async fn last_update(h: &Harness, task: &TaskId) -> StatusUpdate {
    let log = h.store.read(&alice(), task, Seq::START, 1000).await.expect("the log can be read");
    let update = |entry: &Entry| match &entry.event {
        TaskEvent::Status(update) => Some(update.as_ref().clone()),
        _ => None,
    };
    log.iter().rev().find_map(update).expect("a status")
}

fn tool_error(task: &Task) -> String {
    let PartContent::Data(data) = &task.artifacts[0].parts[0].content else { panic!("no tool call") };
    data.to_value()["error"].as_str().expect("an error").to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_status_at_the_deadline_says_that_nobody_answered() {
    let (permission, question) = (AskKind::Permission, AskKind::Question);
    for (policy, kind, answer, done) in [
        (DeadlinePolicy::Reject, permission, PermissionReply::Reject, "rejected it"),
        (DeadlinePolicy::Once, permission, PermissionReply::Once, "granted it once"),
        (DeadlinePolicy::Reject, question, PermissionReply::Reject, "rejected it"),
        (DeadlinePolicy::Once, question, PermissionReply::Reject, "rejected it"),
    ] {
        let mut h = start(policy);
        let sent = h.send("c", "m1").await;
        let turn = h.turn().await;
        turn.report(AgentEvent::Asked(Box::new(ask(&turn.request.session.id, kind, 1)))).await;
        let deadline = deadline(&h, kind).await;
        answered(&h).await;
        let task = h.task(&sent.task).await;
        assert_eq!(task.status.state, TaskState::Working);
        let expected = format!(
            "Nobody answered the ask ask_1 in time. Its deadline was {deadline}; then the gateway {done}."
        );
        assert_eq!(reason_of(&task), expected);
        let noted =
            last_update(&h, &sent.task).await.notes.interrupt.expect("a note").expired.expect("expired");
        assert_eq!((noted.deadline, noted.answer), (deadline, answer));
    }
}

/// Checks the end of a task whose turn ended with the rejection.
fn check_end(task: &Task, deadline: Timestamp) {
    assert_eq!(task.status.state, TaskState::Failed);
    let words = format!("Its deadline was {deadline}; then the gateway rejected it.");
    for text in [reason_of(task), tool_error(task)] {
        assert!(text.contains("Nobody answered the ask ask_1 in time.") && text.contains(&words), "{text}");
        assert!(!text.contains("The user"), "{text}");
    }
    assert!(reason_of(task).starts_with("The turn ended: ") && reason_of(task).ends_with(" And a remark."));
}

/// The digits of a moment, without the zeros at the end.
fn digits(at: Timestamp) -> String {
    at.0.to_string().trim_end_matches('0').to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_with_the_rejection_gives_the_true_reason() {
    let mut h = start(DeadlinePolicy::Reject);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.report(AgentEvent::Asked(Box::new(ask(&turn.request.session.id, AskKind::Permission, 1)))).await;
    let deadline = deadline(&h, AskKind::Permission).await;
    answered(&h).await;
    for report in rejected("call_1") {
        turn.report(report).await;
    }
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    check_end(&failed, deadline);
    let metadata = last_update(&h, &sent.task).await.metadata.expect("metadata").json().to_value();
    let expired = &metadata["longshore"]["expired"];
    assert_eq!((expired["request_id"].as_str(), expired["answer"].as_str()), (Some("ask_1"), Some("reject")));
    assert_eq!(expired["expires_at"].to_string().replace('.', "").trim_end_matches('0'), digits(deadline));
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_the_deadline_and_the_end_keeps_the_true_reason() {
    let mut h = start(DeadlinePolicy::Reject);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.report(AgentEvent::Asked(Box::new(ask(&turn.request.session.id, AskKind::Permission, 1)))).await;
    let deadline = deadline(&h, AskKind::Permission).await;
    answered(&h).await;
    let mut h = start_with(h.stop().await, EngineConfig::default());
    h.engine.recover().await.expect("the task is taken up");
    let turn = h.turn().await;
    for report in rejected("call_1") {
        turn.report(report).await;
    }
    check_end(&h.reaches(&sent.task, TaskState::Failed).await, deadline);
}

/// Plays a sub-agent that asks, and returns the turn.
async fn sub_agent_asks(h: &mut Harness) -> StartedTurn {
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_task", "x").await;
    let session = SessionId::parse("ses_child").expect("an id");
    turn.report(AgentEvent::Asked(Box::new(ask(&session, AskKind::Permission, 1)))).await;
    turn
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_sub_agent_gives_the_true_reason() {
    let mut h = start(DeadlinePolicy::Reject);
    h.send("c", "m1").await;
    let turn = sub_agent_asks(&mut h).await;
    let deadline = deadline(&h, AskKind::Permission).await;
    answered(&h).await;
    for report in rejected("call_1") {
        turn.child("ses_child", ChildEvent::Report(report)).await;
    }
    let child = loop {
        let tasks = h.engine.list(&alice(), all_tasks(Some("c"))).await.expect("a list").tasks;
        let is_over = |task: &Task| task.parent.is_some() && task.status.state.is_terminal();
        if let Some(child) = tasks.into_iter().find(is_over) {
            break h.task(&child.id).await;
        }
        tokio::task::yield_now().await;
    };
    check_end(&child, deadline);
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_the_agent_rejects_with_an_expired_one_has_expired_too() {
    let mut h = start(DeadlinePolicy::Reject);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let session = turn.request.session.id.clone();
    turn.report(AgentEvent::Asked(Box::new(ask(&session, AskKind::Permission, 1)))).await;
    let deadline = deadline(&h, AskKind::Permission).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    turn.report(AgentEvent::Asked(Box::new(ask(&session, AskKind::Permission, 2)))).await;
    answered(&h).await;
    let request_id = ask(&session, AskKind::Permission, 2).request_id;
    let resolution = Resolution::RejectedElsewhere;
    turn.report(AgentEvent::AskClosed { request_id, resolution }).await;
    let [_, ended] = rejected("call_2");
    turn.report(ended).await;
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    let expected = format!("Nobody answered the ask ask_2 in time. Its deadline was {deadline}");
    assert!(reason_of(&failed).contains(&expected), "{}", reason_of(&failed));
}

#[tokio::test]
async fn a_rejection_by_a_user_keeps_the_words_of_the_agent() {
    let mut h = start(DeadlinePolicy::Reject);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.report(AgentEvent::Asked(Box::new(ask(&turn.request.session.id, AskKind::Permission, 1)))).await;
    deadline(&h, AskKind::Permission).await;
    h.engine.answer(&alice(), &crate::asks::request("ask_1"), crate::asks::reject()).await.expect("taken");
    for report in rejected("call_1") {
        turn.report(report).await;
    }
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&failed).contains(UNTRUE) && tool_error(&failed) == UNTRUE);
}
