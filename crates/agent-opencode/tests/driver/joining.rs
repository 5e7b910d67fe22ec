//! Messages that join a running turn.

use longshore_engine::port::Steering;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Delivery, Fault, Gate, Play, Turn as Script};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::*;

/// The engine's side of a message that joins.
struct Joining {
    prompt: PromptId,
    expected: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
    sent: oneshot::Receiver<Result<()>>,
}

async fn offer(turn: &Turn, text: &str) -> Joining {
    let prompt = new_prompt();
    let (expected, is_expected) = oneshot::channel();
    let (go, may_go) = oneshot::channel();
    let (sent, outcome) = oneshot::channel();
    let steering = Steering {
        prompt: prompt.clone(),
        input: vec![Input::Text(text.to_owned())],
        options: PromptOptions::default(),
        trace: None,
        expected,
        go: may_go,
        sent,
    };
    turn.steering
        .as_ref()
        .expect("OpenCode can be steered")
        .send(Box::new(steering))
        .await
        .expect("the turn runs");
    Joining { prompt, expected: is_expected, go, sent: outcome }
}

async fn soon<T>(what: oneshot::Receiver<T>) -> Option<T> {
    timeout(PATIENCE, what).await.expect("an answer").ok()
}

/// Offers a message and lets it be sent.
pub(crate) async fn join(turn: &Turn, text: &str) -> (PromptId, Option<Result<()>>) {
    let joining = offer(turn, text).await;
    soon(joining.expected).await.expect("the turn goes on");
    joining.go.send(()).expect("the driver waits");
    (joining.prompt, soon(joining.sent).await)
}

#[tokio::test]
async fn recorded_messages_join_during_a_text_and_during_a_tool_call() {
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
        let (prompt, sent) = join(&turn, "second").await;
        sent.unwrap().unwrap();
        events.extend(all(turn).await);
        assert_eq!(outcome(&events), "completed", "{name}");
        assert!(text_of(&events).starts_with(text), "{name}: {}", text_of(&events));
        let prompts = bench.fake.prompts();
        let ids: Vec<&str> = prompts.iter().map(|sent| sent.body["messageID"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 2, "{name}");
        assert_eq!(ids[1], message_of(&bench, &prompt), "{name}");
        let answers = bench.fake.messages(session.id.as_str());
        let answers: Vec<&str> =
            answers.iter().filter_map(|message| message["info"]["parentID"].as_str()).collect();
        assert_eq!(answers, ids, "{name}: each prompt has an answer");
        bench.stop().await;
    }
}

/// OpenCode ends the turn while the engine still holds the message.
#[tokio::test]
async fn an_expected_message_keeps_the_turn_open() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn) = bench.start_held(Script::new().text("one. ", 1).hold(&gate), &gate).await;
    bench.fake.queue(Script::new().text("two.", 1));
    let joining = offer(&turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    gate.open();
    bench.fake.wait_until_idle().await;
    // The session is idle, and the turn has seen that.
    bench.fake.emit("session.idle", serde_json::json!({"sessionID": session.id.as_str()})).await;
    joining.go.send(()).unwrap();
    soon(joining.sent).await.unwrap().unwrap();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "one. two."));
    bench.stop().await;
}

#[tokio::test]
async fn an_expected_message_that_is_not_sent_does_not_block_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (_, _, turn) = bench.start_held(Script::new().text("one.", 1).hold(&gate), &gate).await;
    let joining = offer(&turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    gate.open();
    drop(joining.go);
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "one."));
    assert_eq!(bench.fake.prompts().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_message_that_opencode_refuses_has_not_joined() {
    for (fault, expected) in [
        (Fault::Status(400), ErrorKind::InvalidAgentResponse),
        (Fault::Status(401), ErrorKind::AgentUnavailable),
    ] {
        let bench = Bench::new();
        let gate = Gate::new();
        let (_, _, turn) = bench.start_held(Script::new().text("one.", 1).hold(&gate), &gate).await;
        bench.fake.fault_once("POST", "/prompt_async", fault);
        let (_, sent) = join(&turn, "more").await;
        assert_eq!(sent.unwrap().unwrap_err().kind(), expected);
        gate.open();
        assert_eq!(outcome(&all(turn).await), "completed", "without a remark");
        bench.stop().await;
    }
}

/// The connection breaks: OpenCode's messages show whether it has the prompt.
#[tokio::test]
async fn a_message_of_unknown_delivery_is_looked_up() {
    let unread = "completed: A message that joined this turn may not have been read; look at the session before \
                  you send it again.";
    for (fault, end, text) in
        [(Fault::CutAfter, "completed", "one. two."), (Fault::CutBefore, unread, "one. ")]
    {
        let bench = Bench::new();
        let gate = Gate::new();
        let (_, _, turn) = bench.start_held(Script::new().text("one. ", 1).hold(&gate), &gate).await;
        bench.fake.queue(Script::new().text("two.", 1));
        bench.fake.fault_once("POST", "/prompt_async", fault);
        let joining = offer(&turn, "more").await;
        soon(joining.expected).await.expect("the turn goes on");
        joining.go.send(()).unwrap();
        gate.open();
        soon(joining.sent).await.unwrap().expect("the message may have arrived");
        let events = all(turn).await;
        assert_eq!(result(&events), ended(end, text));
        bench.stop().await;
    }
}

/// OpenCode accepts a prompt at once and stores it later; after its start, much later. A message that arrives meanwhile could
/// be stored first.
#[tokio::test]
async fn a_message_does_not_overtake_the_prompt_that_began_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    // No event shows that the first prompt is stored.
    bench.fake.deliver(Delivery::HeartbeatsOnly);
    let (_, _, turn) = bench.start_held(Script::new().text("one. ", 1).hold(&gate), &gate).await;
    bench.fake.queue(Script::new().text("two.", 1));
    let joining = offer(&turn, "more").await;
    soon(joining.expected).await.expect("the turn goes on");
    joining.go.send(()).unwrap();
    let early =
        timeout(Duration::from_millis(500), bench.fake.wait_for_request("POST", "/prompt_async", 2)).await;
    assert!(early.is_err(), "sent before OpenCode had the first prompt");
    bench.fake.deliver(Delivery::Live);
    bench.fake.end_streams();
    soon(joining.sent).await.unwrap().unwrap();
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "one. two."));
    bench.stop().await;
}

/// After a gap of the event stream the driver reads the messages. Another message joins before the response is there, so the
/// response already shows the message and its answer.
#[tokio::test]
async fn a_message_that_joins_while_the_driver_reads_is_no_message_of_another_client() {
    let bench = Bench::new();
    let (gate, response) = (Gate::new(), Gate::new());
    let (_, _, mut turn) = bench.start_held(Script::new().text("one. ", 1).hold(&gate), &gate).await;
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    bench.fake.queue(Script::new().text("two.", 1));
    bench.fake.fault_once("GET", "/message", Fault::Hold(response.clone()));
    bench.fake.end_streams();
    response.reached().await;
    let (_, sent) = join(&turn, "more").await;
    sent.unwrap().unwrap();
    gate.open();
    bench.fake.wait_until_idle().await;
    response.open();
    events.extend(all(turn).await);
    assert_eq!(result(&events), ended("completed", "one. two."));
    bench.stop().await;
}

#[tokio::test]
async fn a_finished_turn_takes_no_messages() {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("one.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    let steering = turn.steering.clone().expect("OpenCode can be steered");
    all(turn).await;
    timeout(PATIENCE, steering.closed()).await.expect("the driver is gone");
    bench.stop().await;
}

/// The engine takes no events while it waits for the driver's reply, and the driver waits for the engine to take events.
#[tokio::test]
async fn a_message_can_join_while_the_engine_takes_no_events() {
    let bench = Bench::new();
    let gate = Gate::new();
    let much: Vec<String> = (0..2000).map(|nth| format!("{nth} ")).collect();
    let (_, _, turn) = bench.start_held(Script::new().deltas(much.clone()).hold(&gate), &gate).await;
    bench.fake.queue(Script::new().text("two.", 1));
    let joining = offer(&turn, "more").await;
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
async fn a_turn_is_resumed_with_the_messages_that_joined_it() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, prompt, turn) = bench.start_held(Script::new().text("one. ", 1).hold(&gate), &gate).await;
    bench.fake.queue(Script::new().text("two.", 1));
    gate.open();
    let (joined, sent) = join(&turn, "more").await;
    sent.unwrap().unwrap();
    drop(turn);
    bench.fake.wait_until_idle().await;
    let never_sent = new_prompt();
    let unread = "completed: A message that joined this turn may not have been read";
    for (joined, end) in [(vec![joined.clone()], "completed"), (vec![joined, never_sent], unread)] {
        let turn = bench.resume(&session, &prompt, Resume { joined, ..Resume::default() }).await;
        let events = all(turn).await;
        assert!(outcome(&events).starts_with(end), "{}", outcome(&events));
        assert_eq!(text_of(&events), "one. two.");
    }
    assert_eq!(bench.fake.prompts().len(), 2);
    bench.stop().await;
}
