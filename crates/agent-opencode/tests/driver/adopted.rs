//! Turns that somebody else began, which are followed and neither prompted nor stopped.

use longshore_model::{Answer, ErrorKind, PermissionReply};
use longshore_testkit::fake_opencode::{Gate, Tool, Turn as Script};

use super::*;

/// A bench whose turns wait for a busy session for so long.
fn bench(patience: u64) -> Bench {
    Bench::on(FakeOpenCode::start(), None, Duration::from_secs(patience))
}

/// Takes up what somebody typed, as the engine does.
async fn adopt(bench: &Bench, session: &Session, typed: &str) -> Turn {
    let prompt = PromptId::parse(typed).expect("an id");
    let request = request(session, &prompt, "", Some(Resume::default()));
    let request = TurnRequest { is_adopted: true, input: Vec::new(), ..request };
    bench.agent.start_turn(request).await.expect("it is taken up")
}

fn said(events: &[AgentEvent]) -> (String, String) {
    (outcome(events), text_of(events))
}

fn completed(text: &str) -> (String, String) {
    ("completed".to_owned(), text.to_owned())
}

#[tokio::test]
async fn a_prompt_of_ours_takes_no_turn_from_somebody_else() {
    let bench = bench(1);
    let session = bench.used_session().await;
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("for ", 1).hold(&gate).text("them", 1));
    let typed = bench.fake.typist(session.id.as_str()).types("theirs").await;
    let mut theirs = adopt(&bench, &session, &typed).await;
    let mut events = until(&mut theirs, |event| *event == AgentEvent::CaughtUp).await;
    let refused = bench.start(&session, "ours").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SessionBusy);
    assert_eq!(bench.fake.prompts().len(), 0);
    gate.open();
    events.extend(all(theirs).await);
    assert_eq!(said(&events), completed("for them"));
    // Nobody has it now, or is about to leave it.
    bench.fake.queue(Script::new().text("for us", 1));
    let (_, ours) = bench.start(&session, "ours").await.unwrap();
    assert_eq!(said(&all(ours).await), completed("for us"));
    bench.stop().await;
}

/// Ours waits for the session and hears what happens there, so that theirs cannot: it is told all the same, its ask first of all.
#[tokio::test]
async fn what_somebody_else_does_is_told_while_a_turn_of_ours_waits_for_its_end() {
    let bench = bench(60);
    let session = bench.used_session().await;
    let tool = Tool::bash("make", "made");
    bench.fake.queue(Script::new().text("May I? ", 1).guarded_tool(tool).text("Thanks.", 1));
    bench.fake.queue(Script::new().text("for us", 1));
    let typed = bench.fake.typist(session.id.as_str()).types("theirs").await;
    let ours = bench.start(&session, "ours");
    let theirs = async {
        // Somebody has asked whether the session is idle.
        bench.fake.requested("GET", "/session/status", 1).await;
        let mut turn = adopt(&bench, &session, &typed).await;
        let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Asked(_))).await;
        assert_eq!(bench.fake.prompts().len(), 0);
        let Some(AgentEvent::Asked(ask)) = events.last().cloned() else { panic!("no ask") };
        let once = Answer::Permission { reply: PermissionReply::Once, message: None };
        bench.agent.reply(&session, &ask, &once).await.unwrap();
        events.extend(all(turn).await);
        said(&events)
    };
    let (ours, theirs) = tokio::join!(async { all(ours.await.unwrap().1).await }, theirs);
    assert_eq!(theirs, completed("May I? Thanks."));
    assert_eq!(said(&ours), completed("for us"));
    bench.stop().await;
}

#[tokio::test]
async fn each_of_several_in_one_session_ends_with_its_own_text() {
    let bench = Bench::new();
    let session = bench.used_session().await;
    let gates = [Gate::new(), Gate::new()];
    for (gate, text) in gates.iter().zip(["first", "second"]) {
        bench.fake.queue(Script::new().text(text, 1).hold(gate).text("!", 1));
    }
    let typist = bench.fake.typist(session.id.as_str());
    let first = typist.types("one").await;
    gates[0].reached().await;
    let mut first = adopt(&bench, &session, &first).await;
    let mut events = until(&mut first, |event| *event == AgentEvent::CaughtUp).await;
    let second = typist.types("two").await;
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

/// Whoever types may let their model do what it likes.
#[tokio::test]
async fn nothing_that_its_model_does_has_it_stopped() {
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
    let typed = bench.fake.typist(session.id.as_str()).types("theirs").await;
    gate.reached().await;
    let turn = adopt(&bench, &session, &typed).await;
    gate.open();
    assert_eq!(said(&all(turn).await), completed(&("on ".repeat(7) + "and done")));
    assert!(!bench.fake.log().iter().any(|request| request.path.ends_with("/abort")));
    bench.stop().await;
}
