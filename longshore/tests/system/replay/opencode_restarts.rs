//! OpenCode stops and comes back, perhaps in another version: turns wait for it, continue, or fail with the true
//! reason.

use std::time::Duration;

use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::raw::{Frame, Frames};
use serde_json::Value;

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
