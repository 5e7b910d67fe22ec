//! Faults between the gateway and OpenCode.

use longshore_model::{Artifact, ErrorKind};
use longshore_testkit::fake_opencode::{
    Cut, CutKind, Delivery, Fault, Gate, Play, Setup, Tool, Turn as Script,
};

use super::*;
use crate::outages::{at_once, until_down, until_well};

const WORDS: &str = "one two three four five six seven eight nine ten";

const UNKNOWN_PROMPT: &str =
    "failed: It is not known whether OpenCode took the prompt; look at the session before you send it again.";

const UNLISTED: &str = "failed: OpenCode does not show the messages of this session";

#[tokio::test]
async fn a_cut_of_the_stream_at_any_event_loses_nothing() {
    for how in [CutKind::CleanEnd, CutKind::MidLine, CutKind::Reset] {
        for after in [0, 7, 9, 20] {
            for lose in [0, usize::MAX] {
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
    assert_eq!(result(&events), ended("completed", WORDS));
    bench.stop().await;
}

/// As from an OpenCode that crashes right after each start.
#[tokio::test]
async fn a_stream_that_ends_at_once_each_time_is_reopened_less_and_less_often() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, _, turn) =
        bench.start_held(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1), &gate).await;
    let since = std::time::Instant::now();
    for nth in 2..=6 {
        bench.fake.end_streams();
        bench.fake.wait_for_streams(nth).await;
    }
    // Half of 100, 200, 400, 800 and 1,600 ms.
    assert!(since.elapsed() > Duration::from_millis(1_500), "{:?}", since.elapsed());
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "alpha bravo"));
    bench.stop().await;
}

/// Nothing arrives on the connection, and it does not end either.
#[tokio::test]
async fn a_stalled_stream_is_replaced_after_the_configured_silence() {
    let silence = Duration::from_millis(200);
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), |config| {
        config.stream_silence = silence;
    });
    let gate = Gate::new();
    let (_, _, turn) =
        bench.start_held(Script::new().text("alpha ", 1).hold(&gate).text("bravo", 1), &gate).await;
    bench.fake.stall_streams();
    let since = std::time::Instant::now();
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "alpha bravo"));
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    bench.stop().await;
}

#[tokio::test]
async fn a_disposed_instance_cancels_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, _, turn) = bench.start_held(Script::new().text("kept", 1).hold(&gate).silence(), &gate).await;
    gate.open();
    bench.fake.dispose_instance().await;
    assert_eq!(outcome(&all(turn).await), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

#[tokio::test]
async fn a_prompt_whose_response_is_lost_is_looked_up_and_not_sent_again() {
    let cases = [
        (Fault::CutAfter, "completed"),
        (Fault::CutBefore, UNKNOWN_PROMPT),
        (Fault::Status(500), UNKNOWN_PROMPT),
        (Fault::Status(400), "failed: OpenCode refused the prompt (status 400)"),
    ];
    let check = async |(fault, end): (Fault, &str)| {
        let bench = Bench::new();
        bench.fake.queue(Script::new().text(WORDS, 3));
        bench.fake.fault_once("POST", "/prompt_async", fault.clone());
        let events = bench.run("go").await;
        assert!(outcome(&events).starts_with(end), "{fault:?}: {}", outcome(&events));
        // The fake logs the prompts that it accepted, so a second one would show.
        let expected = usize::from(matches!(fault, Fault::CutAfter));
        assert_eq!(bench.fake.prompts().len(), expected, "{fault:?}");
        bench.stop().await;
    };
    futures_util::future::join_all(cases.into_iter().map(check)).await;
}

#[tokio::test]
async fn a_prompt_without_a_response_in_time_is_looked_up() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_millis(500));
    bench.fake.queue(Script::new().text(WORDS, 3));
    bench.fake.fault_once("POST", "/prompt_async", Fault::Hang);
    let events = bench.run("go").await;
    assert_eq!(outcome(&events), UNKNOWN_PROMPT);
    assert_eq!(bench.fake.prompts().len(), 0, "never a second prompt");
    assert!(bench.fake.log().iter().any(|request| request.path.ends_with("/message")), "no lookup");
    bench.stop().await;
}

/// Pitfall 15: after a prompt for JSON OpenCode can never list the messages of the session again.
#[tokio::test]
async fn an_unavailable_message_list_does_not_block_the_turn() {
    let cuts = [
        // The stream is complete.
        (None, "completed", Some(WORDS)),
        // The end of the text brings what was lost in the gap.
        (Some(Cut { after: 9, how: CutKind::Reset, lose: 0 }), "completed", Some(WORDS)),
        // The end of the turn was lost in the gap.
        (Some(Cut { after: 9, how: CutKind::Reset, lose: usize::MAX }), UNLISTED, None),
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

/// The same after a restart of the gateway: the stream does not bring past events.
#[tokio::test]
async fn a_resumed_turn_with_an_unavailable_message_list_ends() {
    let bench = Bench::new();
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    all(turn).await;
    bench.fake.fault_always("GET", "/message", Fault::Status(400));
    let turn = bench.resume(&session, &prompt, Resume::default()).await;
    let events = all(turn).await;
    assert!(outcome(&events).starts_with(UNLISTED), "{}", outcome(&events));
    bench.stop().await;
}

#[tokio::test]
async fn errors_before_the_prompt_say_what_is_wrong() {
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
        // The event stream is opened before anything else, so its fault shows before there is a session.
        let session = if path == "/event" { None } else { Some(bench.used_session().await) };
        bench.fake.fault_always(method, path, fault);
        let error = match session {
            Some(session) => bench.start(&session, "go").await.unwrap_err(),
            None => bench.agent.open_session(root(&bench)).await.unwrap_err(),
        };
        assert_eq!(error.kind(), kind, "{method} {path}: {error}");
        assert!(error.message().contains(text), "{method} {path}: {error}");
        assert!(!error.message().contains("127.0.0.1"), "{error}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn an_opencode_that_is_down_is_unavailable_and_is_found_once_it_is_back() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_millis(800));
    let session = bench.session().await;
    bench.fake.kill().await;
    let error = bench.start(&session, "go").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentUnavailable);
    assert_eq!(bench.agent.open_session(root(&bench)).await.unwrap_err().kind(), ErrorKind::AgentUnavailable);
    bench.fake.restart();
    until_well(&bench).await;
    bench.fake.queue(Script::new().text(WORDS, 3));
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    assert_eq!(text_of(&all(turn).await), WORDS);
    bench.stop().await;
}

/// The engine tells the caller why a task waits, and waits for the return of OpenCode itself.
#[tokio::test]
async fn a_session_and_a_turn_are_refused_at_once_while_opencode_is_known_to_be_down() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(30));
    let session = bench.session().await;
    bench.fake.kill().await;
    until_down(&bench).await;
    let refused = at_once("the session", bench.agent.open_session(root(&bench))).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.message()),
        (ErrorKind::AgentUnavailable, "OpenCode cannot be reached.")
    );
    let refused = at_once("the turn", bench.start(&session, "go")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AgentUnavailable);
    let back = bench.agent.until_back();
    bench.fake.restart();
    at_once("the return", back).await;
    bench.agent.open_session(root(&bench)).await.expect("a session");
    bench.stop().await;
}

#[tokio::test]
async fn the_password_is_sent_and_a_wrong_one_is_reported() {
    let setup = Setup { password: Some(("opencode".to_owned(), "secret".to_owned())), ..Setup::default() };
    let bench = Bench::on(FakeOpenCode::start_with(setup.clone()), Some("secret"), Duration::from_secs(5));
    bench.fake.queue(Script::new().text(WORDS, 3));
    assert_eq!(text_of(&bench.run("go").await), WORDS);
    bench.stop().await;
    let bench = Bench::on(FakeOpenCode::start_with(setup), Some("wrong"), Duration::from_secs(5));
    let error = bench.agent.open_session(root(&bench)).await.unwrap_err();
    assert!(error.message().contains("user name or password"), "{error}");
    assert!(!error.message().contains("wrong") && !format!("{:?}", bench.agent).contains("wrong"));
    bench.stop().await;
}

#[tokio::test]
async fn a_finished_turn_is_resumed_without_a_prompt() {
    for play in ["text_async", "tool_bash_slow", "cut_rst_partial"] {
        let bench = Bench::new();
        bench.fake.play(&Play::new(play));
        let session = bench.session().await;
        let (prompt, turn) = bench.start(&session, "go").await.unwrap();
        let whole = all(turn).await;
        // The log holds only the first text.
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
        let turn = bench.resume(&session, &prompt, Resume { artifacts, ..Resume::default() }).await;
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
async fn a_running_turn_is_resumed_without_a_prompt() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, prompt, turn) =
        bench.start_held(Script::new().text("before ", 2).hold(&gate).text("after", 2), &gate).await;
    drop(turn);
    let mut turn = bench.resume(&session, &prompt, Resume::default()).await;
    let first = next(&mut turn).await.unwrap();
    gate.open();
    let mut events = vec![first];
    events.extend(all(turn).await);
    assert_eq!(result(&events), ended("completed", "before after"));
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_deleted_session_is_reported_before_the_prompt() {
    let bench = Bench::new();
    let session = bench.session().await;
    bench.fake.forget_session(session.id.as_str());
    let error = bench.start(&session, "go").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionGone, "{error}");
    bench.stop().await;
}

#[tokio::test]
async fn a_404_of_a_proxy_does_not_end_a_resumed_turn() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text(WORDS, 3));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    all(turn).await;
    for path in ["/session/status", "/message"] {
        bench.fake.fault_once("GET", path, Fault::Status(404));
        let turn = bench.resume(&session, &prompt, Resume::default()).await;
        assert_eq!(result(&all(turn).await), ended("completed", WORDS), "{path}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_resumed_turn_fails_if_its_session_was_deleted() {
    let bench = Bench::new();
    let session = bench.session().await;
    bench.fake.forget_session(session.id.as_str());
    let prompt = new_prompt();
    let turn = bench.resume(&session, &prompt, Resume::default()).await;
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("failed: OpenCode no longer knows this session. Start a new context."), "{end}");
    assert!(end.ends_with("may be missing."), "the text before the restart is unknown: {end}");
    bench.stop().await;
}
