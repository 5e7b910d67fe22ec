//! Orphaned turns: ended in the gateway, while the agent may still run them.

use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::TurnRecord;
use longshore_model::{AgentEvent, Error, ErrorKind, Failure, Outcome, PromptId, TaskId, TaskState};
use tokio::time::Instant;

use crate::harness::{Harness, alice, start, start_with};

fn away() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "The agent cannot be reached.")
}

/// Waits until the agent was asked this often to stop ended turns.
async fn asked(h: &Harness, times: usize) {
    while h.agent.log().stopped.len() < times {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_abort_is_repeated_before_the_next_turn() {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    let second = h.send("c", "m2").await.task;
    h.agent.refuse_next_abort(away());
    h.agent.stop_next(Err(away()));
    // The turn had to be stopped: one more check follows.
    h.agent.stop_next(Ok(false));
    h.agent.stops.hold();
    h.engine.cancel(&alice(), &first).await.unwrap();
    for times in 1..=3 {
        asked(&h, times).await;
        assert_eq!(h.task(&second).await.status.state, TaskState::Submitted, "it waits for the session");
        h.agent.stops.release(1);
    }
    let next = h.turn().await;
    assert_eq!(next.request.task, second);
    let log = h.agent.log();
    assert_eq!((log.aborted.len(), log.stopped.len()), (1, 3));
    assert!(log.stopped.iter().all(|over| over.len() == 1 && over[0].prompt == turn.request.prompt));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stays_away_does_not_block_the_next_turn_for_ever() {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let _turn = h.turn().await;
    let second = h.send("c", "m2").await.task;
    h.agent.refuse_next_abort(away());
    for _ in 0..1_000 {
        h.agent.stop_next(Err(away()));
    }
    h.engine.cancel(&alice(), &first).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(h.turn().await.request.task, second);
    let waited = began.elapsed();
    let patience = EngineConfig::default().start_patience;
    assert!(waited > patience / 2 && waited <= patience, "{waited:?}");
    let tries = h.agent.log().stopped.len();
    assert!((10..100).contains(&tries), "with pauses that grow: {tries}");
}

#[tokio::test(start_paused = true)]
async fn a_start_stops_canceled_turns_before_it_prompts_in_their_session() {
    let mut h = start();
    let other = h.send("d", "m0").await.task;
    h.turn().await.complete().await;
    h.reaches(&other, TaskState::Completed).await;
    let first = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    let second = h.send("c", "m2").await.task;
    // The gateway dies before the abort reaches the agent.
    h.agent.aborts.hold();
    h.engine.cancel(&alice(), &first).await.unwrap();
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.agent.stops.hold();
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 1);
    asked(&h, 1).await;
    assert_eq!(h.agent.log().stopped[0][0].prompt, turn.request.prompt);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(h.task(&second).await.status.state, TaskState::Submitted, "it waits for the session");
    // Other sessions are not delayed.
    let other = h.send("d", "m3").await.task;
    assert_eq!(h.turn().await.request.task, other);
    h.agent.stops.release(1);
    assert_eq!(h.turn().await.request.task, second);
}

/// A turn of the context failed while the agent was idle; then something occupies the session, and the start of the next turn waits
/// for it.
async fn failed_in_a_now_busy_session() -> (Harness, PromptId, TaskId) {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    let (over, session) = (turn.request.prompt.clone(), turn.request.session.id.clone());
    turn.report(AgentEvent::Ended(Outcome::Failed(Failure::new("Nobody knows whether it arrived.")))).await;
    h.reaches(&first, TaskState::Failed).await;
    asked(&h, 1).await;
    h.agent.starts.hold();
    let second = h.send("c", "m2").await.task;
    // The start has begun by then, and the engine has not looked for what blocks it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    h.agent.make_busy(&session);
    (h, over, second)
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_arrived_after_its_task_ended_does_not_block_the_next_turn() {
    let (mut h, over, second) = failed_in_a_now_busy_session().await;
    tokio::time::timeout(Duration::from_secs(30), asked(&h, 2)).await.expect("the engine checks");
    assert_eq!(h.agent.log().stopped[1].iter().map(|turn| turn.prompt.clone()).collect::<Vec<_>>(), [over]);
    h.agent.starts.release(1);
    assert_eq!(h.turn().await.request.task, second);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_takes_long_in_an_idle_session_is_not_given_up() {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let turn = h.turn().await;
    turn.report(AgentEvent::Ended(Outcome::Failed(Failure::new("Nobody knows whether it arrived.")))).await;
    h.reaches(&first, TaskState::Failed).await;
    drop(turn);
    asked(&h, 1).await;
    h.agent.starts.hold();
    h.send("c", "m2").await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(
        h.agent.log().stopped.len(),
        1,
        "the agent may be opening the session, so its start is left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_another_client_uses_is_checked_a_few_times_only() {
    let (h, ..) = failed_in_a_now_busy_session().await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let looks = h.agent.log().stopped.len() - 1;
    assert!((1..=5).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_an_agent_that_is_away() {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let _turn = h.turn().await;
    h.agent.refuse_next_abort(away());
    h.agent.stops.hold();
    h.engine.cancel(&alice(), &first).await.unwrap();
    asked(&h, 1).await;
    let began = tokio::time::Instant::now();
    h.stop().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// A context with a canceled turn, and a running turn after it. The gateway restarts, with an agent that does not report its
/// state.
async fn restarted_in_mid_turn() -> (Harness, TaskId, PromptId) {
    let mut h = start();
    let first = h.send("c", "m1").await.task;
    let _turn = h.turn().await;
    h.engine.cancel(&alice(), &first).await.expect("it is canceled");
    let second = h.send("c", "m2").await.task;
    let runs = h.turn().await.request.prompt;
    let h = start_with(h.stop().await, EngineConfig::default());
    h.agent.stops.hold();
    (h, second, runs)
}

#[tokio::test(start_paused = true)]
async fn a_running_turn_does_not_wait_for_an_ended_one() {
    let (mut h, second, runs) = restarted_in_mid_turn().await;
    let began = Instant::now();
    assert_eq!(h.engine.recover().await.unwrap().unfinished, 1);
    let turn = h.turn().await;
    assert_eq!((turn.request.task, turn.request.prompt), (second, runs));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_canceled_before_it_is_resumed_is_stopped() {
    let (h, second, runs) = restarted_in_mid_turn().await;
    h.agent.starts.hold();
    h.engine.recover().await.unwrap();
    h.engine.cancel(&alice(), &second).await.unwrap();
    let stopped = async {
        let is_told = |session: &Harness| {
            let log = session.agent.log();
            !log.aborted.is_empty() || log.stopped.iter().flatten().any(|over| over.prompt == runs)
        };
        while !is_told(&h) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), stopped).await.expect("the abort reaches the agent");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_never_becomes_idle_delays_no_other() {
    let mut h = start();
    for context in ["c", "d"] {
        let sent = h.send(context, &format!("{context}1")).await.task;
        let _turn = h.turn().await;
        h.engine.cancel(&alice(), &sent).await.unwrap();
    }
    let restless = h.agent.log().prompted[0].session.id.clone();
    let mut h = start_with(h.stop().await, EngineConfig::default());
    h.agent.never_stop(&restless);
    h.engine.recover().await.unwrap();
    let began = Instant::now();
    let (waits, goes) = (h.send("c", "c2").await.task, h.send("d", "d2").await.task);
    assert_eq!(h.turn().await.request.task, goes);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(h.turn().await.request.task, waits);
    assert!(began.elapsed() > EngineConfig::default().start_patience / 2, "{:?}", began.elapsed());
    let last = h.agent.log().stopped.pop().unwrap();
    assert!(last.iter().all(|over| over.session.id == restless), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_driver_gave_up_is_stopped_and_nothing_else_in_its_session() {
    let mut h = start();
    h.send("c", "m0").await;
    h.turn().await.complete().await;
    h.send("c", "m1").await;
    let given_up = h.turn().await;
    assert_eq!(h.agent.log().stopped, [] as [Vec<TurnRecord>; 0], "the one before was done");
    let failure = Failure::new("The agent says nothing any more.");
    given_up.report(AgentEvent::Ended(Outcome::Failed(failure))).await;
    h.send("c", "m2").await;
    let broken_off = h.turn().await;
    let prompts = [given_up.request.prompt, broken_off.request.prompt];
    drop(broken_off.reports);
    h.send("c", "m3").await;
    h.turn().await;
    let log = h.agent.log();
    let stopped: Vec<_> = log.stopped.iter().flatten().map(|over| over.prompt.clone()).collect();
    assert_eq!(stopped, prompts);
    assert!(log.aborted.is_empty(), "it is not known whether they run: {:?}", log.aborted);
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_keeps_its_session_until_it_is_stopped_but_not_the_gateway() {
    let mut h = start();
    h.send("c", "m0").await;
    h.agent.stops.hold();
    let failed = h.turn().await;
    failed.report(AgentEvent::Ended(Outcome::Failed(Failure::new("It gave up.")))).await;
    h.send("c", "m1").await;
    let early = tokio::time::timeout(Duration::from_secs(10), h.turn()).await;
    assert!(early.is_err(), "the agent may still be at work there");
    h.agent.stops.release(1);
    let next = tokio::time::timeout(Duration::from_millis(1), h.turn()).await.expect("it is quiet");

    drop(next.reports);
    while h.agent.log().stopped.len() < 2 {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    h.stop().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
