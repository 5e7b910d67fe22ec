//! An agent that is away when a turn is to begin: it is waited for while it was not prompted, and never prompted twice.

use std::sync::Arc;
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

/// The gateway has as many calls to the agent under way as it may.
fn crowded() -> Error {
    Error::new(ErrorKind::UpstreamBackpressure, "32 calls are under way.").after(Duration::from_secs(1))
}

/// The states that the log tells, each with whether it has words.
fn states(log: &[Entry]) -> Vec<(TaskState, bool)> {
    let statuses = log.iter().filter_map(|entry| entry.event.status());
    statuses.map(|status| (status.state, status.message.is_some())).collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_prompted_once_when_it_is_back() {
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
async fn while_it_says_that_it_is_away_it_is_only_asked_how_it_is() {
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
async fn a_start_that_hangs_while_it_is_away_is_given_up_and_made_again() {
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

/// As a gateway that ended does, and the next one on the same store.
async fn restarted(h: Harness) -> Harness {
    let store = h.stop().await;
    let h = start_with(store, EngineConfig::default());
    h.engine.recover().await.expect("unfinished tasks are taken up");
    h
}

#[tokio::test(start_paused = true)]
async fn a_restart_meanwhile_costs_no_message_and_no_order() {
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
async fn a_stop_before_the_prompt_has_left_costs_no_message() {
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
async fn a_message_to_a_task_that_begins_in_a_moment_joins_it() {
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
async fn a_message_to_a_task_that_does_not_begin_is_told_so_in_time() {
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
async fn a_session_is_made_when_it_is_back() {
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

#[tokio::test(start_paused = true)]
async fn one_that_stays_away_fails_the_task_with_its_words() {
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
    // The next one of the context is tried too.
    h.agent.refuse_nothing();
    h.send("c", "m2").await;
    assert_eq!(h.turn().await.request.input, [input("m2")]);
}

#[tokio::test(start_paused = true)]
async fn our_own_bound_of_calls_fails_no_task_and_uses_up_no_patience() {
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
    assert_eq!(began.elapsed().as_secs(), times + 1, "it came again when it was told to");
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!((h.agent.log().opened.len(), h.agent.log().prompted.len()), (1, 1));

    // One that was in the crowd, and whose agent is away then, has all of the time that there is for that.
    for error in vec![crowded(); 100].into_iter().chain(vec![away(); 100]) {
        h.agent.refuse_next(error);
    }
    let (began, sent) = (Instant::now(), h.send("c", "m2").await);
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "OpenCode does not answer.");
    assert!(began.elapsed() >= Duration::from_secs(100) + patience, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_waits_keeps_its_place_where_no_turn_is_left() {
    let mut h = start();
    h.agent.starts.hold();
    let first = h.send("c", "m1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    h.send("d", "m2").await;
    // By now it was looked whether a turn that is over keeps the session of the first one.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    h.agent.starts.release(1);
    assert_eq!(h.turn().await.request.task, first.task, "it came first");
}

/// An engine whose turns have a minute, over a store that can be held.
fn start_on_a_store_that_fails() -> (Harness, Arc<FaultyStore>) {
    let store = FaultyStore::over(longshore_store::memory());
    let config = EngineConfig { turn_timeout: Some(TURN_LIMIT), ..EngineConfig::default() };
    (start_with(store.clone(), config), store)
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_the_turn_does_not_count_while_it_is_waited_for() {
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
async fn a_store_that_is_away_uses_up_no_time_of_the_start() {
    let (mut h, store) = start_on_a_store_that_fails();
    store.appends.hold();
    h.agent.refuse_next(away());
    let sent = h.send("c", "m1").await;
    // Before it says that it works, then before it says that it waits, and then before it works again.
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
async fn the_limit_of_the_turn_counts_from_its_prompt() {
    let (mut h, store) = start_on_a_store_that_fails();
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
async fn a_task_that_waits_can_be_canceled() {
    let mut h = start();
    for _ in 0..20 {
        h.agent.refuse_next(away());
    }
    let mut sent = h.send("c", "m1").await;
    let told = |entry: &Entry| entry.event.status().is_some_and(|status| status.message.is_some());
    loop {
        let entries = sent.reader.next().await.expect("the log can be read").expect("the task goes on");
        if entries.iter().any(|entry| told(&entry.entry)) {
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
async fn what_does_not_pass_by_itself_is_not_waited_for() {
    for error in [away().lasting(), Error::new(ErrorKind::InvalidAgentResponse, "It answers nonsense.")] {
        let h = start();
        let (began, text) = (Instant::now(), error.message().to_owned());
        h.agent.refuse_next(error);
        let sent = h.send("c", "m1").await;
        let task = h.reaches(&sent.task, TaskState::Failed).await;
        assert_eq!(reason_of(&task), text);
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    }
}

/// Whatever the agent says then, it may have the prompt.
#[tokio::test(start_paused = true)]
async fn a_prompt_that_may_have_left_is_not_sent_again() {
    let h = start();
    h.agent.lose_next(away());
    let sent = h.send("c", "m1").await;
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "OpenCode does not answer.");
    assert_eq!(h.agent.log().prompted.len(), 1);
}
