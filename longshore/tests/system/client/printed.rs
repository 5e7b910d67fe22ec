//! What `longshore call` prints on a pipe.

use longshore_testkit::fake_opencode::Turn;
use serde_json::Value;

use super::fixture::{Fixture, eventful, stable};

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_gets_the_answer_alone_and_the_rest_goes_to_standard_error() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| eventful());
    let run = fixture.run(&["call", "Do it."]).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout, "The first line.\nThe second line.\n");
    insta::assert_snapshot!(stable(&run.stderr));
    assert!(!run.stderr.contains('\x1b') && !run.stdout.contains('\x1b'), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_one_task_and_jsonl_is_its_events() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| eventful());
    let whole = fixture.run(&["call", "--output", "json", "Do it."]).await;
    assert_eq!((whole.code, whole.stderr.as_str()), (Some(0), ""));
    let task: Value = serde_json::from_str(&whole.stdout).unwrap();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let texts: Vec<&str> = task["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|artifact| artifact["metadata"]["shared"]["stream"]["block_type"] == "text")
        .map(|artifact| artifact["parts"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["The first line.\nThe second line."]);

    let lines = fixture.run(&["call", "--output", "jsonl", "Do it."]).await;
    let events: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events[0]["task"]["id"].is_string(), "{}", events[0]);
    assert_eq!(events.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_continues_and_options_and_files_reach_the_agent() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| Turn::new().text("ok", 1).finish("stop"));
    std::fs::write(fixture.gateway.workspace().join("note.md"), "# A note\n").unwrap();
    let file = fixture.gateway.workspace().join("note.md");
    let first = fixture.run(&["call", "--output", "json", "--file", file.to_str().unwrap(), "One."]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let first: Value = serde_json::from_str(&first.stdout).unwrap();
    let again =
        fixture.run(&["call", "--output", "json", "--continue", "--model", "scripted/vision", "Two."]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(first["contextId"], again["contextId"]);
    let prompts = fixture.fake.prompts();
    let sent = |index: usize| prompts[index].body.to_string();
    // The content, in base64.
    assert!(sent(0).contains("IyBBIG5vdGUK") && sent(0).contains("note.md"), "{}", sent(0));
    assert!(sent(1).contains("vision") && !sent(0).contains("vision"), "{}", sent(1));
}
