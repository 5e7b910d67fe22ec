//! An agent that is away when a turn is to begin: the engine waits for it before the prompt, and never prompts twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{Entry, Error, ErrorKind, TaskState};
use longshore_testkit::faulty_store::FaultyStore;
use tokio::time::Instant;

use crate::harness::*;

const TURN_LIMIT: Duration = Duration::from_mins(1);

fn away() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "OpenCode does not answer.")
}

/// The limit of concurrent calls to the agent is reached.
fn crowded() -> Error {
    Error::new(ErrorKind::UpstreamBackpressure, "32 calls are under way.").after(Duration::from_secs(1))
}

/// The states in the log, each with whether it has a message.
fn states(log: &[Entry]) -> Vec<(TaskState, bool)> {
    let statuses = log.iter().filter_map(|entry| entry.event.status());
    statuses.map(|status| (status.state, status.message.is_some())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_turn_is_prompted_once_when_the_agent_is_back() {
    let mut h = start();
    for _ in 0..5 {
        h.agent.refuse_next(away());
    }
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "hi").await;
    turn.complete().await;
    let log = read_all(sent.reader).await;
    let tried = [(TaskState::Working, false), (TaskState::Submitted, true)];
    let expected = [tried; 5].concat();
    let expected = [&expected[..], &[(TaskState::Working, false), (TaskState::Completed, false)]].concat();
    assert_eq!(states(&log), expected, "before each attempt it says that it works, and then that it waits");
    assert_eq!(h.agent.log().prompted.len(), 1);
    assert_eq!(h.agent.log().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reports_itself_away_gets_only_health_checks() {
    let mut h = start();
    h.agent.refuse_next(away());
    h.agent.set_down(true);
    let sent = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(h.task(&sent.task).await.status.state, TaskState::Submitted);
    h.agent.set_down(false);
    h.turn().await.complete().await;
    let expected = [
        (TaskState::Working, false),
        (TaskState::Submitted, true),
        (TaskState::Working, false),
        (TaskState::Completed, false),
    ];
    assert_eq!(states(&read_all(sent.reader).await), expected);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_begins_as_soon_as_the_agent_is_back() {
    let mut h = start();
    h.agent.refuse_next(away());
    h.agent.set_down(true);
    h.send("c", "m1").await;
    // By now the pauses between two checks are long.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let back = Instant::now();
    h.agent.come_back();
    h.turn().await.complete().await;
    assert!(back.elapsed() < Duration::from_millis(100), "it began {:?} later", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_hangs_while_the_agent_is_away_is_repeated() {
    let mut h = start();
    h.agent.starts.hold();
    h.agent.set_down(true);
    let sent = h.send("c", "m1").await;
    h.reaches(&sent.task, TaskState::Working).await;
    let began = Instant::now();
    while h.task(&sent.task).await.status.state != TaskState::Submitted {
        assert!(began.elapsed() < Duration::from_secs(2), "it still waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    h.agent.set_down(false);
    h.agent.starts.release(1);
    h.turn().await.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(h.agent.log().prompted.len(), 1);
}

/// Restarts the gateway on the same store.
async fn restarted(h: Harness) -> Harness {
    let store = h.stop().await;
    let h = start_with(store, EngineConfig::default());
    h.engine.recover().await.expect("unfinished tasks are taken up");
    h
}

#[tokio::test(start_paused = true)]
async fn a_restart_meanwhile_loses_no_message_and_keeps_the_order() {
    let mut h = start();
    h.send("c", "m0").await;
    h.turn().await.complete().await;
    h.agent.refuse_next(away());
    h.agent.set_down(true);
    let first = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let second = h.send("c", "m2").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(h.task(&first.task).await.status.state, TaskState::Submitted, "nothing says that it was sent");

    let mut h = restarted(h).await;
    for (sent, text) in [(first, "m1"), (second, "m2")] {
        let turn = h.turn().await;
        assert_eq!((turn.request.resume.is_some(), &turn.request.input[..]), (false, &[input(text)][..]));
        turn.complete().await;
        h.reaches(&sent.task, TaskState::Completed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_prompt_loses_no_message() {
    let h = start();
    h.agent.starts.hold();
    let sent = h.send("c", "m1").await;
    h.reaches(&sent.task, TaskState::Working).await;
    let mut h = restarted(h).await;
    let turn = h.turn().await;
    assert!(turn.request.resume.is_none(), "it begins");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_task_that_is_about_to_begin_joins_it() {
    let mut h = start();
    for _ in 0..2 {
        h.agent.refuse_next_session(away());
        h.agent.refuse_next(away());
    }
    let sent = h.send("c", "m1").await;
    let mut more = message("c", "more");
    more.message.task_id = Some(sent.task.clone());
    let (engine, caller) = (h.engine.clone(), alice());
    let joining = h.tasks.spawn("more", async move { engine.send(&caller, more).await.map(drop) });
    let mut turn = h.turn().await;
    let joining = async { joining.await.unwrap().expect("it joins") };
    let ((_, heard), ()) = tokio::join!(turn.joined(), joining);
    assert_eq!(heard, [input("more")]);
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_task_that_does_not_begin_is_refused_in_time() {
    let h = start();
    h.agent.refuse_next(away());
    h.agent.set_down(true);
    let sent = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut more = message("c", "more");
    more.message.task_id = Some(sent.task.clone());
    let began = Instant::now();
    let refused = h.engine.send(&alice(), more).await.expect_err("it has not begun");
    assert_eq!(refused.kind(), ErrorKind::UnsupportedOperation);
    assert!(refused.message().contains("has not begun"), "{refused:?}");
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_when_the_agent_is_back() {
    let mut h = start();
    for _ in 0..5 {
        h.agent.refuse_next_session(away());
    }
    h.agent.refuse_next(away());
    let sent = h.send("c", "m1").await;
    h.turn().await.complete().await;
    let log = read_all(sent.reader).await;
    let expected = [
        (TaskState::Submitted, true),
        (TaskState::Working, false),
        (TaskState::Submitted, true),
        (TaskState::Working, false),
        (TaskState::Completed, false),
    ];
    assert_eq!(states(&log), expected);
    assert_eq!((h.agent.log().opened.len(), h.agent.log().prompted.len()), (1, 1));
}

/// Nobody knows when an agent comes back that the gateway does not start itself.
#[tokio::test(start_paused = true)]
async fn a_blocking_send_returns_with_the_reason_unless_the_gateway_restarts_the_agent() {
    for is_restarted in [false, true] {
        let mut h = start();
        h.agent.is_restarted.store(is_restarted, Ordering::Relaxed);
        h.agent.refuse_next_session(away());
        h.agent.set_down(true);
        let (sent, began) = (h.send("c", "m1").await, Instant::now());
        let task = sent.task.clone();
        let alice = alice();
        let mut settled = Box::pin(h.engine.settled(&alice, sent.reader));
        let early = tokio::time::timeout(Duration::from_secs(20), &mut settled).await;
        if is_restarted {
            assert!(early.is_err(), "the agent is on its way");
        } else {
            let early = early.expect("it returns at once").unwrap().task;
            assert_eq!((early.status.state, began.elapsed()), (TaskState::Submitted, Duration::ZERO));
            let words = reason_of(&early);
            assert!(
                words.contains("cannot be reached") && words.ends_with("OpenCode does not answer."),
                "{words}"
            );
        }
        drop(settled);
        h.agent.set_down(false);
        h.turn().await.complete().await;
        h.reaches(&task, TaskState::Completed).await;
    }
}

/// The call that opens the session goes on: the agent may open it all the same.
#[tokio::test(start_paused = true)]
async fn a_task_says_that_the_agent_does_not_respond_while_its_session_is_opened() {
    let mut h = start();
    h.agent.opens.hold();
    h.agent.set_down(true);
    let sent = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let waiting = h.task(&sent.task).await;
    assert_eq!(waiting.status.state, TaskState::Submitted);
    assert!(reason_of(&waiting).contains("cannot be reached"), "{waiting:?}");
    h.agent.set_down(false);
    h.agent.opens.release(1);
    h.turn().await.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(h.agent.log().opened.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stays_away_fails_the_task_with_its_error() {
    let mut h = start();
    let (began, patience) = (Instant::now(), EngineConfig::default().start_patience);
    for _ in 0..100 {
        h.agent.refuse_next(away());
    }
    let sent = h.send("c", "m1").await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "OpenCode does not answer.");
    assert!(began.elapsed() >= patience && began.elapsed() < patience * 2, "{:?}", began.elapsed());
    let log = h.agent.log();
    assert!(log.prompted.is_empty() && log.aborted.is_empty(), "{log:?}");
    // The next task of the context is tried too.
    h.agent.refuse_nothing();
    h.send("c", "m2").await;
    assert_eq!(h.turn().await.request.input, [input("m2")]);
}

#[tokio::test(start_paused = true)]
async fn the_gateways_own_call_limit_fails_no_task_and_costs_no_time() {
    let mut h = start();
    let patience = EngineConfig::default().start_patience;
    let times = 3 * patience.as_secs();
    h.agent.refuse_next_session(crowded());
    for _ in 0..times {
        h.agent.refuse_next(crowded());
    }
    let (began, sent) = (Instant::now(), h.send("c", "m1").await);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let waiting = h.task(&sent.task).await;
    assert_eq!(waiting.status.state, TaskState::Submitted);
    let words = reason_of(&waiting);
    assert!(words.contains("as it may have") && !words.contains("cannot be reached"), "{words}");
    let turn = h.turn().await;
    assert_eq!(began.elapsed().as_secs(), times + 1, "the engine waited as long as the error said");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!((h.agent.log().opened.len(), h.agent.log().prompted.len()), (1, 1));

    // A task that met the call limit first still has the full time to wait for an agent that is away.
    for error in vec![crowded(); 100].into_iter().chain(vec![away(); 100]) {
        h.agent.refuse_next(error);
    }
    let (began, sent) = (Instant::now(), h.send("c", "m2").await);
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "OpenCode does not answer.");
    assert!(began.elapsed() >= Duration::from_secs(100) + patience, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_start_keeps_its_position_in_the_session_queue() {
    let mut h = start();
    h.agent.starts.hold();
    let first = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    h.send("d", "m2").await;
    // The check for an orphaned turn in the first task's session has been made by now.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    h.agent.starts.release(1);
    assert_eq!(h.turn().await.request.task, first.task, "it came first");
}

/// An engine with a turn limit of one minute, on a store that can be blocked.
fn start_on_faulty_store() -> (Harness, Arc<FaultyStore>) {
    let store = FaultyStore::over(longshore_store::memory());
    let config = EngineConfig { turn_timeout: Some(TURN_LIMIT), ..EngineConfig::default() };
    (start_with(store.clone(), config), store)
}

#[tokio::test(start_paused = true)]
async fn the_turn_limit_does_not_count_while_the_engine_waits_for_the_agent() {
    let limit = Duration::from_secs(10);
    let config = EngineConfig { turn_timeout: Some(limit), ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    h.agent.refuse_next(away());
    h.agent.set_down(true);
    let sent = h.send("c", "m1").await;
    tokio::time::sleep(limit * 3).await;
    h.agent.set_down(false);
    let turn = tokio::time::timeout(limit, h.turn()).await.expect("it is back in time");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_outage_costs_no_time_of_the_start() {
    let (mut h, store) = start_on_faulty_store();
    store.appends.hold();
    h.agent.refuse_next(away());
    let sent = h.send("c", "m1").await;
    // Before the first `Working`, then before `Submitted` again, and then before the second `Working`.
    for _ in 0..3 {
        tokio::time::sleep(TURN_LIMIT * 10).await;
        h.agent.refuse_next(away());
        store.appends.release(1);
    }
    store.appends.release(100);
    let turn = tokio::time::timeout(TURN_LIMIT, h.turn()).await.expect("the agent was away for a moment");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_turn_limit_counts_from_the_prompt() {
    let (mut h, store) = start_on_faulty_store();
    store.appends.hold();
    let sent = h.send("c", "m1").await;
    tokio::time::sleep(TURN_LIMIT * 10).await;
    store.appends.release(100);
    let _turn = h.turn().await;
    let began = Instant::now();
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than the 60 s"), "{}", reason_of(&task));
    assert_eq!(began.elapsed().as_secs(), TURN_LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_the_agent_can_be_canceled() {
    let mut h = start();
    for _ in 0..20 {
        h.agent.refuse_next(away());
    }
    let mut sent = h.send("c", "m1").await;
    let has_message = |entry: &Entry| entry.event.status().is_some_and(|status| status.message.is_some());
    loop {
        let entries = sent.reader.next().await.expect("the log can be read").expect("the task goes on");
        if entries.iter().any(|entry| has_message(&entry.entry)) {
            break;
        }
    }
    let began = Instant::now();
    let canceled = h.engine.cancel(&alice(), &sent.task).await.expect("it can be canceled");
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    let log = h.agent.log();
    assert!(log.prompted.is_empty() && log.aborted.is_empty(), "{log:?}");
    h.agent.refuse_nothing();
    h.send("c", "m2").await;
    assert_eq!(h.turn().await.request.input, [input("m2")]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_waited_for() {
    for error in [away().permanent(), Error::new(ErrorKind::InvalidAgentResponse, "It answers nonsense.")] {
        let h = start();
        let (began, text) = (Instant::now(), error.message().to_owned());
        h.agent.refuse_next(error);
        let sent = h.send("c", "m1").await;
        let task = h.reaches(&sent.task, TaskState::Failed).await;
        assert_eq!(reason_of(&task), text);
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    }
}

/// Whatever the agent reports then, it may have the prompt.
#[tokio::test(start_paused = true)]
async fn a_prompt_that_may_have_arrived_is_not_sent_again() {
    let h = start();
    h.agent.lose_next(away());
    let sent = h.send("c", "m1").await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "OpenCode does not answer.");
    assert_eq!(h.agent.log().prompted.len(), 1);
}
