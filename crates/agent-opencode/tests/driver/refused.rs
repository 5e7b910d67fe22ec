//! Refused prompts. OpenCode accepts some prompts and refuses them then: an error event without a message id comes, and nothing is
//! stored.

use longshore_agent_opencode::Pin;
use longshore_testkit::fake_opencode::{Delivery, Fault, Gate, Turn as Script};
use serde_json::json;

use super::joining::join;
use super::*;

async fn refuse(bench: &Bench, session: &Session) {
    let error = json!({"name": "UnknownError", "data": {"message": "ImageDecodeError: no picture"}});
    bench.fake.emit("session.error", json!({"sessionID": session.id.as_str(), "error": error})).await;
}

/// A turn is not complete if only a message that joined it was answered.
#[tokio::test]
async fn a_turn_whose_own_prompt_was_refused_fails_even_if_another_message_joined() {
    refuse_and_join(false).await;
}

#[tokio::test]
async fn a_turn_whose_own_prompt_was_refused_fails_even_if_another_message_joined_in_a_gap() {
    refuse_and_join(true).await;
}

/// Takes half a minute: a message waits that long for the prompt that began the turn. `gap`: the event stream says nothing of the
/// message that joins.
async fn refuse_and_join(gap: bool) {
    let bench = Bench::new();
    bench.fake.queue(Script::new().text("two.", 1));
    let session = bench.session().await;
    bench.fake.fault_once("POST", "/prompt_async", Fault::Status(204));
    let (_, turn) = bench.start(&session, "go").await.expect("the turn starts");
    refuse(&bench, &session).await;
    if gap {
        bench.fake.deliver(Delivery::HeartbeatsOnly);
    }
    let (_, sent) = join(&turn, "more").await;
    sent.expect("an answer").expect("the message is sent");
    if gap {
        bench.fake.wait_until_idle().await;
        bench.fake.deliver(Delivery::Live);
        bench.fake.end_streams();
    }
    let events = all(turn).await;
    let expected = "failed: OpenCode refused the message that began this turn, and answered only what joined it: \
                    ImageDecodeError: no picture";
    assert_eq!(result(&events), ended(expected, "two."));
    bench.stop().await;
}

#[tokio::test]
async fn a_refused_message_does_not_block_the_turn_that_it_was_to_join() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, mut turn) =
        bench.start_held(Script::new().text("one.", 1).hold(&gate).text("two.", 1), &gate).await;
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    bench.fake.fault_once("POST", "/prompt_async", Fault::Status(204));
    let (_, sent) = join(&turn, "more").await;
    sent.unwrap().unwrap();
    refuse(&bench, &session).await;
    let busy = json!({"sessionID": session.id.as_str(), "status": {"type": "busy"}});
    bench.fake.emit("session.status", busy).await;
    gate.open();
    let began = tokio::time::Instant::now();
    events.extend(all(turn).await);
    let expected = "completed: A message that joined this turn was not read, because OpenCode refused it: \
                    ImageDecodeError: no picture";
    assert_eq!(result(&events), ended(expected, "one.two."));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    bench.stop().await;
}

/// OpenCode works on the prompt when the error of another message comes.
#[tokio::test]
async fn an_error_of_another_message_before_the_first_answer_does_not_end_the_turn() {
    let bench = Bench::new();
    let gate = Gate::new();
    let (session, _, turn) = bench.start_held(Script::new().hold(&gate).text("one.", 1), &gate).await;
    refuse(&bench, &session).await;
    // Longer than the wait for a refused prompt.
    tokio::time::sleep(Duration::from_secs(4)).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!(result(&events), ended("completed", "one."));
    bench.stop().await;
}

/// A message can wait while the gateway is restarted with other rules.
#[tokio::test]
async fn a_prompt_with_an_option_that_is_forbidden_by_now_is_not_sent() {
    let pin_all = |config: &mut OpenCodeConfig| config.rules.pinned = Pin::ALL.to_vec();
    let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), pin_all);
    let (session, prompt) = (bench.session().await, new_prompt());
    let options = PromptOptions { agent: Some("plan".to_owned()), ..PromptOptions::default() };
    let request = TurnRequest { options, ..request(&session, &prompt, "go", None) };
    let refused = bench.agent.start_turn(request).await.map(drop).unwrap_err();
    assert_eq!(refused.violations()[0].field, "metadata.opencode.agent");
    assert_eq!(bench.fake.prompts().len(), 0);
    bench.stop().await;
}
