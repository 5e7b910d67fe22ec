//! Messages that join at a bad moment: none is lost, doubled, or reported as accepted when it was not.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::Steering;
use longshore_model::{
    AgentEvent, AgentFile, Answer, BlockKind, BlockRef, Delivery, Error, ErrorKind, Part, PermissionReply,
    RequestId, SessionId, TaskState,
};
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::scripted_agent::text_block;

use crate::harness::{alice, message, on, send_in_background, start, start_with};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), what).await.expect("it happens")
}

fn away() -> Error {
    Error::new(ErrorKind::AgentUnavailable, "It is away.")
}

#[tokio::test]
async fn the_same_message_twice_at_once_is_offered_once() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let twice =
        [send_in_background(&h, on(&first.task, "m2")), send_in_background(&h, on(&first.task, "m2"))];
    turn.joined().await;
    for sent in twice {
        assert_eq!(soon(sent).await.unwrap().unwrap(), first.task);
    }
    assert!(turn.steering.try_recv().is_err(), "it was offered again");
}

#[tokio::test]
async fn a_message_to_a_turn_that_is_being_prompted_joins_it_afterwards() {
    let mut h = start();
    h.agent.starts.hold();
    let first = h.send("c", "m1").await;
    h.reaches(&first.task, TaskState::Working).await;
    let sent = send_in_background(&h, on(&first.task, "m2"));
    // The message waits in the inbox or with the owner; the result is the same.
    tokio::task::yield_now().await;
    h.agent.starts.release(1);
    let mut turn = h.turn().await;
    soon(turn.joined()).await;
    assert_eq!(soon(sent).await.unwrap().unwrap(), first.task);
}

#[tokio::test]
async fn answers_and_messages_are_handled_while_a_file_is_stored() {
    let store = FaultyStore::over(longshore_store::memory());
    let mut h = start_with(store.clone(), EngineConfig::default());
    let root = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    turn.ask("per_1").await;
    h.reaches(&root.task, TaskState::InputRequired).await;
    store.puts.hold();
    let block = BlockRef { kind: BlockKind::File, ..text_block("prt_file") };
    let file = AgentFile { name: None, media_type: "image/png".to_owned(), bytes: b"x"[..].into() };
    turn.report(AgentEvent::File { block, file }).await;
    let engine = h.engine.clone();
    let answered = h.tasks.spawn("test", async move {
        let answer = Answer::Permission { reply: PermissionReply::Once, message: None };
        engine.answer(&alice(), &RequestId::parse("per_1").expect("a good name"), answer).await
    });
    let mut steered = on(&root.task, "m2");
    steered.options.delivery = Delivery::Steer;
    let joined = send_in_background(&h, steered);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    store.puts.release(1);
    soon(turn.joined()).await;
    soon(joined).await.unwrap().unwrap();
    soon(answered).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_did_not_arrive_is_never_reported_as_accepted() {
    for _ in 0..100 {
        let mut h = start();
        let first = h.send("c", "m1").await;
        let mut turn = h.turn().await;
        let sent = send_in_background(&h, on(&first.task, "m2"));
        let Steering { expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
        expected.send(()).unwrap();
        go.await.unwrap();
        for word in 0..20 {
            turn.say("prt_1", &word.to_string()).await;
        }
        confirm.send(Err(away())).unwrap();
        turn.complete().await;
        assert_eq!(soon(sent).await.unwrap().unwrap_err().kind(), ErrorKind::AgentUnavailable);
        assert_eq!(h.reaches(&first.task, TaskState::Completed).await.history.len(), 1);
    }
}

#[tokio::test]
async fn a_withdrawal_removes_only_the_message_that_did_not_arrive() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let mut other = on(&first.task, "m1");
    other.message.parts = vec![Part::text("something else")];
    let sent = send_in_background(&h, other);
    let Steering { expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
    expected.send(()).unwrap();
    go.await.unwrap();
    confirm.send(Err(away())).unwrap();
    soon(sent).await.unwrap().unwrap_err();
    let history = h.task(&first.task).await.history;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].parts, [Part::text("m1")]);
}

#[tokio::test]
async fn messages_over_the_limit_of_a_task_are_refused() {
    let mut h = start_with(Arc::new(longshore_store::memory()), EngineConfig::default());
    let first = h.send("c", "m1").await;
    let _turn = h.turn().await;
    let mut sends: Vec<_> =
        (0..20).map(|number| send_in_background(&h, on(&first.task, &format!("j{number}")))).collect();
    let (refused, _, _) = soon(futures_util::future::select_all(sends.iter_mut())).await;
    let refused = refused.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
    assert!(refused.retry_after().is_some_and(|after| after >= Duration::from_secs(1)), "{refused:?}");
    let has = |name: &str, value: &str| refused.details().contains(&(name.to_owned(), value.to_owned()));
    assert!(has("limit", "joining_per_task") && has("max", "16"), "{refused:?}");
    let mut page = String::new();
    h.metrics.render(&mut page);
    assert!(!page.contains("longshore_refused_total{limit=\"joining_per_task\"} 0"), "it is counted");
    assert!(page.contains("longshore_refused_total{limit=\"joining_per_task\"} "), "it is on the page");
}

#[tokio::test]
async fn the_named_session_decides_the_delivery() {
    let mut h = start();
    h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let named = |context: Option<&str>, text: &str, session: &str, delivery| {
        let mut command = message(context.unwrap_or("x"), text);
        if context.is_none() {
            command.message.context_id = None;
        }
        command.options.session = SessionId::parse(session).ok();
        command.options.delivery = delivery;
        command
    };
    let session = turn.request.session.id.to_string();
    // The session is busy for another context too.
    let refused =
        h.engine.send(&alice(), named(Some("d"), "m2", &session, Delivery::Reject)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    // A session other than the context's is refused, and nothing joins.
    let refused =
        h.engine.send(&alice(), named(Some("c"), "m3", "ses_other", Delivery::Steer)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParams);
    assert!(turn.steering.try_recv().is_err());
    // A message finds the running task by its session alone.
    let sent = send_in_background(&h, named(None, "m4", &session, Delivery::Steer));
    soon(turn.joined()).await;
    assert_eq!(soon(sent).await.unwrap().unwrap(), turn.request.task);
}

#[tokio::test]
async fn a_steered_message_that_did_not_arrive_can_be_sent_again() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let steered = || {
        let mut command = message("c", "m2");
        command.options.delivery = Delivery::Steer;
        command
    };
    let sent = send_in_background(&h, steered());
    let Steering { expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
    expected.send(()).unwrap();
    go.await.unwrap();
    confirm.send(Err(away())).unwrap();
    soon(sent).await.unwrap().unwrap_err();
    let again = send_in_background(&h, steered());
    soon(turn.joined()).await;
    assert_eq!(soon(again).await.unwrap().unwrap(), first.task);
    assert_eq!(h.task(&first.task).await.history.len(), 2);
}
