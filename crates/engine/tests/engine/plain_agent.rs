//! An agent without any of the optional abilities: the engine says what is missing, and does the rest.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::Session;
use longshore_model::{AskKind, Delivery, ErrorKind, SessionId, TaskState};
use longshore_store::memory;

use crate::harness::{Harness, alice, message, on, reason_of, start_plain, text_of};

fn start() -> Harness {
    start_plain(Arc::new(memory()), EngineConfig::default())
}

#[tokio::test]
async fn a_turn_that_a_restart_interrupted_fails_with_the_reason_and_keeps_what_was_said() {
    let mut h = start();
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.say("a", "half of it").await;
    turn.call_child("ses_child", "call_1", "look").await;
    turn.ask("per_1").await;
    h.reaches(&sent.task, TaskState::InputRequired).await;
    let waiting = h.send("c", "m2").await;
    let mut h = start_plain(h.stop().await, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(text_of(&failed), "half of it");
    assert!(reason_of(&failed).starts_with("The gateway restarted while"), "{}", reason_of(&failed));
    assert!(failed.open_asks.is_empty(), "{:?}", failed.open_asks);
    assert!(h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap().is_empty());
    // The next task of the context begins, and nothing was prompted again.
    let next = h.turn().await;
    assert_eq!((&next.request.task, next.request.resume.is_none()), (&waiting.task, true));
    let child = h.store.children(&sent.task).await.unwrap().remove(0).task;
    h.reaches(&child.id, TaskState::Failed).await;
}

#[tokio::test]
async fn a_message_for_a_running_turn_is_refused_and_one_that_waits_is_taken() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let turn = h.turn().await;
    let mut steering = message("c", "m2");
    steering.options.delivery = Delivery::Steer;
    for refused in [steering.clone(), on(&first.task, "m3")] {
        let error = h.engine.send(&alice(), refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error}");
        assert!(error.message().contains("takes no message while it works"), "{error}");
    }
    let queued = h.send("c", "m4").await;
    turn.complete().await;
    let turn = h.turn().await;
    assert_eq!(turn.request.task, queued.task);
    turn.complete().await;
    // Without a running turn there is nothing to join, as with any agent.
    h.reaches(&queued.task, TaskState::Completed).await;
    let sent = h.engine.send(&alice(), steering).await.unwrap();
    assert_eq!(h.turn().await.request.task, sent.task);
}

#[tokio::test]
async fn a_session_that_the_gateway_did_not_open_is_refused() {
    let h = start();
    let session = Session { id: SessionId::parse("ses_theirs").unwrap(), directory: "workspace".to_owned() };
    h.agent.add_foreign_session(session.clone());
    let mut command = message("c", "m1");
    (command.options.session, command.may_claim) = (Some(session.id), true);
    let error = h.engine.send(&alice(), command).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error:?}");
    assert!(h.agent.log().called_for.iter().all(|(call, _)| *call != "find_session"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_too_long_is_canceled() {
    let config = EngineConfig { turn_timeout: Some(Duration::from_secs(5)), ..EngineConfig::default() };
    let mut h = start_plain(Arc::new(memory()), config);
    let sent = h.send("c", "m1").await;
    let _turn = h.turn().await;
    let failed = h.reaches(&sent.task, TaskState::Failed).await;
    assert!(reason_of(&failed).starts_with("The turn took longer than"), "{}", reason_of(&failed));
    h.tasks.stop().await;
    assert_eq!(h.agent.log().aborted.len(), 1);
    assert!(h.agent.log().stopped.is_empty());
}
