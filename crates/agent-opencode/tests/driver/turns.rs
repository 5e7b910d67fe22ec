//! Turns without faults, and how each ends.

use longshore_model::{ErrorKind, ToolStatus};
use longshore_testkit::fake_opencode::{Gate, Play, Tool, Turn as Script};
use serde_json::json;

use super::*;

#[tokio::test]
async fn recordings_end_as_the_real_turns_did() {
    let cases = [
        ("text_async", "completed", "alpha b bravo c charlie delta e echo fo foxtrot "),
        ("reasoning", "completed", ""),
        ("cut_rst_partial", "completed", "recovered after failure"),
        (
            "finish_length",
            "completed: The reply was cut at the model's length limit.",
            "alpha b bravo c charlie ",
        ),
        ("bad_json", "failed: OpenCode could not complete the turn: JSON parsing failed", "alpha b bravo c "),
        ("error_500_gives_up", "failed: The model's provider failed (status 500)", ""),
        ("context_overflow", "completed", "echo: The previous request exceeded"),
        ("task", "completed", ""),
    ];
    for (name, end, text) in cases {
        let bench = Bench::new();
        bench.fake.play(&Play::new(name));
        let events = bench.run("go").await;
        assert!(outcome(&events).starts_with(end), "{name}: {}", outcome(&events));
        assert!(text_of(&events).contains(text), "{name}: {:?}", text_of(&events));
        assert_eq!(bench.fake.prompts().len(), 1, "{name}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn the_stream_is_attached_before_the_prompt_and_carries_the_directory() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("hello", 2));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    assert_eq!(text_of(&all(turn).await), "hello");
    let log = bench.fake.log();
    let position = |end: &str| log.iter().position(|request| request.path.ends_with(end)).unwrap();
    assert!(position("/event") < position("/prompt_async"), "{log:?}");
    let sent = &bench.fake.prompts()[0];
    assert_eq!(sent.body["messageID"], message_of(&bench, &prompt));
    assert_eq!(sent.body["parts"], json!([{"type": "text", "text": "go"}]));
    for request in &log {
        let directory =
            request.query.iter().any(|(name, value)| name == "directory" && value == &session.directory);
        assert!(directory, "{request:?}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn turns_of_many_sessions_share_one_stream() {
    let bench = Bench::new();
    for _ in 0..8 {
        bench.fake.queue(Script::new().text("abc def", 7));
    }
    for _ in 0..4 {
        let (one, two) = tokio::join!(bench.run("a"), bench.run("b"));
        assert_eq!((text_of(&one), text_of(&two)), ("abc def".to_owned(), "abc def".to_owned()));
    }
    let streams = bench.fake.log().iter().filter(|request| request.path.ends_with("/event")).count();
    assert_eq!(streams, 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_tool_call_is_reported_with_its_input_and_output() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().tool(Tool::bash("ls", "README.md\n")).text("One file.", 1));
    let events = bench.run("go").await;
    let last = events.iter().rev().find_map(|event| match event {
        AgentEvent::Tool { call, .. } => Some(call.clone()),
        _ => None,
    });
    let call = last.expect("a tool call");
    assert_eq!(
        (call.tool.as_str(), call.status, call.output.as_deref()),
        ("bash", ToolStatus::Completed, Some("README.md\n"))
    );
    assert!(call.input.unwrap().get().contains("\"command\":\"ls\""));
    assert_eq!(outcome(&events), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn an_abort_by_the_gateway_and_one_by_another_client_cancel_the_turn() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("abort_stream").only_prompts(&[0]));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    bench.agent.cancel(&session).await.unwrap();
    assert_eq!(outcome(&all(turn).await), "canceled: The turn was stopped.");
    bench.stop().await;

    let bench = Bench::new();
    bench.fake.play(&Play::new("abort_stream").only_prompts(&[0]).foreign_aborts());
    assert_eq!(outcome(&bench.run("go").await), "canceled: The turn was stopped at OpenCode itself.");
    bench.stop().await;
}

#[tokio::test]
async fn a_prompt_that_fails_before_the_run_ends_the_turn() {
    let bench = Bench::new();
    bench.fake.play(&Play::new("error_model_not_found").only_prompts(&[2]));
    let events = bench.run("go").await;
    assert!(outcome(&events).contains("Agent not found: \"nope\""), "{}", outcome(&events));
    assert!(
        events[..events.len() - 1].iter().all(|event| matches!(event, AgentEvent::Session(_))),
        "{events:?}"
    );
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_waits_for_a_busy_session_and_is_then_refused() {
    let bench = Bench::on(FakeOpenCode::start(), None, Duration::from_secs(2));
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("first", 1).hold(&gate));
    bench.fake.queue(Script::new().text("second", 1));
    let session = bench.session().await;
    let (_, first) = bench.start(&session, "one").await.unwrap();
    gate.reached().await;
    let refused = bench.start(&session, "two").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    assert_eq!(bench.fake.prompts().len(), 1, "a busy session is not prompted");
    drop(first);
    let second = tokio::join!(bench.start(&session, "two"), async {
        bench.fake.wait_for_request("GET", "/session/status", 2).await;
        gate.open();
    });
    let (_, turn) = second.0.unwrap();
    assert_eq!(text_of(&all(turn).await), "second");
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_without_a_receiver_ends_its_driver_and_not_the_agent() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, _, turn) = bench.start_held(Script::new().text("abc", 3).hold(&gate).text("def", 3), &gate).await;
    drop(turn);
    // The reader, the watch for outages and the keeper of directories stay; the driver ends.
    tokio::time::timeout(PATIENCE, async {
        while bench.tasks.running() > 3 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the driver ends");
    gate.open();
    bench.fake.wait_until_idle().await;
    assert!(!bench.fake.log().iter().any(|request| request.path.ends_with("/abort")));
    bench.stop().await;
}

#[tokio::test]
async fn a_runaway_is_aborted_and_fails() {
    let bench = Bench::new();
    let session = bench.session().await;
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("abc", 1).hold(&gate));
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    for nth in 0..5 {
        let info = json!({"id": format!("msg_z{nth}"), "sessionID": session.id.as_str(), "role": "assistant",
            "parentID": message_of(&bench, &prompt), "finish": "unknown", "time": {"created": 4_000_000_000_000_u64 + nth, "completed": 1}});
        bench.fake.emit("message.updated", json!({"sessionID": session.id.as_str(), "info": info})).await;
    }
    bench.fake.wait_for_request("POST", "/abort", 1).await;
    gate.open();
    let end = outcome(&all(turn).await);
    assert!(
        end.starts_with("failed: The model's replies ended without a finish reason again and again"),
        "{end}"
    );
    bench.stop().await;
}
