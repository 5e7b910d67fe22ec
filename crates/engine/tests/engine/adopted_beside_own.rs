//! External turns beside the gateway's own turns in one session: their order, and the owner of what follows.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Outcome, TaskId, TaskState};

use crate::adopted::{session, start, start_on};
use crate::harness::{Harness, alice, input, message, reason_of, text_of};

/// Ends a turn with its own text, and checks that text.
async fn ends_with(h: &Harness, turn: longshore_testkit::scripted_agent::StartedTurn, text: &str) {
    let task = turn.request.task.clone();
    turn.say("a", text).await;
    turn.complete().await;
    assert_eq!(text_of(&h.reaches(&task, TaskState::Completed).await), text);
}

/// The gateway's turn has the session and waits at the turn limiter when another client types there.
#[tokio::test]
async fn a_turn_at_the_limiter_goes_behind_an_external_turn() {
    let config = EngineConfig { turns: 2, ..EngineConfig::default() };
    let (mut h, other_client) = start_on(Arc::new(longshore_store::memory()), config).await;
    let session = session(&mut h).await;
    h.send("d", "first").await;
    h.send("e", "second").await;
    let busy = [h.turn().await, h.turn().await];
    let ours = h.send("c", "ours").await.task;
    h.waiting(1).await;
    other_client.types(&session, "msg_theirs", "theirs").await;
    let theirs = h.turn().await;
    assert_eq!(theirs.request.prompt.as_str(), "msg_theirs");
    theirs.catch_up().await;
    for turn in busy {
        ends_with(&h, turn, "done").await;
    }
    // The free slot goes to the external turn.
    h.send("f", "later").await;
    let later = h.turn().await;
    assert_eq!(later.request.input, [input("later")]);
    assert_eq!(h.task(&ours).await.status.state, TaskState::Submitted);
    ends_with(&h, theirs, "for them").await;
    let turn = h.turn().await;
    assert_eq!((&turn.request.task, turn.request.resume.is_none()), (&ours, true));
    ends_with(&h, turn, "for us").await;
    ends_with(&h, later, "at last").await;
}

/// The gateway's turn found the agent away; when the agent is back, another client was faster.
#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_the_agent_goes_behind_an_external_turn() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "Nobody is there."));
    let ours = h.send("c", "ours").await.task;
    h.reaches(&ours, TaskState::Working).await;
    let waiting = h.reaches(&ours, TaskState::Submitted).await;
    assert!(reason_of(&waiting).starts_with("The agent cannot be reached"), "{}", reason_of(&waiting));
    other_client.types(&session, "msg_theirs", "theirs").await;
    let theirs = h.turn().await;
    assert_eq!(theirs.request.prompt.as_str(), "msg_theirs");
    theirs.catch_up().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(h.task(&ours).await.status.state, TaskState::Submitted);
    ends_with(&h, theirs, "for them").await;
    let turn = h.turn().await;
    assert_eq!((&turn.request.task, turn.request.resume.is_none()), (&ours, true));
    ends_with(&h, turn, "for us").await;
}

/// Messages that joined the turn before it began expected it to begin at once, and do not wait for other turns.
#[tokio::test(start_paused = true)]
async fn messages_that_joined_a_delayed_turn_are_refused() {
    for kind in [ErrorKind::AgentUnavailable, ErrorKind::SessionBusy] {
        let (mut h, other_client) = start().await;
        let session = session(&mut h).await;
        h.agent.starts.hold();
        let ours = h.send("c", "ours").await.task;
        h.reaches(&ours, TaskState::Working).await;
        let mut command = message("c", "more");
        command.message.task_id = Some(ours.clone());
        let engine = h.engine.clone();
        let joined = h.tasks.spawn("test", async move { engine.send(&alice(), command).await.map(drop) });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!joined.is_finished());
        h.agent.make_busy(&session.id);
        h.agent.refuse_next(Error::new(kind, "Not now."));
        h.agent.starts.release(1);
        h.reaches(&ours, TaskState::Submitted).await;
        other_client.types(&session, "msg_theirs", "theirs").await;
        h.agent.starts.release(1);
        let theirs = h.turn().await;
        assert_eq!(theirs.request.prompt.as_str(), "msg_theirs");
        theirs.catch_up().await;
        let refused = tokio::time::timeout(Duration::from_mins(1), joined)
            .await
            .expect("the message is refused in time");
        let refused = refused.unwrap().unwrap_err();
        assert!(refused.message().contains("has not begun"), "{kind:?} {refused:?}");
        drop(theirs);
    }
}

/// The gateway's turn may be recorded but not prompted: it would wait for the external turn to end, and for its ask.
#[tokio::test]
async fn after_a_restart_an_external_turn_waits_for_no_recorded_turn() {
    for is_ours_first in [true, false] {
        let (mut h, other_client) = start().await;
        let session = session(&mut h).await;
        let types = async || other_client.types(&session, "msg_theirs", "theirs").await;
        let mut running = Vec::new();
        if !is_ours_first {
            types().await;
            running.push(h.turn().await);
        }
        // In a context of its own, so that two tasks have a recorded turn whichever was first.
        let mut command = message("d", "ours");
        command.options.session = Some(session.id.clone());
        let ours = h.engine.send(&alice(), command).await.unwrap().task;
        if is_ours_first {
            running.push(h.turn().await);
            types().await;
            running.push(h.turn().await);
        }
        let store = h.stop().await;

        let (mut h, _stranger) = start_on(store, EngineConfig::default()).await;
        let mut turns = vec![h.turn().await];
        if is_ours_first {
            turns.push(h.turn().await);
        }
        let theirs = turns.iter().position(|turn| turn.request.is_adopted).expect("it is taken up");
        ends_with(&h, turns.remove(theirs), "for them").await;
        let turn = match turns.pop() {
            Some(turn) => turn,
            None => h.turn().await,
        };
        assert_eq!(turn.request.task, ours);
        ends_with(&h, turn, "for us").await;
    }
}

/// A message that the caller sends after the external turn starts a turn of the gateway's own.
#[tokio::test(start_paused = true)]
async fn a_retried_adopted_task_runs_a_turn_of_the_gateway() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_secs(10)), ..EngineConfig::default() };
    let store: Arc<dyn longshore_engine::port::Store> = Arc::new(longshore_store::memory());
    let (mut h, other_client) = start_on(Arc::clone(&store), config.clone()).await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "theirs").await;
    let theirs = h.turn().await;
    let task = theirs.request.task.clone();
    theirs.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
    h.reaches(&task, TaskState::AuthRequired).await;
    say(&h, &task, "again").await;
    let ours = h.turn().await;
    assert_eq!((&ours.request.task, &ours.request.input[..]), (&task, &[input("again")][..]));
    assert!(ours.request.resume.is_none() && !ours.request.is_adopted);
    assert_ne!(ours.request.prompt.as_str(), "msg_theirs");
    // Also after a restart.
    let store = h.stop().await;
    let (mut h, _stranger) = start_on(store, config).await;
    let ours = h.turn().await;
    assert!(ours.request.resume.is_some() && !ours.request.is_adopted);
    ours.catch_up().await;
    h.agent.make_busy(&session.id);
    let failed = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&failed).contains("took longer than the 10 s"), "{}", reason_of(&failed));
    h.tasks.stop().await;
    let stopped: Vec<_> = h.agent.log().stopped.into_iter().flatten().map(|turn| turn.prompt).collect();
    assert_eq!(stopped, [ours.request.prompt], "it is ours to stop");
}

/// The gateway chose the session, so it may choose another.
#[tokio::test]
async fn a_context_with_an_external_turn_gets_a_new_session_when_the_agent_forgets_its_own() {
    let (mut h, other_client) = start().await;
    let session = session(&mut h).await;
    other_client.types(&session, "msg_theirs", "theirs").await;
    let theirs = h.turn().await;
    ends_with(&h, theirs, "for them").await;
    h.agent.refuse_next(Error::new(ErrorKind::SessionGone, "Gone."));
    h.send("c", "ours").await;
    let ours = h.turn().await;
    assert_ne!(ours.request.session, session);
    ends_with(&h, ours, "for us").await;
}

async fn say(h: &Harness, task: &TaskId, text: &str) {
    let mut command = message("c", text);
    command.message.task_id = Some(task.clone());
    h.engine.send(&alice(), command).await.expect("it is taken");
}
