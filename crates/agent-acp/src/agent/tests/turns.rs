//! Tests of turns: their events, asks, cancels and ends.

use super::*;
use longshore_engine::port::Resume;
use longshore_model::{Artifact, ArtifactId, BlockKind, Part, RequestId, Resolution};

#[tokio::test]
async fn a_turn_from_prompt_to_end_and_another_in_the_same_session() {
    let mut stage = stage(1);
    let session = stage.begin(loads(), "s").await;
    for text in ["one", "two"] {
        assert!(!stage.agent.is_busy(&session).await.unwrap());
        let (mut turn, prompt) = stage.prompt(&session, text).await;
        assert_eq!(prompt["params"], json!({"sessionId": "s", "prompt": [{"type": "text", "text": text}]}));
        assert!(stage.agent.is_busy(&session).await.unwrap());
        assert!(turn.steering.is_none(), "a message cannot join a turn of this agent");
        stage.peers[0].text("s", "hello").await;
        stage.peers[0].end(&prompt, "end_turn").await;
        assert_eq!(rest(&mut turn).await, ("hello".to_owned(), completed()));
    }
}

#[tokio::test]
async fn a_prompt_that_could_not_be_sent_is_not_marked() {
    let mut stage = stage(1);
    let session = stage.begin(loads(), "s").await;
    let lease = stage.agent.host.lease().await.unwrap();
    let _other = lease.connection().prompt("s", &[json!({})]).unwrap();
    let request = request(&session, "hi");
    let prompting = request.prompting.clone();
    let refused = stage.agent.start_turn(request).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    assert!(!prompting.has_begun());
}

#[tokio::test]
async fn an_ask_is_answered_once_and_the_agent_gets_its_own_option() {
    for (reply, option) in [(PermissionReply::Once, "y"), (PermissionReply::Reject, "cancel")] {
        let mut stage = stage(1);
        let session = stage.begin(loads(), "s").await;
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        stage.peers[0].ask("s", json!(0)).await;
        let asked = ask(&mut turn).await;
        let question = Answer::Question { answers: Vec::new() };
        let wrong = stage.agent.reply(&session, &asked, &question).await.unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InterruptTypeMismatch);
        stage.agent.reply(&session, &asked, &permission(reply)).await.unwrap();
        assert_eq!(stage.peers[0].get().await["result"]["outcome"]["optionId"], option);
        let AgentEvent::AskClosed { request_id, .. } = next(&mut turn).await else { panic!("not closed") };
        assert_eq!(request_id, asked.request_id);
        let again = stage.agent.reply(&session, &asked, &permission(reply)).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InterruptNotFound);
        stage.peers[0].end(&prompt, "end_turn").await;
        assert_eq!(rest(&mut turn).await.1, completed());
        let late = stage.agent.reply(&session, &asked, &permission(reply)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::InterruptNotFound);
    }
}

#[tokio::test]
async fn abort_cancels_the_open_ask_and_waits_for_the_end() {
    let mut stage = stage(1);
    let session = stage.begin(loads(), "s").await;
    stage.agent.cancel(&session).await.unwrap();
    let (mut turn, prompt) = stage.prompt(&session, "hi").await;
    stage.peers[0].ask("s", json!(0)).await;
    let asked = ask(&mut turn).await;
    let playing = async {
        assert_eq!(stage.peers[0].get().await["result"]["outcome"]["outcome"], "cancelled");
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        stage.peers[0].end(&prompt, "cancelled").await;
    };
    let (aborted, ()) = tokio::join!(stage.agent.cancel(&session), playing);
    aborted.unwrap();
    assert!(!stage.agent.is_busy(&session).await.unwrap());
    let AgentEvent::AskClosed { request_id, resolution } = next(&mut turn).await else {
        panic!("not closed")
    };
    assert_eq!((request_id, resolution), (asked.request_id, Resolution::Dropped));
    assert!(matches!(rest(&mut turn).await.1, Outcome::Canceled { .. }));
}

#[tokio::test(start_paused = true)]
async fn an_agent_waits_for_an_engine_that_does_not_read_and_can_still_be_canceled() {
    let mut stage = stage_with(1, |config| config.limits.queued_bytes = 256 * 1024);
    let session = stage.begin(loads(), "s").await;
    let (turn, prompt) = stage.prompt(&session, "hi").await;
    let flood = async {
        for number in 0..5000 {
            let update =
                json!({"sessionUpdate": "tool_call", "toolCallId": format!("c{number}"), "title": "t"});
            stage.peers[0].update("s", update).await;
        }
    };
    // The paused clock advances only when no task can run.
    assert!(timeout(Duration::from_secs(1), flood).await.is_err(), "all events wait in memory");
    let aborting = async {
        let mut aborting = Box::pin(stage.agent.cancel(&session));
        assert!(poll_once(&mut aborting).await.is_none());
        // The engine does the same when the task is canceled.
        drop(turn);
        aborting.await.unwrap();
    };
    let playing = async {
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        // A part of an update may already be in the pipe, so this ends its line.
        stage.peers[0].say_raw("\n").await;
        stage.peers[0].end(&prompt, "cancelled").await;
    };
    timeout(PATIENCE, async { tokio::join!(aborting, playing) }).await.expect("the turn ends");
}

#[tokio::test]
async fn a_turn_that_the_engine_gave_up_is_stopped_by_its_prompt() {
    let mut stage = stage(1);
    let session = stage.begin(loads(), "s").await;
    let started = request(&session, "hi");
    let mine = TurnRecord { session: session.clone(), prompt: started.prompt.clone(), joined: Vec::new() };
    let other = TurnRecord { prompt: new_prompt(), ..mine.clone() };
    let (turn, prompt) = tokio::join!(stage.agent.start_turn(started), stage.peers[0].get());
    drop(turn);
    assert_eq!(stage.agent.stop_turns(std::slice::from_ref(&other)).await.unwrap(), []);
    assert!(stage.agent.is_busy(&session).await.unwrap(), "another turn is left alone");
    let playing = async {
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        stage.peers[0].end(&prompt, "cancelled").await;
    };
    let over = [other, mine];
    let (stopped, ()) = tokio::join!(stage.agent.stop_turns(&over), playing);
    assert_eq!(stopped.unwrap(), []);
    assert!(!stage.agent.is_busy(&session).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ignores_a_cancel_is_replaced_when_its_other_turns_are_over() {
    let mut stage = stage(2);
    let stuck = stage.begin(loads(), "stuck").await;
    let other = stage.open("other").await;
    let (mut ignored, _) = stage.prompt(&stuck, "hi").await;
    let (mut working, prompt) = stage.prompt(&other, "hi").await;
    let since = Instant::now();
    stage.agent.cancel(&stuck).await.unwrap();
    assert_eq!(since.elapsed().as_secs(), 5);
    assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
    assert!(matches!(rest(&mut ignored).await.1, Outcome::Canceled { .. }));
    assert!(stage.agent.is_busy(&stuck).await.unwrap());

    // A turn of another session continues, and a new turn in the stuck session waits for the new process.
    stage.peers[0].text("other", "still here").await;
    assert!(matches!(next(&mut working).await, AgentEvent::Text { .. }));
    let mut old = stage.peers.pop_front().unwrap();
    let waiting = stage.agent.start_turn(request(&stuck, "again"));
    let playing = async {
        old.end(&prompt, "end_turn").await;
        old.closed().await;
        stage.peers[0].answer("initialize", loads()).await;
        stage.peers[0].answer("session/load", json!({})).await;
        stage.peers[0].get().await
    };
    let (turn, prompt) = tokio::join!(waiting, playing);
    assert_eq!(prompt["params"]["sessionId"], "stuck");
    turn.unwrap();
    assert_eq!(rest(&mut working).await.1, completed());
}

#[tokio::test(start_paused = true)]
async fn new_turns_of_other_sessions_do_not_wait_for_a_process_with_a_stuck_session() {
    let mut stage = stage(2);
    let stuck = stage.begin(loads(), "stuck").await;
    let other = stage.open("other").await;
    let (mut ignored, _) = stage.prompt(&stuck, "hi").await;
    let (mut working, prompt) = stage.prompt(&other, "hi").await;
    stage.agent.cancel(&stuck).await.unwrap();
    assert!(matches!(rest(&mut ignored).await.1, Outcome::Canceled { .. }));
    let mut old = stage.peers.pop_front().unwrap();
    assert_eq!(old.get().await["method"], "session/cancel");

    // A new process serves the new turns, even of a session that the old process has.
    let (facts, _) = tokio::join!(stage.agent.start(), stage.peers[0].answer("initialize", loads()));
    facts.unwrap();
    let fresh = stage.open("fresh").await;
    let (mut turn, next) = stage.prompt(&fresh, "hi").await;
    stage.peers[0].end(&next, "end_turn").await;
    assert_eq!(rest(&mut turn).await.1, completed());

    // The running turn continues, and its process ends after it.
    old.text("other", "still here").await;
    old.end(&prompt, "end_turn").await;
    assert_eq!(rest(&mut working).await, ("still here".to_owned(), completed()));
    old.closed().await;
    let playing = async {
        assert_eq!(stage.peers[0].answer("session/load", json!({})).await["params"]["sessionId"], "stuck");
        stage.peers[0].get().await
    };
    let (turn, _) = tokio::join!(stage.agent.start_turn(request(&stuck, "again")), playing);
    turn.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_can_close_a_stuck_session_keeps_its_process() {
    let about = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}, "resume": {}}}});
    // In the first case the agent ignores the cancel; in the second it says itself that it still works.
    for says_so in [false, true] {
        let mut stage = stage(1);
        let session = stage.begin(about.clone(), "s").await;
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        if says_so {
            let error = json!({"code": -32603, "message": "A turn is already running"});
            stage.peers[0].say(&json!({"id": prompt["id"], "error": error})).await;
            assert!(failure(&rest(&mut turn).await.1).starts_with("The agent did not take the prompt"));
        } else {
            stage.agent.cancel(&session).await.unwrap();
            assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
            assert!(matches!(rest(&mut turn).await.1, Outcome::Canceled { .. }));
        }
        assert!(stage.agent.is_busy(&session).await.unwrap());
        let playing = async {
            let peer = &mut stage.peers[0];
            assert_eq!(peer.answer("session/close", json!({})).await["params"]["sessionId"], "s");
            peer.answer("session/resume", json!({})).await;
            peer.get().await
        };
        let (turn, again) = tokio::join!(stage.agent.start_turn(request(&session, "again")), playing);
        // The first turn stays over, whatever the agent says now.
        stage.peers[0].end(&prompt, "end_turn").await;
        stage.peers[0].text("s", "new").await;
        stage.peers[0].end(&again, "end_turn").await;
        assert_eq!(rest(&mut turn.unwrap()).await, ("new".to_owned(), completed()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_session_is_reported_as_busy_while_other_turns_keep_the_process() {
    let mut stage = stage(1);
    let stuck = stage.begin(loads(), "stuck").await;
    let other = stage.open("other").await;
    let (_ignored, _) = stage.prompt(&stuck, "hi").await;
    let (_working, _) = stage.prompt(&other, "hi").await;
    stage.agent.cancel(&stuck).await.unwrap();
    let refused = stage.agent.start_turn(request(&stuck, "again")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_agent_is_silent_for_too_long_is_stopped_and_fails() {
    // The agent stops because of the cancel, reports a normal end, or does not stop.
    for reason in [Some("cancelled"), Some("end_turn"), None] {
        let mut stage = stage_with(1, |config| config.silence = Some(Duration::from_secs(20)));
        let session = stage.begin(loads(), "s").await;
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        stage.peers[0].text("s", "half").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let echo = json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi"}});
        stage.peers[0].update("s", echo).await;
        let since = Instant::now();
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        assert_eq!(since.elapsed().as_secs(), 20, "also what callers are not told of ends a silence");
        if let Some(reason) = reason {
            stage.peers[0].end(&prompt, reason).await;
        }
        let (said, outcome) = rest(&mut turn).await;
        assert_eq!(said, "half");
        assert!(
            failure(&outcome).starts_with("Nothing came from the agent for 20 s, so the turn"),
            "{reason:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_otherwise_after_a_silence_says_how() {
    // Text crosses the cancel before the turn comes to an end or is stopped, or the process dies.
    for (reason, expected) in [
        (Some("end_turn"), None),
        (Some("cancelled"), Some("Nothing came from the agent for 20 s")),
        (None, Some("The agent ended. The turn did not end properly.")),
    ] {
        let mut stage = stage_with(1, |config| config.silence = Some(Duration::from_secs(20)));
        let session = stage.begin(loads(), "s").await;
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        match reason {
            Some(reason) => {
                stage.peers[0].text("s", "late").await;
                stage.peers[0].end(&prompt, reason).await;
            }
            None => stage.die(),
        }
        let (_, outcome) = rest(&mut turn).await;
        match expected {
            None => assert_eq!(outcome, completed()),
            Some(expected) => assert!(failure(&outcome).starts_with(expected), "{outcome:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_an_agent_sends_for_a_session_ends_a_silence() {
    for (line, is_heard) in [
        (
            json!({"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "new_kind"}}}),
            true,
        ),
        (json!({"method": "_vendor/status", "params": {"sessionId": "s"}}), true),
        (json!({"method": "fs/read_text_file", "id": 9, "params": {"sessionId": "s", "path": "/a"}}), true),
        (json!({"method": "_vendor/status", "params": {"sessionId": "other"}}), false),
        (json!({"method": "_vendor/status"}), false),
    ] {
        let mut stage = stage_with(1, |config| config.silence = Some(Duration::from_secs(20)));
        let session = stage.begin(loads(), "s").await;
        let (_turn, _) = stage.prompt(&session, "hi").await;
        let since = Instant::now();
        tokio::time::sleep(Duration::from_secs(15)).await;
        stage.peers[0].say(&line).await;
        if line.get("id").is_some() {
            assert_eq!(stage.peers[0].get().await["id"], 9);
        }
        assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
        assert_eq!(since.elapsed().as_secs(), if is_heard { 35 } else { 20 }, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_an_open_ask_or_a_running_tool_may_be_silent() {
    let long = || tokio::time::sleep(Duration::from_hours(1));
    let mut stage = stage_with(1, |config| config.silence = Some(Duration::from_secs(20)));
    let session = stage.begin(loads(), "s").await;
    let (mut turn, prompt) = stage.prompt(&session, "hi").await;
    stage.peers[0].ask("s", json!(0)).await;
    let asked = ask(&mut turn).await;
    long().await;
    stage.agent.reply(&session, &asked, &permission(PermissionReply::Once)).await.unwrap();
    assert_eq!(stage.peers[0].get().await["result"]["outcome"]["optionId"], "y");
    // The tool that was allowed.
    long().await;
    let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "call-0", "status": "completed"});
    stage.peers[0].update("s", done).await;
    stage.peers[0].ask("s", json!(1)).await;
    let asked = ask(&mut turn).await;
    long().await;
    // One agent reports nothing about a tool that was refused.
    stage.agent.reply(&session, &asked, &permission(PermissionReply::Reject)).await.unwrap();
    assert_eq!(stage.peers[0].get().await["result"]["outcome"]["optionId"], "cancel");
    let since = Instant::now();
    assert_eq!(stage.peers[0].get().await["method"], "session/cancel");
    assert_eq!(since.elapsed().as_secs(), 20, "the silence begins with the answer");
    stage.peers[0].end(&prompt, "cancelled").await;
    assert!(matches!(rest(&mut turn).await.1, Outcome::Failed(_)));
}

#[tokio::test]
async fn sessions_work_at_the_same_time() {
    let mut stage = stage(1);
    let one = stage.begin(loads(), "one").await;
    let (mut first, prompt_one) = stage.prompt(&one, "hi").await;
    let two = stage.open("two").await;
    let (mut second, prompt_two) = stage.prompt(&two, "hi").await;
    stage.peers[0].text("two", "b").await;
    stage.peers[0].text("one", "a").await;
    stage.peers[0].end(&prompt_two, "end_turn").await;
    assert_eq!(rest(&mut second).await, ("b".to_owned(), completed()));
    assert!(stage.agent.is_busy(&one).await.unwrap());
    stage.peers[0].end(&prompt_one, "end_turn").await;
    assert_eq!(rest(&mut first).await, ("a".to_owned(), completed()));
}

#[tokio::test]
async fn the_death_of_the_agent_ends_every_turn_and_keeps_what_was_said() {
    let mut stage = stage(1);
    let one = stage.begin(loads(), "one").await;
    let two = stage.open("two").await;
    let (mut first, _) = stage.prompt(&one, "hi").await;
    let (mut second, _) = stage.prompt(&two, "hi").await;
    stage.peers[0].text("one", "half").await;
    stage.peers[0].ask("two", json!(0)).await;
    let asked = ask(&mut second).await;
    stage.die();
    let (said, outcome) = rest(&mut first).await;
    assert_eq!(said, "half");
    assert!(failure(&outcome).starts_with("The agent ended. The turn did not end properly."), "{outcome:?}");
    let AgentEvent::AskClosed { request_id, resolution } = next(&mut second).await else {
        panic!("not closed")
    };
    assert_eq!((request_id, resolution), (asked.request_id, Resolution::Dropped));
    assert!(matches!(rest(&mut second).await.1, Outcome::Failed(_)));
    let down = stage.agent.check().await.unwrap_err();
    assert_eq!(down.message(), "The agent ended. The gateway starts it again when it is needed.");
    stage.wait_for_back().await;
}

#[tokio::test]
async fn a_turn_of_an_earlier_gateway_fails_with_the_reason_and_starts_nothing() {
    let stage = stage(0);
    let session = Session { id: SessionId::parse("s").unwrap(), directory: stage.directory() };
    let text = |text: &str| Artifact {
        id: ArtifactId::parse("a").unwrap(),
        kind: BlockKind::Text,
        source_message: None,
        name: None,
        description: None,
        parts: vec![Part::text(text)],
        extensions: Vec::new(),
        metadata: None,
    };
    for (artifacts, why) in
        [(vec![text("half")], "is kept"), (Vec::new(), "Whether it had begun is not known")]
    {
        let asked = RequestId::parse("a1").unwrap();
        let resume = Resume { artifacts, open_asks: vec![asked.clone()], ..Resume::default() };
        let request = TurnRequest { resume: Some(resume), ..request(&session, "") };
        let mut turn = stage.agent.start_turn(request).await.unwrap();
        let dropped = AgentEvent::AskClosed { request_id: asked, resolution: Resolution::Dropped };
        assert_eq!(next(&mut turn).await, dropped);
        let (_, outcome) = rest(&mut turn).await;
        assert!(
            failure(&outcome).contains(why) && failure(&outcome).contains("is not sent again"),
            "{outcome:?}"
        );
    }
    assert!(stage.agent.facts().is_none());
}

#[tokio::test]
async fn a_missing_login_is_told_with_the_agents_methods_and_the_next_turn_starts_the_agent_again() {
    let about = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "authMethods": [{"id": "key", "name": "API key"}]});
    let mut stage = stage(3);
    let directory = stage.directory();
    let playing = async {
        stage.peers[0].answer("initialize", about.clone()).await;
        stage.peers[0].fail("session/new", -32000, "Authentication required").await;
        stage.peers[0].closed().await;
    };
    let (refused, ()) =
        tokio::join!(stage.agent.open_session(NewSession { directory, title: None }), playing);
    let refused = refused.unwrap_err();
    assert!(refused.needs_credentials() && refused.message().contains("Method `key`: API key."), "{refused}");

    let error = json!({"error": {"code": -32000, "message": "Authentication required"}});
    for mut answer in [error, json!({"result": {"stopReason": "auth_required"}})] {
        stage.die();
        let session = stage.begin(about.clone(), "s").await;
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        answer["id"] = prompt["id"].clone();
        stage.peers[0].say(&answer).await;
        let Outcome::AuthRequired(why) = rest(&mut turn).await.1 else { panic!("no login required") };
        assert!(why.message.contains("Method `key`: API key."), "{}", why.message);
        stage.peers[0].closed().await;
    }
}

#[tokio::test]
async fn a_file_of_the_gateway_that_the_agent_shows_is_withheld() {
    let mut stage = stage_with(1, |config| {
        std::fs::create_dir(config.workspace.join("data")).unwrap();
        for file in ["data/token", "own.txt"] {
            std::fs::write(config.workspace.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink("data/token", config.workspace.join("link")).unwrap();
        std::fs::hard_link(config.workspace.join("data/token"), config.workspace.join("hard")).unwrap();
        config.protected = Arc::new(ProtectedPaths::new([config.workspace.join("data")]));
    });
    let session = stage.begin(loads(), "s").await;
    let root = stage.directory();
    let resource = |uri: String| json!({"type": "resource", "resource": {"uri": uri, "text": "x"}});
    let image =
        |uri: Option<String>| json!({"type": "image", "mimeType": "image/png", "data": "cG5n", "uri": uri});
    let said = |content: Value| json!({"sessionUpdate": "agent_message_chunk", "content": content});
    let call = |input: Value, content: Value| {
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "completed", "kind": "read", "rawInput": input,
               "content": [{"type": "content", "content": content}]})
    };
    for (update, is_withheld) in [
        (said(resource(format!("file://{root}/data/token"))), true),
        (said(resource(format!("file://{root}/data/%74oken"))), true),
        (said(resource(format!("{root}/data/token"))), true),
        (said(resource("data/token".to_owned())), true),
        (said(resource(format!("file://{root}/link"))), true),
        (said(image(Some(format!("file://{root}/hard")))), true),
        (call(json!({"file_path": "./link"}), image(None)), true),
        (
            call(json!({"path": format!("{root}/own.txt")}), resource(format!("file://{root}/data/token"))),
            true,
        ),
        // Only the agent knows where these lead.
        (said(resource("~/own.txt".to_owned())), true),
        (said(resource("file://host/own.txt".to_owned())), true),
        (call(json!({"file_path": "~/own.txt"}), image(None)), true),
        (call(json!({"path": (0..65).map(|at| format!("{at}")).collect::<Vec<_>>()}), image(None)), true),
        (call(json!({"uri": format!("file://{root}/data/token")}), image(None)), true),
        (call(json!({"path": (0..64).map(|at| format!("{at}")).collect::<Vec<_>>()}), image(None)), false),
        (said(resource(format!("file://{root}/own.txt"))), false),
        (said(image(None)), false),
        (said(resource("https://example.com/data/token".to_owned())), false),
        (call(json!({"file_path": "own.txt"}), image(None)), false),
    ] {
        let (mut turn, prompt) = stage.prompt(&session, "hi").await;
        stage.peers[0].update("s", update.clone()).await;
        let found = loop {
            match next(&mut turn).await {
                AgentEvent::File { .. } => break false,
                AgentEvent::WithheldFile { .. } => break true,
                _ => {}
            }
        };
        assert_eq!(found, is_withheld, "{update}");
        stage.peers[0].end(&prompt, "end_turn").await;
        assert_eq!(rest(&mut turn).await.1, completed());
    }
}
