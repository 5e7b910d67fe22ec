//! Races: two things at once, at the worst moment.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_model::{Error, ErrorKind, Seq, SessionId, TaskState};
use longshore_testkit::faulty_store::FaultyStore;

use crate::harness::{alice, input, message, read_all, reason_of, start, start_with};

#[tokio::test]
async fn a_flood_of_reports_delays_no_cancel() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    store.appends.hold();
    turn.say("a", "x").await;
    // The owner waits for the store, and more reports wait for the owner.
    assert!(turn.reports.emptied().await);
    let (engine, task) = (h.engine.clone(), sent.task.clone());
    let cancel = h.tasks.spawn("cancel", async move { engine.cancel(&alice(), &task).await });
    while h.tasks.running() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    for _ in 0..turn.reports.capacity() {
        turn.say("a", "y").await;
    }
    store.appends.release(2);
    let canceled = cancel.await.unwrap().unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    assert_eq!(crate::harness::text_of(&canceled.task), "x", "the cancel went before the flood");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_reports_does_not_extend_the_limit_of_a_turn() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    let flood = h.tasks.spawn("flood", async move {
        loop {
            turn.say("a", "x").await;
            if turn.reports.is_closed() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&task).contains("longer than"), "{}", reason_of(&task));
    flood.await.unwrap();
}

#[tokio::test]
async fn a_panic_of_an_owner_fails_its_task_and_no_other() {
    let mut h = start();
    h.agent.panic_next();
    let broken = h.send("c", "m1").await;
    let settled = h.engine.settled(&alice(), broken.reader).await.unwrap();
    assert_eq!(settled.task.status.state, TaskState::Failed);
    assert!(reason_of(&settled.task).contains("not known"), "{}", reason_of(&settled.task));
    let next = h.send("c", "m2").await;
    h.turn().await.complete().await;
    h.reaches(&next.task, TaskState::Completed).await;
}

#[tokio::test]
async fn an_owner_that_loses_the_log_reports_it_to_every_reader() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    store.conflict_next(1);
    turn.say("a", "x").await;
    let error = h.engine.settled(&alice(), sent.reader).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    let error = h.engine.cancel(&alice(), &sent.task).await.unwrap_err();
    assert!(error.message().contains("stopped working on this task"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_store_is_away_is_answered_and_takes_effect() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    h.reaches(&sent.task, TaskState::Working).await;
    store.fail_next(usize::MAX);
    turn.say("a", "x").await;
    let error = h.engine.cancel(&alice(), &sent.task).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.fail_next(0);
    h.reaches(&sent.task, TaskState::Canceled).await;
}

#[tokio::test]
async fn a_cancel_before_the_prompt_aborts_nothing() {
    let mut h = start();
    h.agent.starts.hold();
    let sent = h.send("c", "m1").await;
    h.reaches(&sent.task, TaskState::Working).await;
    h.engine.cancel(&alice(), &sent.task).await.unwrap();
    h.agent.starts.release(1);
    let next = h.send("c", "m2").await;
    h.turn().await.complete().await;
    h.reaches(&next.task, TaskState::Completed).await;
    assert!(
        h.agent.log().aborted.is_empty(),
        "no turn of the gateway ran in the session, so there was nothing to abort"
    );
}

#[tokio::test]
async fn a_cancel_while_the_session_is_opened_ends_the_task() {
    let mut h = start();
    h.agent.opens.hold();
    let sent = h.send("c", "m1").await;
    let canceled = h.engine.cancel(&alice(), &sent.task).await.unwrap();
    assert_eq!(canceled.task.status.state, TaskState::Canceled);
    h.agent.opens.release(1);
    h.send("c", "m2").await;
    assert_eq!(h.turn().await.request.input, [input("m2")]);
}

#[tokio::test]
async fn a_second_cancel_does_not_wait_for_the_abort_of_the_first() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let _turn = h.turn().await;
    h.agent.aborts.hold();
    h.engine.cancel(&alice(), &sent.task).await.unwrap();
    let error = h.engine.cancel(&alice(), &sent.task).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
    h.agent.aborts.release(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_completion_at_once_end_a_task_exactly_once() {
    let mut h = start();
    for round in 0..200 {
        let sent = h.send("c", &format!("m{round}")).await;
        let turn = h.turn().await;
        let (engine, task) = (h.engine.clone(), sent.task.clone());
        let cancel = h.tasks.spawn("cancel", async move { engine.cancel(&alice(), &task).await });
        turn.say("a", "x").await;
        turn.complete().await;
        let canceled = cancel.await.unwrap();
        let log = read_all(sent.reader).await;
        let ends: Vec<_> = log.iter().filter(|entry| entry.event.is_terminal()).collect();
        assert_eq!(ends.len(), 1, "{log:?}");
        assert_eq!(ends[0], log.last().unwrap());
        let state = ends[0].event.status().unwrap().state;
        assert_eq!(canceled.is_ok(), state == TaskState::Canceled, "{canceled:?} {state}");
    }
    let store = h.stop().await;
    assert!(store.unfinished().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_named_session_wins_over_one_that_is_being_opened() {
    let mut h = start();
    let first = h.send("c0", "m0").await;
    let turn = h.turn().await;
    let known = turn.request.session.clone();
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    h.agent.opens.hold();
    h.send("c", "m1").await;
    let mut naming = message("c", "m2");
    naming.options.session = Some(known.id.clone());
    h.engine.send(&alice(), naming).await.unwrap();
    h.agent.opens.release(1);
    for text in ["m1", "m2"] {
        let turn = h.turn().await;
        assert_eq!((&turn.request.session, &turn.request.input[0]), (&known, &input(text)));
        turn.complete().await;
    }
}

#[tokio::test]
async fn a_missing_named_session_fails_the_task_and_is_not_replaced() {
    let mut h = start();
    let first = h.send("c0", "m0").await;
    let turn = h.turn().await;
    let known = turn.request.session.id.clone();
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    let mut naming = message("c", "m1");
    naming.options.session = Some(known);
    h.agent.refuse_next(Error::new(ErrorKind::SessionGone, "The session is gone."));
    let sent = h.engine.send(&alice(), naming.clone()).await.unwrap();
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "The session is gone.");
    assert_eq!(
        h.engine.send(&alice(), naming).await.unwrap().task,
        sent.task,
        "the same send is the same task"
    );
}

#[tokio::test]
async fn after_a_restart_the_running_turn_goes_before_waiting_ones() {
    let mut h = start();
    h.send("c2", "z").await;
    let z = h.turn().await;
    let session = z.request.session.clone();
    h.send("c2", "a").await;
    let mut b = message("c1", "b");
    b.options.session = Some(session.id.clone());
    let b = h.engine.send(&alice(), b).await.unwrap().task;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    z.complete().await;
    assert_eq!(h.turn().await.request.input, [input("b")]);
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.task, b);
    assert!(turn.request.resume.is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_agent_that_is_away_is_waited_for() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    h.turn().await;
    let store = h.stop().await;
    let mut h = start_with(store, EngineConfig::default());
    for _ in 0..5 {
        h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "not yet"));
    }
    h.engine.recover().await.unwrap();
    h.turn().await.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    assert!(h.agent.log().aborted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_agent_that_stays_away_fails_the_task_at_the_turn_limit() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    h.turn().await;
    let store = h.stop().await;
    let config = EngineConfig { turn_timeout: Some(Duration::from_mins(1)), ..EngineConfig::default() };
    let h = start_with(store, config);
    for _ in 0..100 {
        h.agent.refuse_next(Error::new(ErrorKind::AgentUnavailable, "still away"));
    }
    h.engine.recover().await.unwrap();
    let task = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(reason_of(&task), "still away");
}

#[tokio::test]
async fn a_cursor_before_the_first_readable_event_is_a_gap() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    for block in ["a", "b", "d", "e"] {
        turn.say(block, "x").await;
    }
    turn.complete().await;
    h.reaches(&sent.task, TaskState::Completed).await;
    let mut opened_before =
        h.engine.subscribe(&alice(), &sent.task, Some(Seq(1).into())).await.unwrap().reader;
    store.forget_before(5);
    let opening = async |cursor: u64| {
        let subscription = h.engine.subscribe(&alice(), &sent.task, Some(Seq(cursor).into())).await.unwrap();
        (
            matches!(subscription.opening, longshore_engine::SubscriptionStart::Gap(..)),
            read_all(subscription.reader).await.len(),
        )
    };
    assert_eq!(opening(3).await, (true, 0));
    assert_eq!(opening(4).await, (false, 3));
    // A reader that was opened earlier gets the gap too.
    let error = opened_before.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn an_unknown_session_and_another_callers_look_the_same() {
    let h = start();
    let mut naming = message("c", "m1");
    naming.options.session = Some(SessionId::parse("ses_unknown").unwrap());
    let error = h.engine.send(&alice(), naming).await.unwrap_err();
    assert_eq!(error.violations()[0].description, "is no session that you may use");
}
