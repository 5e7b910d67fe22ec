//! Calls that a restart of the gateway interrupts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_engine::port::{CallStore as _, StoredCall};
use longshore_model::{AskKind, TaskState};
use longshore_peers::{CallState, InAll, PeersConfig};
use longshore_testkit::stub_agent::{Reply, StubAgent};
use serde_json::{Value, json};

use crate::asks::{answer_on_task, permission};
use crate::fixture::{
    Gateway, answer, config, peer, remote, requests, shown, start, start_on, start_plain, status, stream,
    stub,
};

/// A peer whose task ends when `is_done` is set, which the tests do after the restart.
fn slow(is_done: Arc<AtomicBool>) -> StubAgent {
    stub(move |request, _| match (request.rpc(), is_done.load(Ordering::SeqCst)) {
        ("CancelTask", _) => Reply::result(&remote("CANCELED", "")),
        (_, true) => answer("after all"),
        _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
    })
}

async fn is_known(a: &Gateway, task: &longshore_model::TaskId) {
    a.until(task, |task| shown(task).iter().any(|call| call["meta"]["peer_task_id"] == "t-1")).await;
}

#[tokio::test]
async fn a_call_goes_on_after_a_restart_and_is_not_sent_twice() {
    let is_done = Arc::new(AtomicBool::new(false));
    let b = slow(Arc::clone(&is_done));
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
    is_known(&a, &sent.task).await;
    let store = a.stop().await;
    is_done.store(true, Ordering::SeqCst);
    let mut a = start_on(store, config(vec![peer(&b)]));
    a.engine.recover().await.unwrap();
    a.calls.recover().await.unwrap();
    let turn = a.turns.recv().await.unwrap();
    assert!(turn.request.resume.as_ref().unwrap().artifacts.is_empty(), "the agent does not know the call");
    turn.catch_up().await;
    let report = a.call(&turn, "k", "What?").await.unwrap();
    assert_eq!((report.state, report.text.as_str()), (CallState::Completed, "after all"));
    turn.complete().await;
    let task = a.reaches(&sent.task, TaskState::Completed).await;
    assert_eq!(shown(&task)[0]["status"], "completed");
    assert_eq!(requests(&b, "SendStreamingMessage").len(), 1);
    assert!(requests(&b, "CancelTask").is_empty());
}

#[tokio::test]
async fn calls_of_a_turn_that_a_restart_ended_are_canceled() {
    let b = slow(Arc::default());
    let mut a = start_plain(Arc::new(longshore_store::memory()), config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
    is_known(&a, &sent.task).await;
    let store = a.stop().await;
    let a = start_plain(store, config(vec![peer(&b)]));
    a.engine.recover().await.unwrap();
    a.reaches(&sent.task, TaskState::Failed).await;
    assert_eq!(a.calls.recover().await.unwrap(), 1);
    while !a.store.open_calls(None).await.unwrap().calls.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(requests(&b, "CancelTask").len(), 1);
}

#[tokio::test]
async fn a_call_that_waited_to_be_sent_begins_anew_after_a_restart() {
    let is_done = Arc::new(AtomicBool::new(false));
    let b = slow(Arc::clone(&is_done));
    let in_all = InAll { at_once: 1, ..InAll::default() };
    let mut a = start(PeersConfig { in_all, ..config(vec![peer(&b)]) });
    let (sent, turn) = a.turn().await;
    a.call_for(&turn, "k1", "What?", Duration::ZERO).await.unwrap();
    is_known(&a, &sent.task).await;
    let waiting = a.call_for(&turn, "k2", "What?", Duration::from_millis(50)).await.unwrap();
    assert_eq!((waiting.state, requests(&b, "SendStreamingMessage").len()), (CallState::Working, 1));
    let store = a.stop().await;
    is_done.store(true, Ordering::SeqCst);
    let mut a = start_on(store, PeersConfig { in_all, ..config(vec![peer(&b)]) });
    a.engine.recover().await.unwrap();
    a.calls.recover().await.unwrap();
    let turn = a.turns.recv().await.unwrap();
    let report = a.call(&turn, "k2", "What?").await.unwrap();
    assert_eq!((report.state, report.text.as_str()), (CallState::Completed, "after all"));
    assert_eq!(requests(&b, "SendStreamingMessage").len(), 2);
}

#[tokio::test]
async fn calls_that_were_sent_before_a_restart_do_not_wait_for_each_other() {
    let b = slow(Arc::default());
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    for key in ["k1", "k2"] {
        a.call_for(&turn, key, "What?", Duration::ZERO).await.unwrap();
    }
    let is_sent = |call: &Value| call["meta"]["peer_task_id"] == "t-1";
    a.until(&sent.task, |task| shown(task).iter().filter(|call| is_sent(call)).count() == 2).await;
    let in_all = InAll { at_once: 1, ..InAll::default() };
    let a = start_on(a.stop().await, PeersConfig { in_all, ..config(vec![peer(&b)]) });
    a.engine.recover().await.unwrap();
    a.calls.recover().await.unwrap();
    while requests(&b, "SubscribeToTask").len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The gateway was killed while it sent the message.
#[tokio::test]
async fn a_message_that_may_have_arrived_is_sent_again_only_to_a_peer_that_knows_it_again() {
    for deduplicates in [true, false] {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let behavior: Value = json!({"same_message_id": {"behavior": "return_existing_task"}});
        let b = StubAgent::start(move |request, url| {
            match (request.method.as_str(), done.load(Ordering::SeqCst)) {
                ("GET", _) => {
                    let mut card = StubAgent::card(url);
                    if deduplicates {
                        card["capabilities"]["extensions"] =
                            json!([{"uri": "urn:x", "params": {"idempotency": behavior}}]);
                    }
                    Reply::json(&card)
                }
                (_, true) => answer("after all"),
                _ => Reply::silent(),
            }
        });
        let mut a = start(config(vec![peer(&b)]));
        let (_, turn) = a.turn().await;
        a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
        while requests(&b, "SendStreamingMessage").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let store = a.stop().await;
        is_done.store(true, Ordering::SeqCst);
        let mut a = start_on(store, config(vec![peer(&b)]));
        a.engine.recover().await.unwrap();
        let turn = a.turns.recv().await.unwrap();
        let report = a.call(&turn, "k", "What?").await.unwrap();
        let sends = requests(&b, "SendStreamingMessage");
        if deduplicates {
            assert_eq!((report.state, sends.len()), (CallState::Completed, 2));
            let id = |index: usize| &sends[index].body["params"];
            assert_eq!(id(0), id(1));
        } else {
            assert!(matches!(report.state, CallState::Unknown { .. }), "{report:?}");
            assert_eq!(sends.len(), 1);
        }
    }
}

/// The peer asks, or ends its task, before the turn is resumed.
#[tokio::test]
async fn what_a_peer_did_before_the_turn_was_resumed_is_shown() {
    for asks in [true, false] {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let b = stub(move |request, count| match (request.rpc(), done.load(Ordering::SeqCst)) {
            ("SendStreamingMessage", true) if count > 0 => answer("Thanks."),
            (_, true) if asks => stream(&[status("INPUT_REQUIRED", "May I?", &permission())]),
            (_, true) => {
                let usage = json!({"shared": {"usage": {"total_tokens": 7}}});
                stream(&[json!({"task": remote("WORKING", "")}), status("COMPLETED", "Done.", &usage)])
            }
            _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
        });
        let mut a = start(config(vec![peer(&b)]));
        let (sent, turn) = a.turn().await;
        a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
        is_known(&a, &sent.task).await;
        let store = a.stop().await;
        is_done.store(true, Ordering::SeqCst);
        let mut a = start_on(store, config(vec![peer(&b)]));
        a.agent.starts.hold();
        a.engine.recover().await.unwrap();
        a.calls.recover().await.unwrap();
        let has_happened = |calls: Vec<StoredCall>| match calls.first() {
            Some(call) => asks && !call.record.to_value()["ask"].is_null(),
            None => !asks,
        };
        while !has_happened(a.store.open_calls(None).await.unwrap().calls) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        a.agent.starts.release(1);
        let turn = a.turns.recv().await.unwrap();
        turn.catch_up().await;
        if asks {
            let task = a.reaches(&sent.task, TaskState::InputRequired).await;
            assert_eq!(task.open_asks[0].kind, AskKind::Permission);
            answer_on_task(&a, &sent.task, "answer", "once").await;
        }
        let report = a.call(&turn, "k", "What?").await.unwrap();
        assert_eq!(report.state, CallState::Completed);
        turn.complete().await;
        let task = a.reaches(&sent.task, TaskState::Completed).await;
        assert_eq!(shown(&task)[0]["status"], "completed");
        assert_eq!(task.usage.map(|usage| usage.total), (!asks).then_some(7));
    }
}
