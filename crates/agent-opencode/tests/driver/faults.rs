//! What breaks between the gateway and OpenCode.

use longshore_model::{Artifact, ErrorKind};
use longshore_testkit::fake_opencode::{
    Cut, CutKind, Delivery, Fault, Gate, Play, Setup, Tool, Turn as Script,
};

use super::*;

const WORDS: &str = "one two three four five six seven eight nine ten";

const DOUBTFUL_PROMPT: &str =
    "failed: It is not known whether OpenCode took the prompt; look at the session before you send it again.";

const UNSHOWN: &str = "failed: OpenCode does not show the messages of this session";

#[tokio::test]
async fn a_cut_of_the_stream_at_any_event_loses_nothing() {
    for how in [CutKind::CleanEnd, CutKind::MidLine, CutKind::Reset] {
        for after in [0, 3, 7, 9, 12, 20, 25] {
            for lose in [0, 3, usize::MAX] {
                let bench = Bench::new();
                let script = Script::new().reasoning("thinking", 2).tool(Tool::bash("ls", "a\nb\n"));
                bench.fake.queue(script.text(WORDS, 10));
                let session = bench.session().await;
                bench.fake.cut_events(Cut { after, how, lose });
                let Ok((_, turn)) = bench.start(&session, "go").await else {
                    panic!("{how:?} after {after}, {lose} lost: the turn does not start");
                };
                let events = all(turn).await;
                let what = format!("{how:?} after {after}, {lose} lost");
                assert_eq!(outcome(&events), "completed", "{what}");
                assert_eq!(text_of(&events), format!("thinking{WORDS}"), "{what}");
                assert_eq!(bench.fake.prompts().len(), 1, "{what}");
                bench.stop().await;
            }
        }
    }
}

#[tokio::test]
async fn garbage_in_the_stream_is_skipped() {
    let bench = Bench::new();
    bench.fake.deliver(Delivery::WithGarbage);
    bench.fake.queue(Script::new().text(WORDS, 10));
    let events = bench.run("go").await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", WORDS));
    bench.stop().await;
}

/// As from an OpenCode that crashes right after each start.
#[tokio::test]
async fn a_stream_that_ends_at_once_each_time_is_opened_less_and_less_often() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let since = std::time::Instant::now();
    for nth in 2..=6 {
        bench.fake.end_streams();
        bench.fake.streams_opened(nth).await;
    }
    // A half of 100, 200, 400, 800 and 1,600 ms.
    assert!(since.elapsed() > Duration::from_millis(1_500), "{:?}", since.elapsed());
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "alpha bravo"));
    bench.stop().await;
}

/// Nothing comes on the connection, and it does not end either.
#[tokio::test]
async fn a_stream_that_stalls_is_made_anew_after_the_silence_that_was_set() {
    let silence = Duration::from_millis(200);
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), |config| {
        config.stream_silence = silence;
    });
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    bench.fake.stall_streams();
    let since = std::time::Instant::now();
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "alpha bravo"));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    bench.stop().await;
}

#[tokio::test]
async fn a_kill_in_mid_turn_fails_it_and_keeps_the_text() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("kept", 1).hold(&gate).text("never", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    bench.fake.kill().await;
    bench.fake.come_back();
    let events = all(turn).await;
    assert!(
        outcome(&events).starts_with("failed: OpenCode stopped in the middle of the turn"),
        "{}",
        outcome(&events)
    );
    assert_eq!(text_of(&events), "kept");
    assert_eq!(bench.fake.prompts().len(), 1, "never a second prompt");
    bench.stop().await;
}

#[tokio::test]
async fn a_disposed_instance_cancels_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("kept", 1).hold(&gate).silence());
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    gate.open();
    bench.fake.dispose_instance().await;
    assert_eq!(outcome(&all(turn).await), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

#[tokio::test]
async fn a_prompt_whose_answer_is_lost_is_looked_up_and_not_sent_again() {
    let cases = [
        (Fault::CutAfter, "completed"),
        (Fault::CutBefore, DOUBTFUL_PROMPT),
        (Fault::Status(500), DOUBTFUL_PROMPT),
        (Fault::Status(400), "failed: OpenCode refused the prompt (status 400)"),
    ];
    let check = async |(fault, end): (Fault, &str)| {
        let bench = Bench::new();
        bench.fake.queue(Script::new().text(WORDS, 3));
        bench.fake.fault_once("POST", "/prompt_async", fault.clone());
        let events = bench.run("go").await;
        assert!(outcome(&events).starts_with(end), "{fault:?}: {}", outcome(&events));
        // The fake logs the prompts that it took. A second one would have been.
        let expected = usize::from(matches!(fault, Fault::CutAfter));
        assert_eq!(bench.fake.prompts().len(), expected, "{fault:?}");
        bench.stop().await;
    };
    futures_util::future::join_all(cases.into_iter().map(check)).await;
}

#[tokio::test]
async fn a_prompt_that_is_not_answered_in_time_is_looked_up() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_millis(500));
    bench.fake.queue(Script::new().text(WORDS, 3));
    bench.fake.fault_once("POST", "/prompt_async", Fault::Hang);
    let events = bench.run("go").await;
    assert_eq!(outcome(&events), DOUBTFUL_PROMPT);
    assert_eq!(bench.fake.prompts().len(), 0, "never a second prompt");
    assert!(bench.fake.log().iter().any(|request| request.path.ends_with("/message")), "it was looked up");
    bench.stop().await;
}

/// Pitfall 15: after a prompt for JSON OpenCode refuses the message list of the session for good.
#[tokio::test]
async fn a_message_list_that_is_refused_for_good_does_not_hold_up_the_turn() {
    let cuts = [
        // Nothing is missing from the stream, so nothing is missing.
        (None, "completed", Some(WORDS)),
        // The end of the text brings what the gap took.
        (Some(Cut { after: 9, how: CutKind::Reset, lose: 0 }), "completed", Some(WORDS)),
        // The gap took the end of the turn.
        (Some(Cut { after: 9, how: CutKind::Reset, lose: usize::MAX }), UNSHOWN, None),
    ];
    let check = async |(cut, end, text): (Option<Cut>, &str, Option<&str>)| {
        let bench = Bench::new();
        bench.fake.fault_always("GET", "/message", Fault::Status(400));
        bench.fake.queue(Script::new().text(WORDS, 10));
        let session = bench.session().await;
        if let Some(cut) = cut {
            bench.fake.cut_events(cut);
        }
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        assert!(outcome(&events).starts_with(end), "{cut:?}: {}", outcome(&events));
        if let Some(text) = text {
            assert_eq!(text_of(&events), text, "{cut:?}");
        }
        bench.stop().await;
    };
    futures_util::future::join_all(cuts.into_iter().map(check)).await;
}

/// The same when the gateway was restarted: the stream does not tell of the past.
#[tokio::test]
async fn a_turn_whose_messages_are_refused_for_good_ends_when_it_is_taken_up_again() {
    let bench = Bench::new();
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    all(turn).await;
    bench.fake.fault_always("GET", "/message", Fault::Status(400));
    let resume = Some(Resume::default());
    let turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
    let events = all(turn).await;
    assert!(outcome(&events).starts_with(UNSHOWN), "{}", outcome(&events));
    bench.stop().await;
}

#[tokio::test]
async fn refusals_before_the_prompt_say_what_is_wrong() {
    let cases = [
        ("GET", "/event", Fault::Status(401), ErrorKind::AgentUnavailable, "user name or password"),
        ("GET", "/event", Fault::Html, ErrorKind::InvalidAgentResponse, "does not answer like OpenCode"),
        (
            "GET",
            "/session/status",
            Fault::Html,
            ErrorKind::InvalidAgentResponse,
            "does not answer like OpenCode",
        ),
        (
            "GET",
            "/session/status",
            Fault::Body("{\"a\""),
            ErrorKind::InvalidAgentResponse,
            "does not answer like",
        ),
        ("GET", "/session/status", Fault::CutBefore, ErrorKind::AgentUnavailable, "cannot be reached"),
        // A 404 that is not OpenCode's own says nothing about the session.
        ("GET", "/event", Fault::Status(404), ErrorKind::InvalidAgentResponse, "(status 404)"),
        ("GET", "/session/status", Fault::Status(404), ErrorKind::InvalidAgentResponse, "(status 404)"),
        ("POST", "/prompt_async", Fault::Status(404), ErrorKind::InvalidAgentResponse, "(status 404)"),
        (
            "POST",
            "/prompt_async",
            Fault::Html,
            ErrorKind::InvalidAgentResponse,
            "does not answer like OpenCode",
        ),
    ];
    for (method, path, fault, kind, text) in cases {
        let bench = Bench::new();
        // The event stream is attached before anything else, so its fault shows before there is a session.
        let session = if path == "/event" { None } else { Some(bench.used_session().await) };
        bench.fake.fault_always(method, path, fault);
        let error = match session {
            Some(session) => bench.start(&session, "go").await.unwrap_err(),
            None => bench.agent.open_session(anywhere(&bench)).await.unwrap_err(),
        };
        assert_eq!(error.kind(), kind, "{method} {path}: {error}");
        assert!(error.message().contains(text), "{method} {path}: {error}");
        assert!(!error.message().contains("127.0.0.1"), "{error}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_opencode_that_is_away_is_unavailable_and_found_again() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_millis(800));
    let session = bench.session().await;
    bench.fake.kill().await;
    let error = bench.start(&session, "go").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentUnavailable);
    assert_eq!(
        bench.agent.open_session(anywhere(&bench)).await.unwrap_err().kind(),
        ErrorKind::AgentUnavailable
    );
    bench.fake.come_back();
    bench.fake.queue(Script::new().text(WORDS, 3));
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    assert_eq!(text_of(&all(turn).await), WORDS);
    bench.stop().await;
}

/// Somebody begins a context while OpenCode is started again: nothing else keeps the reader of its directory alive.
#[tokio::test]
async fn a_session_is_opened_when_opencode_comes_back() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(30));
    bench.session().await;
    bench.fake.kill().await;
    let mut opening = bench.agent.open_session(anywhere(&bench));
    // Several attempts to connect fail before it is back.
    let waiting = tokio::time::timeout(Duration::from_millis(500), &mut opening).await;
    assert!(waiting.is_err(), "it is given up at once: {waiting:?}");
    bench.fake.come_back();
    opening.await.expect("a session");
    bench.stop().await;
}

#[tokio::test]
async fn the_password_is_sent_and_a_wrong_one_is_told() {
    let setup = Setup { password: Some(("opencode".to_owned(), "secret".to_owned())), ..Setup::default() };
    let bench = Bench::on(FakeOpenCode::start_with(setup.clone()), Some("secret"), Duration::from_secs(5));
    bench.fake.queue(Script::new().text(WORDS, 3));
    assert_eq!(text_of(&bench.run("go").await), WORDS);
    bench.stop().await;
    let bench = Bench::on(FakeOpenCode::start_with(setup), Some("wrong"), Duration::from_secs(5));
    let error = bench.agent.open_session(anywhere(&bench)).await.unwrap_err();
    assert!(error.message().contains("user name or password"), "{error}");
    assert!(!error.message().contains("wrong") && !format!("{:?}", bench.agent).contains("wrong"));
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_is_taken_up_again_without_a_prompt() {
    for play in ["text_async", "tool_bash_slow", "cut_rst_partial"] {
        let bench = Bench::new();
        bench.fake.play(&Play::new(play));
        let session = bench.session().await;
        let (prompt, turn) = bench.start(&session, "go").await.unwrap();
        let whole = all(turn).await;
        // The log holds the first text only.
        let first = whole.iter().find_map(|event| match event {
            AgentEvent::Text { block, text } => Some(Artifact {
                id: block.id.clone(),
                kind: block.kind,
                source_message: block.message.clone(),
                name: Some(block.kind.as_str().to_owned()),
                description: None,
                parts: vec![longshore_model::Part::text(text)],
                extensions: Vec::new(),
                metadata: None,
            }),
            _ => None,
        });
        let artifacts: Vec<Artifact> = first.into_iter().collect();
        let known: String = artifacts.iter().filter_map(|artifact| artifact.parts[0].as_text()).collect();
        let resume = Some(Resume { artifacts, ..Resume::default() });
        let turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
        let rest = all(turn).await;
        assert_eq!(outcome(&rest), "completed", "{play}");
        let text =
            if play == "cut_rst_partial" { text_of(&rest) } else { format!("{known}{}", text_of(&rest)) };
        assert_eq!(text, text_of(&whole), "{play}");
        assert_eq!(bench.fake.prompts().len(), 1, "{play}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_turn_is_taken_up_again_while_it_runs() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("before ", 2).hold(&gate).text("after", 2));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    drop(turn);
    let resume = Some(Resume::default());
    let mut turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
    let first = next(&mut turn).await.unwrap();
    gate.open();
    let mut events = vec![first];
    events.extend(all(turn).await);
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "before after"));
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_session_that_is_gone_is_told_before_the_prompt() {
    let bench = Bench::new();
    let session = bench.session().await;
    bench.fake.forget_session(session.id.as_str());
    let error = bench.start(&session, "go").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionGone, "{error}");
    bench.stop().await;
}

#[tokio::test]
async fn a_404_of_a_proxy_does_not_end_a_turn_that_is_taken_up_again() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text(WORDS, 3));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    all(turn).await;
    for path in ["/session/status", "/message"] {
        bench.fake.fault_once("GET", path, Fault::Status(404));
        let resume = Some(Resume::default());
        let turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
        let events = all(turn).await;
        assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", WORDS), "{path}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_session_that_is_gone_fails_a_turn_that_is_taken_up_again() {
    let bench = Bench::new();
    let session = bench.session().await;
    bench.fake.forget_session(session.id.as_str());
    let prompt = bench.agent.new_prompt();
    let turn =
        bench.agent.start_turn(request(&session, &prompt, "go", Some(Resume::default()))).await.unwrap();
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("failed: OpenCode no longer knows this session. Start a new context."), "{end}");
    assert!(end.ends_with("may be missing."), "what was said before the restart is not known: {end}");
    bench.stop().await;
}
