//! How often OpenCode is called, and how many calls may run at once.

use futures_util::FutureExt as _;
use longshore_engine::port::{Admission, with_caller_trace};
use longshore_model::{ErrorKind, TraceContext};
use longshore_testkit::fake_opencode::{Fault, Gate, Tool, Turn as Script};

use super::*;

/// The calls so far, without the session id.
fn calls(bench: &Bench) -> Vec<String> {
    let log = bench.fake.log();
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    log.iter().map(|request| format!("{} {}", request.method, last(&request.path))).collect()
}

/// The event stream is opened once for all turns of a directory. A session that no client can have used is not checked; a used
/// session is, because an orphaned turn or another client's turn may run there.
#[tokio::test]
async fn a_turn_calls_opencode_no_more_often_than_it_must() {
    let bench = Bench::new();
    let session = bench.session().await;
    let first = ["GET event", "POST session", "POST prompt_async"];
    let second = ["GET status", "POST prompt_async"];
    for expected in [first.to_vec(), [first.as_slice(), &second].concat()] {
        bench.fake.queue(Script::new().text("some words", 3));
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        assert_eq!(outcome(&all(turn).await), "completed");
        assert_eq!(calls(&bench), expected);
    }
    bench.stop().await;
}

/// Each turn gets a response that was requested after the turn began.
#[tokio::test]
async fn turns_that_begin_at_once_share_the_request_for_busy_sessions() {
    const TURNS: usize = 20;
    let bench = Bench::new();
    bench.session().await;
    let mut sessions = Vec::new();
    for number in 0..TURNS {
        let id = SessionId::parse(&format!("ses_{number}")).unwrap();
        bench.fake.add_session(id.as_str(), bench.fake.directory());
        bench.fake.queue(Script::new().text("some words", 1));
        sessions.push(Session { id, directory: bench.fake.directory().to_owned() });
    }
    bench.fake.fault_always("GET", "/session/status", Fault::Delay(Duration::from_millis(200)));
    let turns = sessions.iter().map(|session| async {
        let (_, turn) = bench.start(session, "go").await.unwrap();
        assert_eq!(outcome(&all(turn).await), "completed");
    });
    futures_util::future::join_all(turns).await;
    let checks = calls(&bench).iter().filter(|call| *call == "GET status").count();
    assert!((1..=TURNS / 4).contains(&checks), "{checks} requests for {TURNS} turns");
    assert_eq!(bench.fake.prompts().len(), TURNS);
    bench.stop().await;
}

/// All request slots are taken by calls that get no response.
#[tokio::test]
async fn when_all_slots_are_taken_only_requests_without_a_reserved_slot_are_refused() {
    let limited = |config: &mut OpenCodeConfig| config.upstream_calls = 1;
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), limited);
    let gate = Gate::new();
    let session = bench.session().await;
    bench.fake.queue(Script::new().text("some", 1).hold(&gate).text("words", 1));
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;

    bench.fake.fault_always("GET", "/session/ses_slow", Fault::Hang);
    bench.fake.add_session("ses_other", bench.fake.directory());
    let (slow, other) = (SessionId::parse("ses_slow").unwrap(), SessionId::parse("ses_other").unwrap());
    let mut taken = bench.agent.find_session(&slow);
    assert!((&mut taken).now_or_never().is_none(), "the call takes the slot and waits for a response");
    let refused = bench.agent.find_session(&other).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UpstreamBackpressure);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
    assert!(!calls(&bench).iter().any(|call| call == "GET ses_other"));

    // A request that begins a turn waits, and a request that is dropped gives its slot back.
    let (begun, ()) = tokio::join!(bench.agent.open_session(root(&bench)), async {
        bench.agent.cancel(&session).await.unwrap();
        bench.agent.check().await.unwrap();
        drop(taken);
    });
    begun.unwrap();
    assert!(bench.agent.find_session(&other).await.unwrap().is_some());
    gate.open();
    all(turn).await;
    bench.stop().await;
}

/// Another request takes the only slot between the check of the session and the prompt, and another client prompts meanwhile.
#[tokio::test]
async fn an_idle_session_is_checked_again_if_its_turn_had_to_wait() {
    let limited = |config: &mut OpenCodeConfig| config.upstream_calls = 1;
    let bench = Bench::with(FakeOpenCode::start(), None, PATIENCE, limited);
    let session = bench.used_session().await;
    let (check, other) = (Gate::new(), Gate::new());
    bench.fake.fault_once("GET", "/session/status", Fault::Hold(check.clone()));
    bench.fake.fault_once("POST", "/session", Fault::Hold(other.clone()));
    bench.fake.queue(Script::new().text("some words", 1));
    let status = |kind: &str| serde_json::json!({"sessionID": session.id.as_str(), "status": {"type": kind}});
    let (begun, others, ()) = tokio::join!(
        bench.start(&session, "go"),
        async {
            check.reached().await;
            bench.agent.open_session(root(&bench)).await
        },
        async {
            check.reached().await;
            // By now the other request waits.
            tokio::task::yield_now().await;
            check.open();
            other.reached().await;
            bench.fake.emit("session.status", status("busy")).await;
            other.open();
            bench.fake.wait_for_request("GET", "/session/status", 2).await;
            assert_eq!(bench.fake.prompts(), []);
            bench.fake.emit("session.status", status("idle")).await;
            bench.fake.emit("session.idle", serde_json::json!({"sessionID": session.id.as_str()})).await;
        }
    );
    others.unwrap();
    let (_, turn) = begun.unwrap();
    assert_eq!(outcome(&all(turn).await), "completed");
    let prompts = bench.fake.prompts();
    assert_eq!((prompts.len(), prompts[0].while_busy), (1, false));
    bench.stop().await;
}

/// Except for the event stream, which all requests share.
#[tokio::test]
async fn every_call_for_a_request_names_its_trace() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let bench = Bench::new();
    bench.fake.queue(Script::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1).silence());
    let trace = TraceContext::parse(PARENT);
    let options = PromptOptions {
        model: longshore_model::ModelName::parse("scripted/scripted"),
        agent: Some("build".to_owned()),
        ..PromptOptions::default()
    };
    let admission = Admission { directory: None, workspace: None, current: None, options: &options };
    let used = bench.used_session().await;
    let before = bench.fake.log().len();
    let calls = with_caller_trace(trace.clone(), async {
        bench.agent.admit(admission).await.unwrap();
        bench.agent.find_session(&used.id).await.unwrap().unwrap();
        assert!(!bench.agent.is_busy(&used).await.unwrap());
        let session = bench.session().await;
        let prompt = new_prompt();
        let turn = TurnRequest { trace: trace.clone(), ..request(&session, &prompt, "go", None) };
        let mut turn = bench.agent.start_turn(turn).await.unwrap();
        let ask = asked(&mut turn).await;
        bench.agent.reply(&session, &ask, &once()).await.unwrap();
        bench.agent.cancel(&session).await.unwrap();
        all(turn).await
    });
    calls.await;
    let log = bench.fake.log().split_off(before);
    for path in
        ["/config/providers", "/agent", "/ses_used", "/status", "/session", "/reply", "/abort", "/permission"]
    {
        assert!(log.iter().any(|call| call.path.ends_with(path)), "no {path} in {log:#?}");
    }
    for call in log.iter().filter(|call| call.path != "/event") {
        assert_eq!(call.traceparent.as_deref(), Some(PARENT), "{} {}", call.method, call.path);
    }
    bench.stop().await;
}

#[tokio::test]
async fn calls_and_events_are_counted() {
    let metrics = Arc::new(longshore_meter::Metrics::new("test"));
    let counted = |config: &mut OpenCodeConfig| config.metrics = Arc::clone(&metrics);
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), counted);
    let gate = Gate::new();
    let (_, _, turn) =
        bench.start_held(Script::new().text("some words", 3).hold(&gate).text("more", 1), &gate).await;
    bench.fake.emit("message.part.delta", serde_json::json!({"sessionID": "ses_x"})).await;
    bench.fake.end_streams();
    bench.fake.wait_for_streams(2).await;
    gate.open();
    assert_eq!(outcome(&all(turn).await), "completed");
    bench.stop().await;
    let mut page = String::new();
    metrics.render(&mut page);
    let sample = |name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a number")
    };
    assert_eq!(sample(r#"opencode_request_seconds_count{call="prompt"}"#), 1);
    assert_eq!(sample(r#"opencode_request_seconds_count{call="create_session"}"#), 1);
    assert_eq!(sample(r#"opencode_request_seconds_count{call="events"}"#), 2);
    assert!(sample(r#"opencode_events_total{fate="routed"}"#) >= 10, "{page}");
    assert!(sample(r#"opencode_events_total{fate="foreign"}"#) >= 2, "{page}");
    assert_eq!(sample("opencode_event_queue_depth"), 0);
    assert_eq!(sample("opencode_stream_retries_total"), 1);
}

#[tokio::test]
async fn a_warm_up_turn_that_takes_too_long_is_aborted_and_its_session_deleted() {
    let bench = Bench::on(FakeOpenCode::start(), None, PATIENCE);
    let gate = Gate::new();
    bench.fake.queue(Script::new().hold(&gate));
    let mut warming_up = Box::pin(bench.agent.warm_up(Some("hello")));
    tokio::select! {
        () = warming_up.as_mut() => panic!("the turn is held"),
        () = gate.reached() => {}
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    warming_up.await;
    let log = bench.fake.log();
    let calls: Vec<_> = log.iter().rev().map(|call| (call.method.as_str(), call.path.as_str())).collect();
    assert!(calls[0].0 == "DELETE" && calls[1].1.ends_with("/abort"), "{calls:?}");
    assert_eq!(bench.fake.sessions(), [""; 0]);
    bench.stop().await;
}
