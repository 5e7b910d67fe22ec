//! External turns, which are followed and neither prompted nor stopped.

use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Gate, Tool, Turn as Script};

use super::*;

/// A bench whose turns wait this many seconds for a busy session.
fn bench(patience: u64) -> Bench {
    Bench::on(FakeOpenCode::start(), None, Duration::from_secs(patience))
}

/// Adopts the turn of a prompt that another client sent, as the engine does.
async fn adopt(bench: &Bench, session: &Session, prompt: &str) -> Turn {
    let prompt = PromptId::parse(prompt).expect("an id");
    let request = request(session, &prompt, "", Some(Resume::default()));
    let request = TurnRequest { is_adopted: true, input: Vec::new(), ..request };
    bench.agent.start_turn(request).await.expect("the turn is adopted")
}

#[tokio::test]
async fn a_prompt_of_the_gateway_waits_for_an_external_turn() {
    let bench = bench(1);
    let session = bench.used_session().await;
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("for ", 1).hold(&gate).text("them", 1));
    let prompt = bench.fake.other_client(session.id.as_str()).types("theirs").await;
    let mut external = adopt(&bench, &session, &prompt).await;
    let mut events = until(&mut external, |event| *event == AgentEvent::CaughtUp).await;
    let refused = bench.start(&session, "ours").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    assert_eq!(bench.fake.prompts().len(), 0);
    gate.open();
    events.extend(all(external).await);
    assert_eq!(result(&events), ended("completed", "for them"));
    // The session is free now, or is about to be.
    bench.fake.queue(Script::new().text("for us", 1));
    let (_, own) = bench.start(&session, "ours").await.unwrap();
    assert_eq!(result(&all(own).await), ended("completed", "for us"));
    bench.stop().await;
}

/// The turn of the gateway waits for the session and receives its events. The external turn reports everything even so, its
/// ask first of all.
#[tokio::test]
async fn an_external_turn_is_reported_while_a_turn_of_the_gateway_waits_for_its_end() {
    let bench = bench(60);
    let session = bench.used_session().await;
    let tool = Tool::bash("make", "made");
    bench.fake.queue(Script::new().text("May I? ", 1).guarded_tool(tool).text("Thanks.", 1));
    bench.fake.queue(Script::new().text("for us", 1));
    let prompt = bench.fake.other_client(session.id.as_str()).types("theirs").await;
    let own = bench.start(&session, "ours");
    let external = async {
        // The waiting turn has checked whether the session is idle.
        bench.fake.wait_for_request("GET", "/session/status", 1).await;
        let mut turn = adopt(&bench, &session, &prompt).await;
        let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
        assert_eq!(bench.fake.prompts().len(), 0);
        bench.agent.reply(&session, &last_ask(&events), &once()).await.unwrap();
        events.extend(all(turn).await);
        result(&events)
    };
    let (own, external) = tokio::join!(async { all(own.await.unwrap().1).await }, external);
    assert_eq!(external, ended("completed", "May I? Thanks."));
    assert_eq!(result(&own), ended("completed", "for us"));
    bench.stop().await;
}

#[tokio::test]
async fn several_external_turns_of_one_session_end_with_their_own_text() {
    let bench = Bench::new();
    let session = bench.used_session().await;
    let gates = [Gate::new(), Gate::new()];
    for (gate, text) in gates.iter().zip(["first", "second"]) {
        bench.fake.queue(Script::new().text(text, 1).hold(gate).text("!", 1));
    }
    let other_client = bench.fake.other_client(session.id.as_str());
    let first = other_client.types("one").await;
    gates[0].reached().await;
    let mut first = adopt(&bench, &session, &first).await;
    let mut events = until(&mut first, |event| *event == AgentEvent::CaughtUp).await;
    let second = other_client.types("two").await;
    let second = adopt(&bench, &session, &second).await;
    for gate in &gates {
        gate.open();
    }
    let (rest, second) = tokio::join!(all(first), all(second));
    events.extend(rest);
    assert_eq!((text_of(&events).as_str(), text_of(&second).as_str()), ("first!", "second!"));
    assert!(outcome(&events).starts_with("completed"), "{}", outcome(&events));
    assert_eq!(outcome(&second), "completed");
    bench.stop().await;
}

/// The other client may let its model do what it likes.
#[tokio::test]
async fn the_watchdog_never_stops_an_external_turn() {
    let silence = Some(Duration::from_millis(500));
    let change = |config: &mut OpenCodeConfig| {
        config.watchdog = Watchdog { silence, max_steps: Some(3), ..Watchdog::default() };
    };
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change);
    let session = bench.used_session().await;
    let gate = Gate::new();
    let script = (0..7).fold(Script::new(), |script, _| script.text("on ", 1).step("unknown"));
    let script = script.hold(&gate).pause(Duration::from_secs(2));
    bench.fake.queue(script.text("and done", 1));
    let prompt = bench.fake.other_client(session.id.as_str()).types("theirs").await;
    gate.reached().await;
    let turn = adopt(&bench, &session, &prompt).await;
    gate.open();
    assert_eq!(result(&all(turn).await), ended("completed", &("on ".repeat(7) + "and done")));
    assert!(!bench.fake.log().iter().any(|request| request.path.ends_with("/abort")));
    bench.stop().await;
}
