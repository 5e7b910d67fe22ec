//! Limits for loops and for the number of calls.

use std::time::Duration;

use longshore_model::{ErrorKind, Hop, Hops};
use longshore_peers::{CallState, HopRules, Identity, InAll, PeersConfig, Tools as _};
use longshore_testkit::stub_agent::Reply;
use serde_json::json;

use crate::fixture::{
    alice, answer, caller, config, message_over, peer, remote, requests, start, stream, stub,
};

#[tokio::test]
async fn fifty_calls_of_one_task_respect_both_limits() {
    let b = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        "GetTask" => Reply::result(&remote("WORKING", "")),
        _ => stream(&[json!({"task": remote("WORKING", "")})]),
    });
    let mut a = start(PeersConfig { at_once: 3, ..config(vec![peer(&b)]) });
    let (_, turn) = a.turn().await;
    let mut refused = Vec::new();
    for number in 0..50 {
        let call = a.call_for(&turn, &format!("k{number}"), "What?", Duration::ZERO).await;
        refused.extend(call.err());
    }
    assert_eq!(refused.len(), 47);
    assert!(refused[0].0.contains("3 calls that run"), "{refused:?}");

    let b = stub(|_, _| answer("ok"));
    let mut a = start(PeersConfig { per_task: 5, ..config(vec![peer(&b)]) });
    let (_, turn) = a.turn().await;
    for number in 0..5 {
        assert_eq!(a.call(&turn, &format!("k{number}"), "What?").await.unwrap().state, CallState::Completed);
    }
    let refusal = a.call(&turn, "k6", "What?").await.unwrap_err();
    assert!(refusal.0.contains("has made 5 calls"), "{refusal:?}");
    assert_eq!(requests(&b, "SendStreamingMessage").len(), 5);
}

#[tokio::test]
async fn calls_beyond_the_most_of_all_tasks_wait_for_one_that_ends_or_fail_unsent() {
    let b = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
    });
    let sent = || requests(&b, "SendStreamingMessage").len();
    let until = async |count: usize| {
        while sent() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_all = InAll { at_once: 1, wait: Duration::from_millis(50) };
    let mut a = start(PeersConfig { in_all, ..config(vec![peer(&b)]) });
    let (_, turn) = a.turn().await;
    a.call_for(&turn, "k1", "What?", Duration::ZERO).await.unwrap();
    until(1).await;
    let failed = a.call(&turn, "k2", "What?").await.unwrap();
    let CallState::Failed { reason } = failed.state else { panic!("{failed:?}") };
    assert!(reason.contains("1 calls that run") && reason.contains("Nothing was sent"), "{reason}");

    let in_all = InAll { at_once: 1, ..InAll::default() };
    let mut a = start(PeersConfig { in_all, ..config(vec![peer(&b)]) });
    let (_, turn) = a.turn().await;
    let first = a.call_for(&turn, "k1", "What?", Duration::ZERO).await.unwrap();
    until(2).await;
    let second = a.call_for(&turn, "k2", "What?", Duration::ZERO).await.unwrap();
    assert_eq!((second.state, sent()), (CallState::Working, 2));
    let canceled = a.calls.cancel(&caller(&turn), &first.handle).await.unwrap();
    assert_eq!(canceled.state, CallState::Canceled);
    until(3).await;
}

#[tokio::test]
async fn a_loop_is_refused_with_its_chain_and_leaves_no_task() {
    let b = stub(|_, _| answer("ok"));
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    a.call(&turn, "k", "What?").await.unwrap();
    // B calls back: it sends the chain that it got, with its own entry added.
    let sent = requests(&b, "SendStreamingMessage").remove(0);
    let mut hops: Hops =
        serde_json::from_value(sent.body["params"]["metadata"]["shared"]["hops"].clone()).unwrap();
    hops.0.push(Hop { gateway: "gateway-b".to_owned(), signature: "of b".to_owned() });
    let error = a.engine.send(&alice(), message_over("m2", hops)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    let text = format!("{error:?}");
    assert!(text.contains("gateway-a -> gateway-b -> gateway-a"), "{text}");
    let forged = Hops(vec![Hop { gateway: "gateway-a".to_owned(), signature: "forged".to_owned() }]);
    let error = a.engine.send(&alice(), message_over("m3", forged)).await.unwrap_err();
    assert!(format!("{error:?}").contains("was changed"), "{error:?}");
    assert!(a.turns.try_recv().is_err());
}

#[tokio::test]
async fn the_chain_of_the_calling_task_is_sent_on_and_its_length_is_limited() {
    let b = stub(|_, _| answer("ok"));
    let hop = |name: &str| Hop { gateway: name.to_owned(), signature: String::new() };
    let chain = Hops(vec![hop("x"), hop("y")]);
    for (longest, is_sent) in [(3, true), (2, false)] {
        let hops = HopRules { longest, returns: 0 };
        let mut a = start(PeersConfig { hops, ..config(vec![peer(&b)]) });
        a.engine.send(&alice(), message_over("m1", chain.clone())).await.unwrap();
        let turn = a.turns.recv().await.unwrap();
        let called = a.call(&turn, "k", "What?").await;
        assert_eq!(called.is_ok(), is_sent, "{called:?}");
        if let Err(refusal) = called {
            assert!(refusal.0.contains("x -> y -> gateway-a"), "{refusal:?}");
        }
    }
    let sends = requests(&b, "SendStreamingMessage");
    let sent = &sends[0].body["params"]["metadata"]["shared"]["hops"];
    let names: Vec<_> = sent.as_array().unwrap().iter().map(|hop| hop["gateway"].clone()).collect();
    assert_eq!((sends.len(), names), (1, vec![json!("x"), json!("y"), json!("gateway-a")]));
}

#[test]
fn the_identity_of_a_gateway_follows_from_its_secret() {
    let name = |secret: u8| format!("{:?}", Identity::of_secret(&[secret; 32]));
    assert_eq!(name(1), name(1));
    assert_ne!(name(1), name(2));
}
