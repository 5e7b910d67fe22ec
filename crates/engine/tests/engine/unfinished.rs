//! The limit of unfinished tasks: one more is refused, a message that needs no task of its own is not.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_meter::label::Limit;
use longshore_model::{Delivery, Error, ErrorKind, Principal, Retry, TaskState};

use crate::harness::{Harness, alice, input, message, start_with};

fn with_limits(unfinished: usize, unfinished_per_principal: usize, unfinished_per_context: usize) -> Harness {
    let limits = EngineConfig {
        unfinished,
        unfinished_per_principal,
        unfinished_per_context,
        ..EngineConfig::default()
    };
    start_with(Arc::new(longshore_store::memory()), limits)
}

fn limit_of(error: &Error) -> (&str, &str) {
    let detail = |name: &str| {
        let found = error.details().iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).expect("the refusal tells its limit")
    };
    (detail("limit"), detail("max"))
}

#[tokio::test]
async fn a_task_over_the_limit_is_refused_with_the_limit_and_a_retry_time() {
    let mut h = with_limits(6, 5, 3);
    let mut sent = Vec::new();
    for (context, text) in [("c1", "m1"), ("c1", "m2"), ("c1", "m3"), ("c2", "m4"), ("c2", "m5")] {
        sent.push(h.send(context, text).await.task);
    }
    let bob = Principal::new("bob");
    h.engine.send(&bob, message("c1", "m1")).await.unwrap();
    let carol = Principal::new("carol");
    for (caller, context, limit, max) in [
        (&alice(), "c1", "unfinished_per_context", "3"),
        (&alice(), "c2", "unfinished_per_principal", "5"),
        (&bob, "c2", "unfinished", "6"),
        (&carol, "c1", "unfinished", "6"),
    ] {
        let error = h.engine.send(caller, message(context, "more")).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::TooManyRequests, Retry::Later));
        assert_eq!(limit_of(&error), (limit, max));
        assert!(error.retry_after().is_some_and(|after| after >= Duration::from_secs(1)));
    }
    assert_eq!(h.metrics.refused.of(Limit::Unfinished).get(), 2);
    assert_eq!(h.metrics.refused.of(Limit::UnfinishedPerContext).get(), 1);
    h.engine.cancel(&alice(), &sent[2]).await.unwrap();
    h.send("c1", "room-again").await;
    h.turn().await;
}

#[tokio::test]
async fn an_accepted_send_is_found_again_at_every_limit() {
    for (in_all, per_principal, per_context) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        let mut h = with_limits(in_all, per_principal, per_context);
        let first = h.send("c", "m1").await.task;
        let refused = h.engine.send(&alice(), message("c", "m2")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
        // Its response got lost.
        assert_eq!(h.send("c", "m1").await.task, first);
        h.turn().await.complete().await;
        h.reaches(&first, TaskState::Completed).await;
        // Neither that send nor the refused one holds a slot.
        h.send("c", "m2").await;
    }
}

#[tokio::test]
async fn a_send_without_a_slot_is_refused_before_the_agent_is_asked() {
    let mut h = with_limits(0, 1, 0);
    h.send("c", "m1").await;
    h.agent.refuse_next_admission(Error::invalid("metadata", "is not what the agent takes"));
    let refused = h.engine.send(&alice(), message("c2", "m2")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
    h.turn().await.complete().await;
    while h.engine.send(&alice(), message("c2", "m2")).await.unwrap_err().kind() != ErrorKind::InvalidParams {
        tokio::task::yield_now().await;
    }
    // A send that the agent refused does not hold its slot.
    h.send("c2", "m3").await;
}

#[tokio::test]
async fn a_joining_message_needs_no_slot() {
    let mut h = with_limits(1, 0, 0);
    let first = h.send("c", "m1").await.task;
    let mut turn = h.turn().await;
    let mut steering = message("c", "m2");
    steering.options.delivery = Delivery::Steer;
    let engine = h.engine.clone();
    let sent =
        h.tasks.spawn("test", async move { engine.send(&alice(), steering).await.map(|sent| sent.task) });
    assert_eq!(turn.joined().await.1, [input("m2")]);
    assert_eq!(sent.await.unwrap().unwrap(), first);
    // Where nothing runs that it could join, it needs one.
    let mut elsewhere = message("c2", "m3");
    elsewhere.options.delivery = Delivery::Steer;
    let refused = h.engine.send(&alice(), elsewhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
}

#[tokio::test]
async fn a_message_that_waits_to_join_needs_a_slot_only_if_it_is_too_late() {
    let mut h = with_limits(0, 0, 2);
    h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let mut steering = message("c", "m2");
    steering.options.delivery = Delivery::Steer;
    let engine = h.engine.clone();
    let sent = h.tasks.spawn("test", async move { engine.send(&alice(), steering).await.map(drop) });
    let offered = turn.steering.recv().await.expect("the engine follows the turn");
    h.send("c", "m3").await;
    h.engine.update_gauges();
    assert_eq!(h.metrics.tasks_unfinished.get(), 2);
    // The turn accepts it no more, and the context is full by now.
    drop(offered);
    let refused = sent.await.unwrap().unwrap_err();
    assert_eq!(limit_of(&refused), ("unfinished_per_context", "2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_sends_do_not_exceed_a_limit_together() {
    let h = with_limits(7, 0, 0);
    let racing: Vec<_> = (0..60)
        .map(|number| {
            let (engine, command) = (h.engine.clone(), message(&format!("c{number}"), &format!("m{number}")));
            h.tasks.spawn("test", async move { engine.send(&alice(), command).await.map(drop) })
        })
        .collect();
    let mut taken = 0;
    for sent in racing {
        match sent.await.unwrap() {
            Ok(()) => taken += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::TooManyRequests),
        }
    }
    assert_eq!(taken, 7);
    h.engine.update_gauges();
    assert_eq!(h.metrics.tasks_unfinished.get(), 7);
}
