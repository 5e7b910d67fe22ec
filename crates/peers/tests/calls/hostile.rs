//! Peers that hang, flood the gateway or are no agents, and models that name agents that they must not call.

use std::sync::Arc;
use std::time::Duration;

use longshore_client::Settings;
use longshore_model::SessionId;
use longshore_outbound::{Guard, Rules, SystemResolver};
use longshore_peers::{CallHandle, CallLimits, CallRequest, CallState, ToolCaller, Tools as _, UrlRules};
use longshore_testkit::stub_agent::{Reply, StubAgent};
use serde_json::json;

use crate::fixture::{
    LONG, answer, caller, config, message, peer, progress, remote, requests, start, stream, stub,
};

#[tokio::test]
async fn a_peer_with_any_fault_is_explained_to_the_model() {
    let web = StubAgent::start(|_, _| Reply::new(200, "text/html", "<html>hello</html>"));
    let html = stub(|_, _| Reply::new(200, "text/html", "<html>hello</html>"));
    let future = StubAgent::start(|_, url| {
        Reply::json(&json!({"name": "Stub", "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "9.0"}]}))
    });
    let flood = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        _ => stream(&[json!({"task": remote("WORKING", &"x".repeat(1000))})]).endless(),
    });
    let elsewhere = StubAgent::start(|_, _| Reply::json(&StubAgent::card("http://169.254.169.254/latest")));
    let silent = StubAgent::start(|_, _| Reply::silent());
    let refusing = stub(|_, _| Reply::error(-32603, "Broken at /home/secret/place."));
    let lost = stub(|_, _| Reply::new(200, "text/event-stream", "").broken());
    let proxy = stub(|_, _| Reply::new(504, "text/plain", "upstream request timeout"));
    let other_port = StubAgent::start(|_, _| Reply::json(&StubAgent::card("http://127.0.0.1:9/latest")));
    for (name, agent, expected) in [
        ("no agent", &web, "a web page"),
        ("HTML", &html, "a web page"),
        ("another version", &future, "JSONRPC of A2A 9.0"),
        ("flood", &flood, "more than"),
        ("another address", &elsewhere, "another address"),
        ("silent", &silent, "did not send its card"),
        ("refusing", &refusing, "Broken"),
        ("lost", &lost, "was not sent again"),
        ("a proxy that gave up", &proxy, "was not sent again"),
        ("another port", &other_port, "another address"),
    ] {
        let mut b = peer(agent);
        if name == "silent" {
            b.settings.card_timeout = Duration::from_millis(300);
        }
        b.settings.limits.event = 100_000;
        b.settings.limits.task = 500;
        let mut a = start(config(vec![b]));
        let (_, turn) = a.turn().await;
        let report = a.call(&turn, "k", "What?").await.unwrap();
        let (CallState::Failed { reason } | CallState::Unknown { reason }) = report.state else {
            panic!("{name}: {report:?}")
        };
        assert!(reason.contains(expected) && !reason.contains("/home"), "{name}: {reason}");
        assert!(requests(agent, "SendStreamingMessage").len() <= 1, "{name}");
        assert!(!agent.requests().iter().any(|request| request.target.contains("latest")), "{name}");
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_canceled() {
    let b = stub(|request, _| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        "GetTask" => Reply::result(&remote("WORKING", "")),
        _ => stream(&[json!({"task": remote("WORKING", "")})]),
    });
    let mut hanging = peer(&b);
    hanging.limits.duration = Duration::from_millis(300);
    let mut a = start(config(vec![hanging]));
    let (_, turn) = a.turn().await;
    let report = a.call(&turn, "k", "What?").await.unwrap();
    let CallState::Failed { reason } = report.state else { panic!("{report:?}") };
    assert!(reason.contains("took longer"), "{reason}");
    assert_eq!(requests(&b, "CancelTask").len(), 1);
}

#[tokio::test]
async fn results_are_bounded() {
    let b = stub(|_, _| answer(&"x".repeat(5_000)));
    let mut small = peer(&b);
    small.limits.result_bytes = 100;
    let mut a = start(config(vec![small]));
    let (_, turn) = a.turn().await;
    let report = a.call(&turn, "k", "What?").await.unwrap();
    assert!(report.text.len() < 200 && report.text.contains("4900 more bytes"), "{}", report.text);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_and_nothing_is_sent() {
    let b = stub(|_, _| answer("ok"));
    let urls = UrlRules {
        guard: Guard::new(Rules::default()),
        resolver: Arc::new(SystemResolver::default()),
        settings: Settings::default(),
        limits: CallLimits::default(),
    };
    let url = b.url();
    for (urls, target, expected) in [
        (None, "c", "There is no agent \"c\". The agents that can be called: b."),
        (None, url.as_str(), "URLs cannot be called"),
        (Some(&urls), url.as_str(), "The URL is refused"),
        (Some(&urls), "https://169.254.169.254/", "The URL is refused"),
        (Some(&urls), "https://localhost/", "The URL is refused"),
        (Some(&urls), "file:///etc/passwd", "The URL is refused"),
    ] {
        let mut a = start(longshore_peers::PeersConfig { urls: urls.cloned(), ..config(vec![peer(&b)]) });
        let (_, turn) = a.turn().await;
        let request =
            CallRequest { peer: target.to_owned(), text: "hi".to_owned(), continues: None, wait: LONG };
        let refusal = a.request(&turn, "k", request).await.unwrap_err();
        assert!(refusal.0.contains(expected), "{target}: {refusal:?}");
    }
    assert!(b.requests().is_empty());
}

#[tokio::test]
async fn calls_of_others_and_of_unknown_sessions_are_refused() {
    let b = stub(|_, _| answer("ok"));
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    let report = a.call(&turn, "k", "What?").await.unwrap();
    // A session of another principal.
    let mut other = message("m2");
    other.message.context_id = None;
    a.engine.send(&longshore_model::Principal::new("mallory"), other).await.unwrap();
    let others = a.turns.recv().await.unwrap();
    for handle in [report.handle, CallHandle("call_nothing".to_owned())] {
        let refusal = a.calls.status(&caller(&others), &handle, LONG, progress().0).await.unwrap_err();
        assert!(refusal.0.contains("There is no call"), "{refusal:?}");
    }
    // The gateway waits for a turn of the session. The paused clock skips the wait.
    tokio::time::pause();
    let unknown = ToolCaller::Session { session: SessionId::parse("ses_unknown").unwrap(), tool_call: None };
    assert!(a.calls.discover(&unknown).await.unwrap_err().0.contains("no task"));
}
