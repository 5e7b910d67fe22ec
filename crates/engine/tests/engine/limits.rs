//! The time limit of a turn and the deadline of an ask, when they pass during an outage.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{
    AgentEvent, Entry, Error, ErrorKind, RequestId, Resolution, Seq, TaskEvent, TaskId, TaskState,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::StartedTurn;
use tokio::time::Instant;

use crate::harness::{Harness, alice, read_all, reason_of, start_later, start_with, text_of};

const AWAY: Duration = Duration::from_mins(10);

fn config() -> EngineConfig {
    let mut config = EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    config.asks.time_to_live = Some(Duration::from_mins(5));
    config
}

/// A resumed turn with earlier output, and optionally an ask, after the gateway was away for long.
async fn resumed(asks: bool) -> (Harness, TaskId, StartedTurn) {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "before ").await;
    if asks {
        turn.ask("per_1").await;
        h.reaches(&sent.task, TaskState::InputRequired).await;
    }
    while text_of(&h.task(&sent.task).await).is_empty() {
        tokio::task::yield_now().await;
    }
    let store = h.stop().await;
    let mut h = start_later(store, config(), AWAY);
    h.engine.recover().await.expect("unfinished tasks are taken up");
    let turn = h.turn().await;
    (h, sent.task, turn)
}

/// Lets all other tasks run.
async fn let_other_tasks_run() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ended_while_the_gateway_was_away_keeps_its_end() {
    let (h, task, turn) = resumed(false).await;
    let_other_tasks_run().await;
    turn.say("a", "after").await;
    turn.complete().await;
    let task = h.reaches(&task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "before after");
    assert!(h.agent.log().aborted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_long_store_outage_fails_no_finished_turn() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    store.appends.hold();
    turn.say("a", "all of it").await;
    let_other_tasks_run().await;
    turn.complete().await;
    tokio::time::sleep(AWAY).await;
    store.appends.release(100);
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "all of it");
    assert!(h.agent.log().aborted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_ask_answered_elsewhere_while_the_gateway_was_away_has_not_expired() {
    let (h, task, turn) = resumed(true).await;
    let_other_tasks_run().await;
    let request_id = RequestId::parse("per_1").unwrap();
    turn.report(AgentEvent::AskClosed { request_id: request_id.clone(), resolution: Resolution::Elsewhere })
        .await;
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    let closed = h.store.interrupt(&alice(), &request_id).await.unwrap().unwrap().closed.unwrap();
    assert_eq!(closed.resolution, Resolution::Elsewhere);
    assert!(h.agent.log().replied.is_empty(), "the policy did not answer");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_still_runs_after_its_limit_is_aborted_once_that_is_known() {
    let (h, task, turn) = resumed(false).await;
    let_other_tasks_run().await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    turn.catch_up().await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    aborted(&h).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_reports_a_turns_state_blocks_no_task_for_ever() {
    let (h, task, _turn) = resumed(false).await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("does not say how the turn ended"), "{}", reason_of(&task));
    aborted(&h).await;

    // The same if the agent cannot be reached when asked.
    let (h, task, turn) = resumed(false).await;
    h.agent.set_down(true);
    turn.catch_up().await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("does not say how the turn ended"), "{}", reason_of(&task));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ended_while_its_agent_was_away_keeps_its_end() {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.agent.set_down(true);
    tokio::time::sleep(Duration::from_secs(90)).await;
    h.agent.set_down(false);
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn endless_reports_do_not_extend_the_limit() {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let flood = flow(&h, turn, Duration::from_millis(1));
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    flood.await.expect("the reports end without a panic");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reports_but_does_not_respond_hits_the_limit() {
    for pace in [Duration::from_millis(5), Duration::from_secs(3)] {
        let mut h = start_with(Arc::new(longshore_store::memory()), config());
        let sent = h.send("c", "m1").await;
        let turn = h.turn().await;
        h.agent.set_down(true);
        let (began, flow) = (Instant::now(), flow(&h, turn, pace));
        let reached = h.reaches(&sent.task, TaskState::Failed);
        let task = tokio::time::timeout(AWAY, reached).await.expect("the limit holds");
        assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
        assert!(began.elapsed() < Duration::from_secs(130), "{:?}", began.elapsed());
        flow.await.expect("the reports end without a panic");
    }
}

#[tokio::test(start_paused = true)]
async fn catching_up_has_its_own_bounded_time() {
    let (h, task, turn) = resumed(false).await;
    let flow = flow(&h, turn, Duration::from_secs(3));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    let reached = h.reaches(&task, TaskState::Failed);
    let task = tokio::time::timeout(AWAY, reached).await.expect("the limit holds");
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    flow.await.expect("the reports end without a panic");
}

/// Sends reports without end.
fn flow(h: &Harness, turn: StartedTurn, pace: Duration) -> tokio::task::JoinHandle<()> {
    h.tasks.spawn("flow", async move {
        while !turn.reports.is_closed() {
            turn.say("a", "more ").await;
            tokio::time::sleep(pace).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_is_still_open_after_its_deadline_expires_once_that_is_known() {
    for says_so in [true, false] {
        let (h, task, turn) = resumed(true).await;
        let_other_tasks_run().await;
        assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
        if says_so {
            turn.catch_up().await;
        }
        while h.task(&task).await.status.state == TaskState::InputRequired {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let asked = h.store.interrupt(&alice(), &RequestId::parse("per_1").unwrap()).await.unwrap().unwrap();
        assert_eq!(asked.closed.unwrap().resolution, Resolution::Expired);
        turn.complete().await;
        h.reaches(&task, TaskState::Completed).await;
    }
}

/// Waits until the engine has aborted the turn.
async fn aborted(h: &Harness) {
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_ask_is_not_asked_again_if_the_gateway_ends_before_the_answer_arrives() {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.ask("per_1").await;
    h.agent.replies.hold();
    while h.agent.log().replied.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // The answer never arrives.
    h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "The agent is away."));
    h.tasks.stopping().cancel();
    h.agent.replies.release(1);
    let store = h.stop().await;

    let mut h = start_with(store, config());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert!(turn.request.resume.as_ref().unwrap().open_asks.is_empty());
    turn.ask("per_1").await;
    turn.catch_up().await;
    while h.agent.log().replied.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    let log =
        read_all(h.engine.subscribe(&alice(), &sent.task, Some(Seq::START.into())).await.unwrap().reader);
    let asked = |entry: &Entry| {
        matches!(&entry.event, TaskEvent::Status(update)
        if update.status.state == TaskState::InputRequired)
    };
    assert_eq!(log.await.iter().filter(|entry| asked(entry)).count(), 1);
    let asked = h.store.interrupt(&alice(), &RequestId::parse("per_1").unwrap()).await.unwrap().unwrap();
    assert_eq!(asked.closed.unwrap().resolution, Resolution::Expired);
}
