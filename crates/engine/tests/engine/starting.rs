//! An agent that is away when a turn is to begin: it is waited for while it was not prompted, and never prompted twice.

use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{Entry, Error, ErrorKind, TaskState};
use tokio::time::Instant;

use crate::harness::*;

fn away() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "OpenCode does not answer.")
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
    let expected = [
        (TaskState::Working, false),
        (TaskState::Working, true),
        (TaskState::Working, false),
        (TaskState::Completed, false),
    ];
    assert_eq!(states(&log), expected, "it says once that it waits, and then that it does not");
    assert_eq!(h.agent.log().prompted.len(), 1);
    assert_eq!(h.agent.log().opened.len(), 1);
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
        (TaskState::Working, true),
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
async fn the_limit_of_the_turn_ends_the_waiting() {
    let limit = Duration::from_secs(10);
    let config = EngineConfig { turn_timeout: Some(limit), ..EngineConfig::default() };
    let h = start_with(std::sync::Arc::new(longshore_store::memory()), config);
    let began = Instant::now();
    for _ in 0..100 {
        h.agent.refuse_next(away());
    }
    let sent = h.send("c", "m1").await;
    h.reaches(&sent.task, TaskState::Failed).await;
    assert!(began.elapsed() >= limit && began.elapsed() < limit * 2, "{:?}", began.elapsed());
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
