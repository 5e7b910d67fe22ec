//! The limit of a turn and the deadline of an ask, when they pass while somebody is away.

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

/// A turn that said something, and perhaps asked, before the gateway was away for long, as it is taken up again.
async fn taken_up(asks: bool) -> (Harness, TaskId, StartedTurn) {
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

/// Lets everybody do what they can do now.
async fn let_others_go() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ended_while_the_gateway_was_away_is_told_as_it_ended() {
    let (h, task, turn) = taken_up(false).await;
    let_others_go().await;
    turn.say("a", "after").await;
    turn.complete().await;
    let task = h.reaches(&task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "before after");
    assert!(h.agent.log().aborted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_longer_than_the_limit_fails_no_turn_that_is_done() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    store.appends.hold();
    turn.say("a", "all of it").await;
    let_others_go().await;
    turn.complete().await;
    tokio::time::sleep(AWAY).await;
    store.appends.release(100);
    let task = h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(text_of(&task), "all of it");
    assert!(h.agent.log().aborted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_was_answered_elsewhere_while_the_gateway_was_away_has_not_expired() {
    let (h, task, turn) = taken_up(true).await;
    let_others_go().await;
    let request_id = RequestId::parse("per_1").unwrap();
    turn.report(AgentEvent::AskClosed { request_id: request_id.clone(), resolution: Resolution::Elsewhere })
        .await;
    turn.complete().await;
    h.reaches(&task, TaskState::Completed).await;
    let closed = h.store.interrupt(&alice(), &request_id).await.unwrap().unwrap().closed.unwrap();
    assert_eq!(closed.resolution, Resolution::Elsewhere);
    assert!(h.agent.log().replied.is_empty(), "nobody had to answer it");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_still_runs_after_its_time_is_aborted_once_that_is_known() {
    let (h, task, turn) = taken_up(false).await;
    let_others_go().await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    turn.catch_up().await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    aborted(&h).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_says_how_a_turn_stands_keeps_no_task_for_ever() {
    let (h, task, _turn) = taken_up(false).await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("does not say how the turn ended"), "{}", reason_of(&task));
    aborted(&h).await;

    // The same when it is asked, and cannot be reached.
    let (h, task, turn) = taken_up(false).await;
    h.agent.set_down(true);
    turn.catch_up().await;
    let task = h.reaches(&task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("does not say how the turn ended"), "{}", reason_of(&task));
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_agent_is_away_when_its_time_is_over_ends_as_it_ended() {
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
async fn reports_without_end_keep_no_turn_from_its_limit() {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let flood = flow(&h, turn, Duration::from_millis(1));
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    flood.await.expect("nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reports_and_does_not_answer_has_taken_too_long() {
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
        flow.await.expect("nobody listens any more");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_comes_to_an_end_of_what_was_missed_has_time_for_it_but_not_for_ever() {
    let (h, task, turn) = taken_up(false).await;
    let flow = flow(&h, turn, Duration::from_secs(3));
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(h.task(&task).await.status.state, TaskState::Working);
    let reached = h.reaches(&task, TaskState::Failed);
    let task = tokio::time::timeout(AWAY, reached).await.expect("the limit holds");
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    flow.await.expect("nobody listens any more");
}

/// Reports without end.
fn flow(h: &Harness, turn: StartedTurn, pace: Duration) -> tokio::task::JoinHandle<()> {
    h.tasks.spawn("flow", async move {
        while !turn.reports.is_closed() {
            turn.say("a", "more ").await;
            tokio::time::sleep(pace).await;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_is_still_open_after_its_time_expires_once_that_is_known() {
    for says_so in [true, false] {
        let (h, task, turn) = taken_up(true).await;
        let_others_go().await;
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

/// Waits until the agent was told to stop the turn, if that is what it does.
async fn aborted(h: &Harness) {
    while h.agent.log().stopped.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_expired_is_not_asked_again_when_the_gateway_ends_before_the_agent_has_its_answer() {
    let mut h = start_with(Arc::new(longshore_store::memory()), config());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.ask("per_1").await;
    h.agent.replies.hold();
    while h.agent.log().replied.is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // The answer goes nowhere.
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
