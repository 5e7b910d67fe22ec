//! Turns that the watchdog stops.

use longshore_testkit::fake_opencode::{Delivery, Fault, Gate, Play, Tool, Turn as Script};
use serde_json::json;

use super::child_turns::{only, turns};
use super::joining::join;
use super::stage::{stage, start_root};
use super::*;

fn bench(silence: Option<Duration>, max_steps: Option<usize>) -> Bench {
    let change = |config: &mut OpenCodeConfig| {
        config.watchdog = Watchdog { silence, max_steps, ..Watchdog::default() }
    };
    Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change)
}

const SHORT: Option<Duration> = Some(Duration::from_secs(3));

#[tokio::test]
async fn a_turn_with_a_silent_model_is_stopped() {
    let bench = bench(SHORT, None);
    bench.fake.queue(Script::new().text("and then", 1).silence());
    let events = bench.run("go").await;
    assert!(
        outcome(&events).starts_with("failed: Nothing came from the model for 3 s"),
        "{}",
        outcome(&events)
    );
    assert_eq!(text_of(&events), "and then");
    bench.fake.wait_for_request("POST", "/abort", 1).await;
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

/// The sub-agent's model is silent, and so is the turn that waits for it.
#[tokio::test]
async fn a_turn_with_a_silent_sub_agent_is_stopped() {
    let bench = bench(SHORT, None);
    let gate = Gate::new();
    bench.fake.play(&Play::new("task").hold_after("message.part.delta", 2, &gate));
    let events = bench.run("go").await;
    assert!(outcome(&events).starts_with("failed: Nothing came from the model"), "{}", outcome(&events));
    let [child] = turns(&events, &[]).try_into().unwrap();
    assert_eq!(outcome(&child.reports), "canceled: The turn was stopped.");
    assert_eq!(text_of(&child.reports), "alpha b bravo c ");
    bench.stop().await;
}

#[tokio::test]
async fn an_open_ask_does_not_count_as_silence() {
    let bench = bench(Some(Duration::from_secs(2)), None);
    bench.fake.queue(Script::new().guarded_tool(Tool::bash("rm x", "")).text("done", 1));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let ask = asked(&mut turn).await;
    // There is no event to wait for when nothing happens: more than twice the limit passes.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    bench.agent.reply(&session, &ask, &once()).await.unwrap();
    assert_eq!(outcome(&all(turn).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_with_too_many_steps_is_stopped() {
    let steps = |count: usize| {
        let script = (0..count - 1).fold(Script::new(), |script, _| script.tool(Tool::bash("ls", "a\n")));
        script.text("done", 1)
    };
    for (count, end) in [(3, "completed"), (4, "failed: The model did not come to an end within the 3 steps")]
    {
        let bench = bench(None, Some(3));
        bench.fake.queue(steps(count));
        let events = bench.run("go").await;
        assert!(outcome(&events).starts_with(end), "{count}: {}", outcome(&events));
        bench.stop().await;
    }
}

/// The limit is for a model that goes on; this model is done.
#[tokio::test]
async fn a_turn_that_ended_in_a_gap_is_not_stopped() {
    let bench = bench(None, Some(3));
    let gate = Gate::new();
    let script = Script::new().text("x", 1).hold(&gate);
    let script = (0..4).fold(script, |script, _| script.tool(Tool::bash("ls", "a\n")));
    let (_, _, turn) = bench.start_held(script.text("done", 1), &gate).await;
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    gate.open();
    bench.fake.wait_until_idle().await;
    bench.fake.deliver(Delivery::Live);
    bench.fake.end_streams();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "xdone"));
    assert!(!bench.fake.log().iter().any(|request| request.path.ends_with("/abort")));
    bench.stop().await;
}

/// OpenCode waits before a retry. The event that says so came before the gateway started, or in a gap.
#[tokio::test]
async fn a_retry_that_is_known_only_from_a_read_does_not_count_as_silence() {
    for restart in [true, false] {
        let bench = bench(Some(Duration::from_secs(2)), None);
        let gate = Gate::new();
        let (session, prompt, mut turn) =
            bench.start_held(Script::new().text("one", 1).hold(&gate).text("two", 1), &gate).await;
        let retry =
            json!({"type": "retry", "attempt": 1, "message": "rate limit", "next": 4_000_000_000_000_u64});
        bench.fake.deliver(Delivery::HeartbeatsOnly);
        bench.fake.emit("session.status", json!({"sessionID": session.id.as_str(), "status": retry})).await;
        bench.fake.deliver(Delivery::Live);
        if restart {
            turn = bench.resume(&session, &prompt, Resume::default()).await;
        } else {
            bench.fake.end_streams();
        }
        let is_retry = |event: &AgentEvent| matches!(event, AgentEvent::Progress(progress) if progress.kind == longshore_model::ProgressKind::Retry);
        until(&mut turn, is_retry).await;
        tokio::time::sleep(Duration::from_millis(4500)).await;
        gate.open();
        assert_eq!(outcome(&all(turn).await), "completed", "restart: {restart}");
        bench.stop().await;
    }
}

/// The event that ends a retry is lost, and then nothing arrives any more.
#[tokio::test]
async fn a_finished_retry_is_no_reason_for_silence() {
    let bench = bench(SHORT, None);
    bench.fake.queue(Script::new().text("and then", 1).silence());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    let status = |status| json!({"sessionID": session.id.as_str(), "status": status});
    bench.fake.emit("session.status", status(json!({"type": "retry", "attempt": 1}))).await;
    events.extend(until(&mut turn, |event| matches!(event, AgentEvent::Progress(_))).await);
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    bench.fake.emit("session.status", status(json!({"type": "busy"}))).await;
    bench.fake.deliver(Delivery::Live);
    bench.fake.end_streams();
    events.extend(all(turn).await);
    assert!(outcome(&events).starts_with("failed: Nothing came from the model"), "{}", outcome(&events));
    bench.stop().await;
}

/// The turn is done, and waits for a message that OpenCode accepted and does not show.
#[tokio::test]
async fn an_idle_session_does_not_count_as_silent() {
    let bench = bench(SHORT, None);
    let gate = Gate::new();
    let (_, _, turn) = bench.start_held(Script::new().text("one.", 1).hold(&gate), &gate).await;
    bench.fake.fault_once("POST", "/prompt_async", Fault::Status(204));
    let (_, sent) = join(&turn, "more").await;
    sent.unwrap().unwrap();
    gate.open();
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("completed: A message that joined this turn may not have been read"), "{end}");
    bench.stop().await;
}

/// OpenCode is up and does not show the state of the session.
#[tokio::test]
async fn a_stopped_turn_ends_even_if_opencode_does_not_respond() {
    let bench = bench(SHORT, None);
    bench.fake.queue(Script::new().text("and then", 1).silence());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    // The abort is retried, and its effect never arrives.
    bench.fake.fault_once("POST", "/abort", Fault::Status(503));
    bench.fake.fault_always("GET", "/session/status", Fault::Status(503));
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    bench.fake.wait_for_request("POST", "/abort", 1).await;
    // From now on the messages must be read.
    bench.fake.end_streams();
    let given_up = tokio::time::Instant::now();
    let end = outcome(&all(turn).await);
    assert!(end.starts_with("failed: Nothing came from the model"), "{end}");
    assert!(given_up.elapsed() < Duration::from_secs(15), "{:?}", given_up.elapsed());
    bench.stop().await;
}

/// The same for a sub-agent: what happened in a gap is read before the watchdog decides.
#[tokio::test]
async fn a_sub_agent_that_ended_or_retried_in_a_gap_is_not_stopped() {
    for is_done in [true, false] {
        let bench = bench(Some(Duration::from_secs(2)).filter(|_| !is_done), Some(3));
        let gate = Gate::new();
        let (session, _, turn, step) = start_root(&bench, &gate).await;
        let (stage, root) = (stage(&bench), session.id.as_str());
        stage.start_child(root, &step).await;
        bench.fake.deliver(Delivery::HeartbeatsOnly);
        if is_done {
            for nth in 0..4 {
                let id = format!("msg_c{nth}");
                stage.begin("ses_child", &id, "msg_c").await;
                stage.finish("ses_child", &id, "msg_c", "tool-calls").await;
            }
        } else {
            let retry = json!({"type": "retry", "attempt": 1, "message": "rate limit"});
            stage.emit("session.status", "ses_child", json!({"status": retry})).await;
            bench.fake.deliver(Delivery::Live);
            bench.fake.end_streams();
            // More than twice the limit passes.
            tokio::time::sleep(Duration::from_millis(4500)).await;
        }
        stage.begin("ses_child", "msg_last", "msg_c").await;
        stage.text("ses_child", "msg_last", "done").await;
        stage.finish("ses_child", "msg_last", "msg_c", "stop").await;
        stage.idle("ses_child").await;
        bench.fake.deliver(Delivery::Live);
        bench.fake.end_streams();
        stage.call(root, &step, "call_1", "ses_child", "completed").await;
        gate.open();
        let events = all(turn).await;
        assert_eq!(result(&only(&events).reports), ended("completed", "done"), "done: {is_done}");
        assert_eq!(outcome(&events), "completed", "done: {is_done}");
        bench.stop().await;
    }
}

/// The message was not sent, so it can be refused. Waiting for its slot would mean waiting for the slots' owners.
#[tokio::test]
async fn a_message_that_waits_for_a_slot_does_not_delay_the_end() {
    let change = |config: &mut OpenCodeConfig| {
        config.watchdog = Watchdog { silence: SHORT, ..Watchdog::default() };
        config.upstream_calls = 1;
    };
    let bench = Bench::with(FakeOpenCode::start(), None, PATIENCE, change);
    let (began, held) = (Gate::new(), Gate::new());
    bench.fake.queue(Script::new().text("and then", 1).hold(&began).silence());
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    began.reached().await;
    bench.fake.fault_once("POST", "/session", Fault::Hold(held.clone()));
    let (others, ended_events) = tokio::join!(bench.agent.open_session(root(&bench)), async {
        held.reached().await;
        let (_, sent) = join(&turn, "more").await;
        assert_eq!(sent.unwrap().unwrap_err().kind(), longshore_model::ErrorKind::AgentUnavailable);
        bench.fake.wait_for_request("POST", "/abort", 1).await;
        let ended = until(&mut turn, |event| matches!(event, AgentEvent::Ended(_))).await;
        held.open();
        ended
    });
    others.unwrap();
    let end = outcome(&ended_events);
    assert!(end.starts_with("failed: Nothing came from the model"), "{end}");
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}
