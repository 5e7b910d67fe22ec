//! Prompts that OpenCode takes and then refuses: an error without a name comes, and nothing is stored.

use longshore_testkit::fake_opencode::{Delivery, Fault, Gate, Turn as Script};
use serde_json::json;

use super::joining::join;
use super::*;

async fn refuse(bench: &Bench, session: &Session) {
    let error = json!({"name": "UnknownError", "data": {"message": "ImageDecodeError: no picture"}});
    bench.fake.emit("session.error", json!({"sessionID": session.id.as_str(), "error": error})).await;
}

/// A turn must not be taken for complete when only what joined it was answered.
#[tokio::test]
async fn a_turn_whose_own_prompt_was_refused_says_so_though_another_joined_it() {
    for gap in [false, true] {
        let bench = Bench::new();
        bench.fake.queue(Script::new().text("two.", 1));
        let session = bench.session().await;
        bench.fake.fault_once("POST", "/prompt_async", Fault::Status(204));
        let (_, turn) = bench.start(&session, "go").await.unwrap();
        refuse(&bench, &session).await;
        if gap {
            bench.fake.deliver(Delivery::HeartbeatsOnly);
        }
        let (_, sent) = join(&bench, &turn, "more").await;
        sent.unwrap().unwrap();
        if gap {
            bench.fake.quiet().await;
            bench.fake.deliver(Delivery::Live);
            bench.fake.end_streams();
        }
        let events = all(turn).await;
        let expected = "failed: OpenCode refused the message that began this turn, and answered only what joined it: \
                        ImageDecodeError: no picture";
        assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), (expected, "two."), "gap: {gap}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_refused_message_does_not_hold_up_the_turn_that_it_was_to_join() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().text("one.", 1).hold(&gate).text("two.", 1));
    let session = bench.session().await;
    let (_, mut turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::Text { .. })).await;
    bench.fake.fault_once("POST", "/prompt_async", Fault::Status(204));
    let (_, sent) = join(&bench, &turn, "more").await;
    sent.unwrap().unwrap();
    refuse(&bench, &session).await;
    let busy = json!({"sessionID": session.id.as_str(), "status": {"type": "busy"}});
    bench.fake.emit("session.status", busy).await;
    gate.open();
    let began = tokio::time::Instant::now();
    events.extend(all(turn).await);
    let expected = "completed: A message that joined this turn was not read, because OpenCode refused it: \
                    ImageDecodeError: no picture";
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), (expected, "one.two."));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    bench.stop().await;
}

/// OpenCode is at work on the prompt when the error of another message comes.
#[tokio::test]
async fn an_error_of_somebody_else_before_the_first_answer_ends_nothing() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.fake.queue(Script::new().hold(&gate).text("one.", 1));
    let session = bench.session().await;
    let (_, turn) = bench.start(&session, "go").await.unwrap();
    gate.reached().await;
    refuse(&bench, &session).await;
    // Longer than a prompt that was refused is waited for.
    tokio::time::sleep(Duration::from_secs(4)).await;
    gate.open();
    let events = all(turn).await;
    assert_eq!((outcome(&events).as_str(), text_of(&events).as_str()), ("completed", "one."));
    bench.stop().await;
}
