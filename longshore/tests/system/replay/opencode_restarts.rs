//! OpenCode stops and comes back, perhaps in another version: turns wait for it, continue, or fail with the true
//! reason.

use std::time::Duration;

use longshore_testkit::fake_opencode::{Cut, CutKind, FakeOpenCode, Gate, Turn};
use longshore_testkit::raw::{Frame, Frames};
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};
use crate::replay::fixture::{Fixture, check};

/// A gateway with a short timeout for calls to OpenCode.
async fn fixture_with_short_timeout() -> Fixture {
    let fake = FakeOpenCode::start();
    let options = Options { control_timeout: Duration::from_millis(300), ..Options::default() };
    Fixture { gateway: TestGateway::start_with(&fake, options).await, fake }
}

fn sessions_made(fixture: &Fixture) -> usize {
    fixture.fake.log().iter().filter(|request| request.method == "POST" && request.path == "/session").count()
}

fn words(frame: &Frame) -> Option<&str> {
    frame.json.pointer("/statusUpdate/status/message/parts/0/text")?.as_str()
}

/// The frames up to the status that says that the task waits for OpenCode.
async fn until_it_waits(stream: &mut Frames) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = stream.next().await.expect("the task shows that it waits");
        let waits = words(&frame).is_some_and(|words| words.contains("cannot be reached now"));
        frames.push(frame);
        if waits {
            return frames;
        }
    }
}

#[tokio::test]
async fn another_version_of_opencode_continues_the_session() {
    let fixture = Fixture::new().await;
    let first = fixture.send("one").await;
    fixture.fake.kill().await;
    fixture.fake.restart_as("2.0.0-beta.1");
    fixture.fake.queue(Turn::new().text("from the new one", 3));
    let second = fixture.send_in(Some(first.context()), "message-2", "two").await;
    assert_eq!(
        (second.state(), second.text().as_str()),
        ("COMPLETED", "from the new one"),
        "{}",
        second.reason()
    );
    let prompts = fixture.fake.prompts();
    assert_eq!(prompts[0].path, prompts[1].path, "it is another session");
    assert_eq!(sessions_made(&fixture), 1);
}

/// OpenCode stops in the middle of a text, and the new one does not know the session.
#[tokio::test]
async fn an_opencode_that_lost_its_sessions_fails_the_turn_and_accepts_the_next() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate).text("lost", 1));
    let stream = fixture.open("go").await;
    let replacing = async {
        gate.reached().await;
        fixture.fake.kill().await;
        fixture.fake.forget_session(&fixture.fake.sessions()[0]);
        fixture.fake.restart_as("2.0.0");
    };
    let (frames, ()) = tokio::join!(stream.all(), replacing);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("FAILED", "alpha "), "{}", seen.reason());
    assert!(seen.reason().ends_with("may be missing."), "{}", seen.reason());
    let last = seen.frames.last().expect("an end");
    assert_eq!(last.json.pointer("/statusUpdate/metadata/longshore"), Some(&json!({"lost": "text"})));
    assert_eq!(fixture.fake.prompts().len(), 1);
    let next = fixture.send_in(Some(seen.context()), "message-2", "again").await;
    assert_eq!((next.state(), next.text().as_str()), ("COMPLETED", "unscripted"), "{}", next.reason());
    assert_eq!(sessions_made(&fixture), 2);
}

/// The gateway learns the end of the turn from the message list of the new OpenCode.
#[tokio::test]
async fn a_turn_that_ended_before_the_restart_of_opencode_is_complete() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("alpha bravo", 2).finish("stop").hold(&gate));
    fixture.fake.cut_events(Cut { after: 3, how: CutKind::Reset, lose: usize::MAX });
    let stream = fixture.open("go").await;
    let replacing = async {
        gate.reached().await;
        fixture.fake.kill().await;
        fixture.fake.restart_as("2.0.0");
    };
    let (frames, ()) = tokio::join!(stream.all(), replacing);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo"), "{}", seen.reason());
}

/// A message arrives while OpenCode is down: its task says that it waits, and it is prompted once.
#[tokio::test]
async fn a_turn_starts_when_opencode_is_back() {
    for is_known in [false, true] {
        let fixture = fixture_with_short_timeout().await;
        let context = if is_known { Some(fixture.send("one").await.context().to_owned()) } else { None };
        let before = fixture.fake.prompts().len();
        fixture.fake.kill().await;
        let mut stream = fixture.open_in(context.as_deref(), "message-2", "go").await;
        let mut frames = until_it_waits(&mut stream).await;
        fixture.fake.restart();
        frames.extend(stream.all().await);
        let seen = check(fixture.client(), frames).await;
        assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "unscripted"), "{}", seen.reason());
        assert_eq!(seen.task["status"]["message"], Value::Null, "{}", seen.task);
        assert_eq!(fixture.fake.prompts().len(), before + 1);
    }
}

#[tokio::test]
async fn a_task_that_waits_for_opencode_can_be_canceled() {
    let fixture = fixture_with_short_timeout().await;
    fixture.fake.kill().await;
    let mut stream = fixture.open("go").await;
    let mut frames = until_it_waits(&mut stream).await;
    let id = frames[0].json["task"]["id"].clone();
    let answer = fixture.client().rpc("CancelTask", json!({ "id": id })).await;
    assert_eq!(answer.body["result"]["status"]["state"], "TASK_STATE_CANCELED", "{}", answer.body);
    frames.extend(stream.all().await);
    assert_eq!(check(fixture.client(), frames).await.state(), "CANCELED");
    fixture.fake.restart();
    assert_eq!(fixture.send_in(None, "message-2", "go").await.state(), "COMPLETED");
    assert_eq!(fixture.fake.prompts().len(), 1, "what was canceled was never prompted");
}
