//! How calls end, and how the task shows their end.

use std::time::Duration;

use longshore_model::{AgentEvent, Usage};
use longshore_peers::{CallKey, CallRequest, CallState, ToolCaller, Tools as _};
use longshore_testkit::stub_agent::{Reply, StubAgent};
use serde_json::json;

use crate::fixture::{
    LONG, alice, answer, caller, config, message, peer, progress, remote, requests, shown, start, status,
    stream, stub,
};

#[tokio::test]
async fn the_answer_of_a_peer_reaches_the_model_and_the_task_shows_it() {
    let b = stub(|_, _| {
        let usage = json!({"shared": {"usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "cost": 0.5}}});
        stream(&[json!({"task": remote("WORKING", "The answer.")}), status("COMPLETED", "Done.", &usage)])
    });
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let own = Usage { input: 1, total: 1, ..Usage::default() };
    turn.report(AgentEvent::Usage(own)).await;
    let report = a.call(&turn, "k", "What?").await.unwrap();
    assert_eq!((report.state, report.peer.as_str()), (CallState::Completed, "b"));
    assert_eq!(report.text, "The answer.\nDone.");
    // Repeating the call with the same key sends nothing.
    let again = a.call(&turn, "k", "What?").await.unwrap();
    assert_eq!(again.text, "The answer.\nDone.");
    turn.complete().await;
    let task = a.reaches(&sent.task, longshore_model::TaskState::Completed).await;
    let usage = task.usage.unwrap();
    assert_eq!((usage.input, usage.output, usage.total), (6, 2, 8));
    let [call] = shown(&task).try_into().unwrap();
    assert_eq!((&call["tool"], &call["status"]), (&json!("a2a_call"), &json!("completed")));
    assert_eq!((&call["input"]["peer"], &call["input"]["message"]), (&json!("b"), &json!("What?")));
    assert_eq!(call["meta"]["peer_usage"]["total_tokens"], 7);
    let sends = requests(&b, "SendStreamingMessage");
    assert_eq!(sends.len(), 1);
    let hops = &sends[0].body["params"]["metadata"]["shared"]["hops"];
    assert_eq!((hops.as_array().unwrap().len(), &hops[0]["gateway"]), (1, &json!("gateway-a")));
    assert!(sends[0].header("traceparent").is_some());
}

#[tokio::test]
async fn a_later_call_continues_the_context_of_an_earlier_one() {
    let b = stub(|_, _| answer("ok"));
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    let first = a.call(&turn, "k1", "one").await.unwrap();
    let request = CallRequest {
        peer: String::new(),
        text: "two".to_owned(),
        continues: Some(first.handle),
        wait: LONG,
    };
    assert_eq!(a.request(&turn, "k2", request).await.unwrap().state, CallState::Completed);
    let contexts: Vec<_> = requests(&b, "SendStreamingMessage")
        .iter()
        .map(|request| request.body["params"]["message"]["contextId"].clone())
        .collect();
    assert_eq!(contexts, [json!(null), json!("c-1")]);
}

#[tokio::test]
async fn a_call_that_takes_long_returns_its_handle_and_can_be_waited_for() {
    let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
    let held = std::sync::Mutex::new(held);
    let b = stub(move |_, _| {
        let _ = held.lock().unwrap().recv();
        answer("late")
    });
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    let report = a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
    assert_eq!(report.state, CallState::Working);
    release.send(()).unwrap();
    let report = a.calls.status(&caller(&turn), &report.handle, LONG, progress().0).await.unwrap();
    assert_eq!((report.state, report.text.as_str()), (CallState::Completed, "late"));
}

#[tokio::test]
async fn the_end_of_a_turn_and_a_cancel_cancel_the_tasks_of_peers() {
    for ends_itself in [true, false] {
        let b = stub(|request, _| match request.rpc() {
            "CancelTask" => Reply::result(&remote("CANCELED", "")),
            // The stream never ends.
            _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
        });
        let mut a = start(config(vec![peer(&b)]));
        let (sent, turn) = a.turn().await;
        a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
        a.until(&sent.task, |task| shown(task).iter().any(|call| call["meta"]["peer_task_id"] == "t-1"))
            .await;
        if ends_itself {
            turn.complete().await;
        } else {
            a.engine.cancel(&crate::fixture::alice(), &sent.task).await.unwrap();
        }
        while requests(&b, "CancelTask").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let task = a.until(&sent.task, |task| task.status.state.is_terminal()).await;
        assert_eq!(shown(&task)[0]["status"], "error", "{ends_itself}");
    }
}

#[tokio::test]
async fn the_peers_are_listed_with_their_cards_or_with_the_reason_why_not() {
    let b = StubAgent::start(|_, url| {
        let mut card = StubAgent::card(url);
        card["skills"] = json!([{"id": "s", "name": "Review", "description": "Reads changes."}]);
        Reply::json(&card)
    });
    let mut gone = peer(&b);
    gone.name = "gone".to_owned();
    gone.url = "http://127.0.0.1:9/".to_owned();
    let mut a = start(config(vec![peer(&b), gone]));
    let (_, turn) = a.turn().await;
    let [b, gone] = a.calls.discover(&caller(&turn)).await.unwrap().try_into().unwrap();
    assert_eq!((b.name.as_str(), b.description.as_str(), b.problem), ("b", "A test agent.", None));
    assert_eq!(b.skills, [("Review".to_owned(), "Reads changes.".to_owned())]);
    assert!(gone.problem.unwrap().contains("Cannot connect"));
}

#[tokio::test]
async fn a_call_that_is_canceled_before_its_message_is_sent_sends_nothing() {
    let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
    let held = std::sync::Mutex::new(held);
    let b = StubAgent::start(move |request, url| match request.method.as_str() {
        "GET" => {
            let _ = held.lock().unwrap().recv();
            Reply::json(&StubAgent::card(url))
        }
        _ => answer("too late"),
    });
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    let report = a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
    while b.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let caller = caller(&turn);
    let (canceled, ()) =
        tokio::join!(a.calls.cancel(&caller, &report.handle), async { release.send(()).unwrap() });
    assert_eq!(canceled.unwrap().state, CallState::Canceled);
    assert!(requests(&b, "SendStreamingMessage").is_empty());
}

#[tokio::test]
async fn a_call_that_the_peer_did_not_cancel_is_not_said_to_be_canceled() {
    let b = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::error(-32603, "Broken."),
        _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
    });
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let report = a.call_for(&turn, "k", "What?", Duration::ZERO).await.unwrap();
    a.until(&sent.task, |task| shown(task).iter().any(|call| call["meta"]["peer_task_id"] == "t-1")).await;
    let report = a.calls.cancel(&caller(&turn), &report.handle).await.unwrap();
    let CallState::Unknown { reason } = report.state else { panic!("{report:?}") };
    assert!(reason.contains("may still work"), "{reason}");
}

#[tokio::test]
async fn the_calls_of_a_turn_that_does_not_start_are_canceled() {
    let b = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        _ => stream(&[json!({"task": remote("WORKING", "")})]).endless(),
    });
    let a = start(config(vec![peer(&b)]));
    a.agent.starts.hold();
    let sent = a.engine.send(&alice(), message("m1")).await.unwrap();
    let session = longshore_model::SessionId::parse("ses_1").unwrap();
    let caller = ToolCaller::Session { session, tool_call: None };
    let request =
        CallRequest { peer: "b".to_owned(), text: "What?".to_owned(), continues: None, wait: Duration::ZERO };
    let report = a.calls.call(&caller, &CallKey("k".to_owned()), request, progress().0).await.unwrap();
    while requests(&b, "SendStreamingMessage").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    a.agent.refuse_next(longshore_model::Error::invalid("model", "is unknown"));
    a.agent.starts.release(1);
    a.reaches(&sent.task, longshore_model::TaskState::Failed).await;
    let canceled = async {
        while requests(&b, "CancelTask").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, canceled).await.expect("the call is canceled");
    tokio::time::pause();
    let refusal = a.calls.status(&caller, &report.handle, Duration::ZERO, progress().0).await.unwrap_err();
    assert!(refusal.0.contains("no task"), "{refusal:?}");
}
