//! The answer `always`: the gateway keeps it for one principal and one session with its sub-agents.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AlwaysScope, AskConfig, EngineConfig};
use longshore_model::{
    Action, AgentEvent, Answer, Ask, AskKind, Entry, Error, ErrorKind, InterruptNote, InterruptPhase, Part,
    PermissionReply, PermissionRequest, Principal, Resolution, Seq, SessionId, TaskEvent, TaskId, TaskState,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission};

use crate::asks::{on, once, request};
use crate::harness::{Harness, alice, message, reason_of, start, start_with};

fn always() -> Answer {
    Answer::Permission { reply: PermissionReply::Always, message: None }
}

/// A permission request for these commands, of which `rm *` and so on can be approved.
fn bash(session: &SessionId, name: &str, commands: &[&str]) -> Ask {
    let words = |command: &&str| command.split(' ').next().unwrap_or_default().to_owned();
    let asked = PermissionRequest {
        permission: "bash".to_owned(),
        patterns: commands.iter().map(|command| (*command).to_owned()).collect(),
        always: commands.iter().map(|command| format!("{} *", words(command))).collect(),
        action: Action {
            kind: Some("execute".to_owned()),
            command: Some(commands.join("; ")),
            ..Action::default()
        },
    };
    Ask { permission: Some(Box::new(asked)), ..permission(session, name) }
}

async fn asks(turn: &StartedTurn, name: &str, commands: &[&str]) {
    turn.report(AgentEvent::Asked(Box::new(bash(&turn.request.session.id, name, commands)))).await;
}

/// Waits until this ask is open.
pub(crate) async fn is_asked(h: &Harness, caller: &Principal, name: &str) {
    let is_open = async || {
        let open = h.engine.open_asks(caller, AskKind::Permission).await.expect("a list");
        open.iter().any(|open| open.ask.request_id.as_str() == name)
    };
    while !is_open().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the agent has this many answers.
pub(crate) async fn replies(h: &Harness, count: usize) {
    while h.agent.log().replied.len() < count {
        // A clock that is paused goes on only while nothing else happens.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A turn of a caller in a context.
pub(crate) async fn turn_of(
    h: &mut Harness,
    caller: &Principal,
    context: &str,
    id: &str,
) -> (TaskId, StartedTurn) {
    let sent = h.engine.send(caller, message(context, id)).await.expect("it is sent");
    (sent.task, h.turn().await)
}

/// A turn of alice in which she approved `rm *`.
async fn approving(h: &mut Harness) -> (TaskId, StartedTurn) {
    let (task, turn) = turn_of(h, &alice(), "c", "m1").await;
    asks(&turn, "per_1", &["rm -f seven"]).await;
    is_asked(h, &alice(), "per_1").await;
    h.engine.answer(&alice(), &request("per_1"), always()).await.expect("it is taken");
    (task, turn)
}

/// The notes about asks in the log of a task, each with the state of its event.
async fn notes(h: &Harness, task: &TaskId) -> Vec<(TaskState, InterruptNote)> {
    let log = h.store.read(&alice(), task, Seq::START, 1000).await.expect("the log can be read");
    let note = |entry: &Entry| match &entry.event {
        TaskEvent::Status(update) => Some((update.status.state, update.notes.interrupt.clone()?)),
        _ => None,
    };
    log.iter().filter_map(note).collect()
}

#[tokio::test]
async fn always_is_kept_by_the_gateway_and_answers_the_next_matching_ask() {
    let mut h = start();
    let (task, turn) = approving(&mut h).await;
    assert_eq!(h.agent.log().replied, [(request("per_1"), once())], "the agent gets once");
    let kept = h.engine.approvals(&alice()).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0].session, kept[0].patterns.as_slice()),
        (&turn.request.session.id, &["rm *".to_owned()][..])
    );

    asks(&turn, "per_2", &["rm -rf base1", "rm x"]).await;
    replies(&h, 2).await;
    assert_eq!(h.agent.log().replied[1], (request("per_2"), once()));
    let noted = notes(&h, &task).await;
    let (state, used) = noted.last().expect("a note");
    assert_eq!((*state, used.phase), (TaskState::Working, InterruptPhase::Resolved(Resolution::Approved)));
    assert_eq!(used.request_id, request("per_2"));
    assert!(used.details.is_some(), "the note tells what was approved");
    let late = h.engine.answer(&alice(), &request("per_2"), once()).await.expect_err("it is answered");
    assert_eq!(late.find_detail("answeredBy"), Some("approval"), "{late}");
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;

    // Another task of the same session is covered too.
    let (_, turn) = turn_of(&mut h, &alice(), "c", "m2").await;
    asks(&turn, "per_3", &["rm"]).await;
    replies(&h, 3).await;
}

#[tokio::test]
async fn an_approval_covers_only_its_principal_session_kind_and_patterns() {
    let mut h = start();
    let (_, turn) = approving(&mut h).await;
    for (name, commands) in
        [("per_2", &["curl x"][..]), ("per_3", &["rm x", "curl y"]), ("per_4", &["rmdir x"])]
    {
        asks(&turn, name, commands).await;
        is_asked(&h, &alice(), name).await;
    }
    let mut edit = bash(&turn.request.session.id, "per_5", &["rm x"]);
    edit.permission.as_mut().unwrap().permission = "edit".to_owned();
    turn.report(AgentEvent::Asked(Box::new(edit))).await;
    is_asked(&h, &alice(), "per_5").await;
    let mut other_kind = bash(&turn.request.session.id, "per_8", &["rm x"]);
    other_kind.permission.as_mut().unwrap().action.kind = Some("delete".to_owned());
    let mut outside = bash(&turn.request.session.id, "per_9", &["rm x"]);
    outside.permission.as_mut().unwrap().action.paths = vec!["/etc/passwd".to_owned()];
    for (ask, name) in [(other_kind, "per_8"), (outside, "per_9")] {
        turn.report(AgentEvent::Asked(Box::new(ask))).await;
        is_asked(&h, &alice(), name).await;
    }
    let bob = Principal::new("bob");
    for (caller, context, name) in [(&bob, "c", "per_6"), (&alice(), "other", "per_7")] {
        let (_, turn) = turn_of(&mut h, caller, context, name).await;
        asks(&turn, name, &["rm -f seven"]).await;
        is_asked(&h, caller, name).await;
    }
    assert_eq!(h.agent.log().replied.len(), 1, "nothing else was answered");
    assert!(h.engine.approvals(&bob).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_approval_covers_the_sub_agents_of_its_session() {
    let mut h = start();
    let (_, turn) = approving(&mut h).await;
    turn.call_child("ses_child", "call_1", "x").await;
    let child = SessionId::parse("ses_child").unwrap();
    turn.report(AgentEvent::Asked(Box::new(bash(&child, "per_2", &["rm x"])))).await;
    replies(&h, 2).await;
    // And the approval of an ask of a sub-agent covers its parent.
    turn.report(AgentEvent::Asked(Box::new(bash(&child, "per_3", &["touch x"])))).await;
    is_asked(&h, &alice(), "per_3").await;
    h.engine.answer(&alice(), &request("per_3"), always()).await.unwrap();
    asks(&turn, "per_4", &["touch y"]).await;
    replies(&h, 4).await;
}

#[tokio::test]
async fn an_approval_answers_the_open_asks_that_it_covers() {
    let mut h = start();
    let (task, turn) = turn_of(&mut h, &alice(), "c", "m1").await;
    for (name, command) in [("per_1", "rm a"), ("per_2", "rm b"), ("per_3", "curl c")] {
        asks(&turn, name, &[command]).await;
        is_asked(&h, &alice(), name).await;
    }
    h.engine.answer(&alice(), &request("per_1"), always()).await.unwrap();
    replies(&h, 2).await;
    assert_eq!(h.agent.log().replied[1], (request("per_2"), once()));
    let waiting = h.task(&task).await;
    let open: Vec<_> = waiting.open_asks.iter().map(|open| open.request_id.as_str()).collect();
    assert_eq!((waiting.status.state, open.as_slice()), (TaskState::InputRequired, &["per_3"][..]));
}

#[tokio::test]
async fn approvals_survive_a_restart_and_end_when_they_are_revoked() {
    let mut h = start();
    approving(&mut h).await;
    let mut h = start_with(h.stop().await, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    // While the gateway was down, the agent asked.
    asks(&turn, "per_2", &["rm x"]).await;
    replies(&h, 1).await;
    turn.catch_up().await;
    let bob = h.engine.revoke_approval(&Principal::new("bob"), &request("per_1")).await.expect_err("not his");
    assert_eq!(bob.kind(), ErrorKind::InterruptNotFound);
    h.engine.revoke_approval(&alice(), &request("per_1")).await.unwrap();
    let again = h.engine.revoke_approval(&alice(), &request("per_1")).await.expect_err("it is gone");
    assert_eq!(again.kind(), ErrorKind::InterruptNotFound);
    assert!(h.engine.approvals(&alice()).await.unwrap().is_empty());
    asks(&turn, "per_3", &["rm x"]).await;
    is_asked(&h, &alice(), "per_3").await;
}

#[tokio::test]
async fn the_approval_is_stored_before_the_agent_is_answered_and_goes_with_a_refused_answer() {
    let mut h = start();
    let (task, turn) = turn_of(&mut h, &alice(), "c", "m1").await;
    asks(&turn, "per_1", &["rm a"]).await;
    is_asked(&h, &alice(), "per_1").await;
    h.agent.replies.hold();
    h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "answered elsewhere"));
    let (engine, answer) = (h.engine.clone(), on(&task, "answer", Part::text("always")));
    let giving = h.tasks.spawn("giving", async move { engine.send(&alice(), answer).await.map(drop) });
    replies(&h, 1).await;
    assert_eq!(h.engine.approvals(&alice()).await.unwrap().len(), 1, "the agent has no answer yet");
    h.agent.replies.release(1);
    giving.await.unwrap().expect_err("the answer lost");
    assert!(h.engine.approvals(&alice()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kept_approval_that_does_not_reach_the_agent_leaves_the_ask_to_its_owner() {
    let mut h = start();
    let (task, turn) = approving(&mut h).await;
    // The agent is away for a moment: tried again.
    h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "away"));
    asks(&turn, "per_2", &["rm b"]).await;
    replies(&h, 3).await;
    h.agent.refuse_next(Error::new(ErrorKind::InvalidAgentResponse, "broken"));
    asks(&turn, "per_3", &["rm c"]).await;
    is_asked(&h, &alice(), "per_3").await;
    assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
    h.engine.answer(&alice(), &request("per_3"), once()).await.unwrap();
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
}

#[tokio::test]
async fn the_ask_says_where_always_applies_and_a_setting_leaves_that_to_the_agent() {
    for (scope, words, reply) in [
        (AlwaysScope::Session, "always: for this session and its sub-agents, until revoked.", once()),
        (AlwaysScope::Agent, "always: for every session in this directory, also those of others", always()),
    ] {
        let asking = AskConfig { always: scope, ..AskConfig::default() };
        let config = EngineConfig { asks: asking, ..EngineConfig::default() };
        let mut h = start_with(Arc::new(longshore_store::memory()), config);
        let (task, turn) = turn_of(&mut h, &alice(), "c", "m1").await;
        asks(&turn, "per_1", &["rm a"]).await;
        is_asked(&h, &alice(), "per_1").await;
        let waiting = h.task(&task).await;
        assert!(reason_of(&waiting).contains(words), "{}", reason_of(&waiting));
        h.engine.answer(&alice(), &request("per_1"), always()).await.unwrap();
        assert_eq!(h.agent.log().replied, [(request("per_1"), reply)]);
        let kept = usize::from(scope == AlwaysScope::Session);
        assert_eq!(h.engine.approvals(&alice()).await.unwrap().len(), kept);
    }
}
