//! Messages that join a turn that runs.

use longshore_engine::port::Steering;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Delivery, Fault, Gate, Play, Turn as Script};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

/// What the engine holds of a message that joins.
struct Joining {
    prompt: PromptId,
    expected: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
    sent: oneshot::Receiver<Result<()>>,
}

async fn offer(bench: &Bench, turn: &Turn, text: &str) -> Joining {
    let prompt = bench.agent.new_prompt();
    let (expected, is_expected) = oneshot::channel();
    let (go, word) = oneshot::channel();
    let (sent, outcome) = oneshot::channel();
    let steering = Steering {
        prompt: prompt.clone(),
        input: vec![Input::Text(text.to_owned())],
        options: PromptOptions::default(),
        trace: None,
        expected,
        go: word,
        sent,
    };
    turn.steering.send(Box::new(steering)).await.expect("the turn runs");
    Joining { prompt, expected: is_expected, go, sent: outcome }
}

async fn soon<T>(what: oneshot::Receiver<T>) -> Option<T> {
    timeout(PATIENCE, what).await.expect("an answer").ok()
}

/// Offers a message and lets it go.
pub(crate) async fn join(bench: &Bench, turn: &Turn, text: &str) -> (PromptId, Option<Result<()>>) {
    let joining = offer(bench, turn, text).await;
    soon(joining.expected).await.expect("the turn goes on");
    joining.go.send(()).expect("the driver waits");
    (joining.prompt, soon(joining.sent).await)
}

#[tokio::test]
async fn recorded_messages_join_in_mid_text_and_in_mid_tool() {
    let cases = [
        ("two_prompts_one_session", "alpha b bravo c charlie delta e echo fo foxtrot"),
        ("prompt_during_tool", "alpha b bravo c charlie delta e "),
    ];
    for (name, text) in cases {
        let bench = Bench::new();
        bench.fake.play(&Play::new(name));
        let session = bench.session().await;
        let (_, mut turn) = bench.start(&session, "first").await.unwrap();
        let begun = |event: &AgentEvent| matches!(event, AgentEvent::Text { .. } | AgentEvent::Tool { .. });
        let mut events = until(&mut turn, begun).await;
        let (prompt, sent) = join(&bench, &turn, "second").await;
        sent.unwrap().unwrap();
        events.extend(all(turn).await);
        assert_eq!(outcome(&events), "completed", "{name}");
        assert!(text_of(&events).starts_with(text), "{name}: {}", text_of(&events));
        let prompts = bench.fake.prompts();
        let ids: Vec<&str> = prompts.iter().map(|sent| sent.body["messageID"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 2, "{name}");
        assert_eq!(ids[1], prompt.as_str(), "{name}");
        let answers = bench.fake.messages(session.id.as_str());
        let answers: Vec<&str> =
            answers.iter().filter_map(|message| message["info"]["parentID"].as_str()).collect();
        assert_eq!(answers, ids, "{name}: each has an answer");
        bench.stop().await;
    }
}

/// OpenCode is done with the turn while the message is still with the engine.
#[tokio::test]
async fn a_message_that_is_expected_keeps_the_turn_open() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("one. ", 1).hold(&gate));
    bench.fake.queue(Script::new().text("two.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let joining = offer(&bench, &turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    gate.open();
    bench.fake.quiet().await;
    // The session is idle, and read as such.
    bench.fake.emit("session.idle", serde_json::json!({"sessionID": session.id.as_str()})).await;
    joining.go.send(()).unwrap();
    soon(joining.sent).await.unwrap().unwrap();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "one. two."));
    bench.stop().await;
}

#[tokio::test]
async fn a_message_that_is_not_sent_after_all_holds_up_nothing() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("one.", 1).hold(&gate));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let joining = offer(&bench, &turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    gate.open();
    drop(joining.go);
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "one."));
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_message_that_opencode_refuses_is_known_not_to_have_joined() {
    for (fault, expected) in [
        (Fault::Status(400), ErrorKind::InvalidAgentResponse),
        (Fault::Status(401), ErrorKind::AgentUnavailable),
    ] {
        let bench = Bench::new();
        let gate = Gate::new();
        bench.fake.queue(Script::new().text("one.", 1).hold(&gate));
        let session = bench.session().await;
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        gate.reached().await;
        bench.fake.fault_once("POST", "/prompt_async", fault);
        let (_, sent) = join(&bench, &turn, "more").await;
        assert_eq!(sent.unwrap().unwrap_err().kind(), expected);
        gate.open();
        assert_eq!(outcome(&all(turn).await), "completed", "without a remark");
        bench.stop().await;
    }
}

/// The connection breaks: OpenCode's messages tell whether it has the prompt.
#[tokio::test]
async fn a_message_of_unknown_fate_is_looked_for() {
    let unread = "completed: A message that joined this turn may not have been read; look at the session before \
                  you send it again.";
    for (fault, end, text) in
        [(Fault::CutAfter, "completed", "one. two."), (Fault::CutBefore, unread, "one. ")]
    {
        let bench = Bench::new();
        let gate = Gate::new();
        bench.fake.queue(Script::new().text("one. ", 1).hold(&gate));
        bench.fake.queue(Script::new().text("two.", 1));
        let session = bench.session().await;
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        gate.reached().await;
        bench.fake.fault_once("POST", "/prompt_async", fault);
        let joining = offer(&bench, &turn, "more").await;
        soon(joining.expected).await.expect("the turn goes on");
        joining.go.send(()).unwrap();
        gate.open();
        soon(joining.sent).await.unwrap().expect("it may have arrived");
        let events = all(turn).await;
        assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), (end, text));
        bench.stop().await;
    }
}

/// OpenCode says at once that it takes a prompt, and stores it later; when it has just been started, much later. What comes
/// meanwhile could be stored before it.
#[tokio::test]
async fn a_message_does_not_overtake_the_one_that_began_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    // Nothing tells that the first one is stored.
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    bench.fake.queue(Script::new().text("one. ", 1).hold(&gate));
    bench.fake.queue(Script::new().text("two.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let joining = offer(&bench, &turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    joining.go.send(()).unwrap();
    let early = timeout(Duration::from_millis(500), bench.fake.requested("POST", "/prompt_async", 2)).await;
    assert!(early.is_err(), "it was sent before OpenCode had the first");
    bench.fake.deliver(Delivery::Live);
    bench.fake.end_streams();
    soon(joining.sent).await.unwrap().unwrap();
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "one. two."));
    bench.stop().await;
}

#[tokio::test]
async fn nobody_joins_a_turn_that_is_over() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("one.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    let steering = turn.steering.clone();
    all(turn).await;
    timeout(PATIENCE, steering.closed()).await.expect("the driver is gone");
    bench.stop().await;
}

/// The engine takes no events while it waits for the driver's word, and the driver waits for the engine to take them.
#[tokio::test]
async fn a_message_can_join_while_nobody_takes_the_events() {
    let bench = Bench::new();
    let gate = Gate::new();
    let much: Vec<String> = (0..2000).map(|nth| format!("{nth} ")).collect();
    bench.fake.queue(Script::new().deltas(much.clone()).hold(&gate));
    bench.fake.queue(Script::new().text("two.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let joining = offer(&bench, &turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    joining.go.send(()).unwrap();
    gate.open();
    soon(joining.sent).await.unwrap().unwrap();
    let events = all(turn).await;
    assert_eq!(outcome(&events), "completed");
    assert_eq!(text_of(&events), much.concat() + "two.");
    bench.stop().await;
}

#[tokio::test]
async fn a_turn_is_taken_up_with_the_messages_that_joined_it() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("one. ", 1).hold(&gate));
    bench.fake.queue(Script::new().text("two.", 1));
    let session = bench.session().await;
    let (prompt, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    gate.open();
    let (joined, sent) = join(&bench, &turn, "more").await;
    sent.unwrap().unwrap();
    drop(turn);
    bench.fake.quiet().await;
    let never_sent = bench.agent.new_prompt();
    let unread = "completed: A message that joined this turn may not have been read";
    for (joined, end) in [(vec![joined.clone()], "completed"), (vec![joined, never_sent], unread)] {
        let resume = Some(Resume { joined, ..Resume::default() });
        let turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
        let events = all(turn).await;
        assert!(outcome(&events).starts_with(end), "{}", outcome(&events));
        assert_eq!(text_of(&events), "one. two.");
    }
    assert_eq!(bench.fake.prompts().len(), 2);
    bench.stop().await;
}
