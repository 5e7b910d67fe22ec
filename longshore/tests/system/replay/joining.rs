//! Recordings with prompts during a turn: the stream of a task that further messages join.

use longshore_testkit::fake_opencode::{Play, RecordedLine, Recording};
use longshore_testkit::raw::{Frame, message};
use serde_json::json;

use crate::replay::fixture::{Fixture, check, until_settled};
use crate::replay::recordings::{assert_matches_opencode, assert_snapshot};
use crate::replay::usage::Usage;

/// Plays a recording: the first prompt makes the task, and the others join it at their recorded positions.
async fn replay_joined(name: &str) {
    let fixture = Fixture::new().await;
    let play = Play::new(name);
    fixture.fake.play(&play);
    let prompts = play.prompts();
    let mut stream = fixture.open(&prompts[0]).await;
    let mut frames = Vec::new();
    for (nth, prompt) in prompts.iter().enumerate().skip(1) {
        let before = told_before(play.recording(), nth);
        while seen_in(&frames) != before {
            frames.push(stream.next().await.expect("the turn goes on"));
        }
        let mut params = message(&format!("message-{}", nth + 1), prompt);
        params["message"]["contextId"] = frames[0].json["task"]["contextId"].clone();
        params["metadata"] = json!({"shared": {"delivery": "steer"}});
        params["configuration"] = json!({"returnImmediately": true});
        let joined = fixture.client().rpc("SendMessage", params).await;
        assert_eq!(joined.result()["task"]["id"], frames[0].json["task"]["id"], "it is one task");
    }
    frames.extend(until_settled(stream).await);
    let seen = check(fixture.client(), frames).await;
    assert_snapshot(name, &fixture.fake, &seen);
    assert_eq!(seen.state(), "COMPLETED", "{}", seen.reason());
    fixture.fake.wait_until_idle().await;
    assert_eq!(
        Usage::of_task(&seen),
        Usage::of_opencode(&fixture.fake),
        "the usage is not the sum of the steps"
    );
    assert_eq!(fixture.fake.prompts().len(), prompts.len(), "one prompt for each message");
    let stored = fixture.client().task(seen.task["id"].as_str().expect("an id")).await;
    let history = stored["history"].as_array().map(Vec::len);
    assert_eq!(history, Some(prompts.len()), "the task keeps every message");
    assert_matches_opencode(&fixture.fake, &fixture.fake.sessions()[0], &[seen]);
}

/// The text and the tool status that OpenCode had sent when the `nth` prompt came, counted from 0.
fn told_before(recording: &Recording, nth: usize) -> (String, String) {
    let (mut text, mut tool, mut prompts) = (String::new(), String::new(), 0);
    for line in &recording.lines {
        prompts += usize::from(line.prompt().is_some());
        let RecordedLine::Event(event) = line else { continue };
        if prompts > nth {
            break;
        }
        text += event["properties"]["delta"].as_str().unwrap_or_default();
        tool = event["properties"]["part"]["state"]["status"].as_str().map_or(tool, str::to_owned);
    }
    (text, tool)
}

/// The same, as the client received it.
fn seen_in(frames: &[Frame]) -> (String, String) {
    let (mut text, mut tool) = (String::new(), String::new());
    for frame in frames {
        let part = &frame.json["artifactUpdate"]["artifact"]["parts"][0];
        text += part["text"].as_str().unwrap_or_default();
        tool = part["data"]["status"].as_str().map_or(tool, str::to_owned);
    }
    (text, tool)
}

#[tokio::test]
async fn two_prompts_one_session() {
    replay_joined("two_prompts_one_session").await;
}

#[tokio::test]
async fn prompt_during_tool() {
    replay_joined("prompt_during_tool").await;
}

#[tokio::test]
async fn many_prompts_queue() {
    replay_joined("many_prompts_queue").await;
}
