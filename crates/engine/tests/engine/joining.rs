//! Messages for a busy session: they wait, join the running turn, or are refused, as their sender requests.

use std::time::Duration;

use longshore_engine::EngineConfig;
use longshore_engine::port::Steering;
use longshore_model::{Delivery, Error, ErrorKind, SendMessage, TaskId, TaskState};

use crate::harness::{alice, input, message, send_in_background, start, start_with, text_of};

fn delivered(delivery: Delivery, text: &str) -> SendMessage {
    let mut command = message("c", text);
    command.options.delivery = delivery;
    command
}

fn on(task: &TaskId, text: &str) -> SendMessage {
    let mut command = message("c", text);
    command.message.task_id = Some(task.clone());
    command.message.context_id = None;
    command
}

fn texts_of_history(task: &longshore_model::Task) -> Vec<&str> {
    task.history.iter().filter_map(|message| message.parts[0].as_text()).collect()
}

#[tokio::test]
async fn a_message_joins_the_running_task_by_its_id_or_by_steering() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    for (command, text) in [(on(&first.task, "m2"), "m2"), (delivered(Delivery::Steer, "m3"), "m3")] {
        let sent = send_in_background(&h, command);
        let (prompt, given) = turn.joined().await;
        assert_ne!(prompt, turn.request.prompt);
        assert_eq!(given, [input(text)]);
        assert_eq!(sent.await.unwrap().unwrap(), first.task);
    }
    turn.say("prt_1", "done").await;
    turn.complete().await;
    let task = h.reaches(&first.task, TaskState::Completed).await;
    assert_eq!(texts_of_history(&task), ["m1", "m2", "m3"]);
    assert_eq!(text_of(&task), "done");
    assert_eq!(h.agent.log().prompted.len(), 1, "no turn of its own");
}

#[tokio::test]
async fn a_message_before_the_turn_has_begun_joins_it() {
    let mut h = start();
    h.agent.opens.hold();
    let first = h.send("c", "m1").await;
    let sent = send_in_background(&h, on(&first.task, "m2"));
    tokio::task::yield_now().await;
    assert_eq!(h.task(&first.task).await.status.state, TaskState::Submitted);
    h.agent.opens.release(1);
    let mut turn = h.turn().await;
    assert_eq!(turn.joined().await.1, [input("m2")]);
    assert_eq!(sent.await.unwrap().unwrap(), first.task);
    turn.complete().await;
    let task = h.reaches(&first.task, TaskState::Completed).await;
    assert_eq!(texts_of_history(&task), ["m1", "m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_begin_accepts_no_message() {
    let h = start();
    h.agent.opens.hold();
    let first = h.send("c", "m1").await;
    let error = h.engine.send(&alice(), on(&first.task, "m2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "{error:?}");
}

#[tokio::test]
async fn a_joining_message_is_durable_before_it_is_sent_and_joins_once() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let sent = send_in_background(&h, on(&first.task, "m2"));
    let Steering { expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
    assert_eq!(texts_of_history(&h.task(&first.task).await), ["m1"], "the message is not in the log yet");
    expected.send(()).unwrap();
    go.await.unwrap();
    assert_eq!(texts_of_history(&h.task(&first.task).await), ["m1", "m2"]);
    confirm.send(Ok(())).unwrap();
    sent.await.unwrap().unwrap();
    // A repeat of the same message, because its response was lost.
    let again = h.engine.send(&alice(), on(&first.task, "m2")).await.unwrap();
    assert_eq!(again.task, first.task);
    assert!(turn.steering.try_recv().is_err());
}

#[tokio::test]
async fn an_accepted_message_is_not_accepted_again_whatever_its_delivery() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    // Twice at once, then after the response, then after the end.
    let twice = [
        send_in_background(&h, delivered(Delivery::Steer, "m2")),
        send_in_background(&h, delivered(Delivery::Steer, "m2")),
    ];
    turn.joined().await;
    for sent in twice {
        assert_eq!(sent.await.unwrap().unwrap(), first.task);
    }
    assert_eq!(send_in_background(&h, delivered(Delivery::Steer, "m2")).await.unwrap().unwrap(), first.task);
    assert!(turn.steering.try_recv().is_err(), "it was offered to the turn again");
    turn.complete().await;
    let task = h.reaches(&first.task, TaskState::Completed).await;
    assert_eq!(texts_of_history(&task), ["m1", "m2"]);
    assert_eq!(send_in_background(&h, delivered(Delivery::Steer, "m2")).await.unwrap().unwrap(), first.task);

    // A message with a task of its own is not refused because that task runs, and does not join it.
    let own = |delivery| delivered(delivery, "m3");
    let second = h.engine.send(&alice(), own(Delivery::Queue)).await.unwrap();
    let mut turn = h.turn().await;
    for delivery in [Delivery::Queue, Delivery::Reject, Delivery::Steer] {
        let again = h.engine.send(&alice(), own(delivery)).await.unwrap();
        assert_eq!(again.task, second.task, "{delivery:?}");
    }
    assert!(turn.steering.try_recv().is_err(), "it joined itself");
    turn.complete().await;
    assert_eq!(h.agent.log().prompted.len(), 2);
}

#[tokio::test]
async fn a_message_that_does_not_arrive_is_withdrawn_and_can_be_sent_again() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let sent = send_in_background(&h, on(&first.task, "m2"));
    let Steering { expected, go, sent: confirm, .. } = *turn.steering.recv().await.unwrap();
    expected.send(()).unwrap();
    go.await.unwrap();
    confirm.send(Err(Error::new(ErrorKind::AgentUnavailable, "It is away."))).unwrap();
    assert_eq!(sent.await.unwrap().unwrap_err().kind(), ErrorKind::AgentUnavailable);
    assert_eq!(texts_of_history(&h.task(&first.task).await), ["m1"]);
    let again = send_in_background(&h, on(&first.task, "m2"));
    turn.joined().await;
    again.await.unwrap().unwrap();
    turn.complete().await;
    let task = h.reaches(&first.task, TaskState::Completed).await;
    assert_eq!(texts_of_history(&task), ["m1", "m2"]);
}

#[tokio::test]
async fn a_message_that_is_too_late_to_steer_gets_its_own_task() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let sent = send_in_background(&h, delivered(Delivery::Steer, "m2"));
    // The driver has seen the end of the turn already.
    drop(turn.steering.recv().await.unwrap());
    turn.steering.close();
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    let second = h.turn().await;
    assert_eq!(second.request.input, [input("m2")]);
    assert_ne!(sent.await.unwrap().unwrap(), first.task);
    second.complete().await;
    // With nothing to steer, it is an ordinary send.
    h.engine.send(&alice(), delivered(Delivery::Steer, "m3")).await.unwrap();
    assert_eq!(h.turn().await.request.input, [input("m3")]);
}

#[tokio::test]
async fn after_a_restart_the_driver_learns_the_joined_prompts() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    let mut turn = h.turn().await;
    let sent = send_in_background(&h, on(&first.task, "m2"));
    let (prompt, _) = turn.joined().await;
    sent.await.unwrap().unwrap();
    let store = h.stop().await;

    let mut h = start_with(store, EngineConfig::default());
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.resume.as_ref().unwrap().joined, [prompt]);
    turn.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
}

#[tokio::test]
async fn a_busy_session_refuses_messages_with_delivery_reject() {
    let mut h = start();
    h.send("c", "m1").await;
    let turn = h.turn().await;
    let refused = h.engine.send(&alice(), delivered(Delivery::Reject, "m2")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    let queued = h.engine.send(&alice(), delivered(Delivery::Queue, "m3")).await.unwrap();
    assert_eq!(h.task(&queued.task).await.status.state, TaskState::Submitted);
    let session = turn.request.session.clone();
    turn.complete().await;
    h.turn().await.complete().await;
    h.reaches(&queued.task, TaskState::Completed).await;
    // The session queue is released a moment after the end is reported.
    let free = async {
        while h.engine.send(&alice(), delivered(Delivery::Reject, "m4")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), free).await.unwrap();
    h.turn().await.complete().await;
    // Another client works in the session.
    h.agent.make_busy(&session.id);
    let refused = h.engine.send(&alice(), delivered(Delivery::Reject, "m5")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    assert_eq!(h.agent.log().prompted.len(), 3);
}

#[tokio::test]
async fn delivery_reject_is_refused_if_the_agent_cannot_say_whether_the_session_is_busy() {
    let mut h = start();
    let first = h.send("c", "m1").await;
    h.turn().await.complete().await;
    h.reaches(&first.task, TaskState::Completed).await;
    // Each send comes after the session queue is released, a moment after the end is reported.
    let refused = async {
        loop {
            h.agent.refuse_next_query(Error::new(ErrorKind::UpstreamBackpressure, "Try again in a moment."));
            let refused = h.engine.send(&alice(), delivered(Delivery::Reject, "m2")).await.unwrap_err();
            if refused.kind() != ErrorKind::SessionBusy {
                return refused.kind();
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_mins(1), refused).await.unwrap();
    assert_eq!(refused, ErrorKind::UpstreamBackpressure);
    assert_eq!(h.agent.log().prompted.len(), 1);
}
