//! Thinking that is not shown: no reasoning and no tool call leaves the log.

use longshore_testkit::gateway::Setup;
use longshore_testkit::raw;
use serde_json::{Value, json};

use crate::client::{Binding, Client, message};
use crate::frames::{context_id, nth_text, state_of, task_id};
use crate::harness::{Harness, LONGSHORE};
use crate::upstream::blocks_of_task;

const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";

const OPEN: &str = "the-token-of-one-who-sees-everything-0123456789";
const CLOSED: &str = "the-token-of-one-who-sees-the-answer-0123456789";

/// What shows that something of the thinking got out. None of it is in the prompts.
const TRACES: [&str; 5] = ["Thought 1 of", "trace-42", "\"reasoning\"", "\"tool_call\"", "\"call_id\""];

const SAID: &str = "The tide turns at six, and not before.";

fn prompt(name: &str) -> String {
    format!("scn:bash cmd=\"echo trace-$((40+2))\" scn:reason rn=3 n=100 delay=30 text={SAID:?} ({name})")
}

/// Plays a turn in every way in which one can hear of it, and fails when any of them shows what is hidden.
async fn shows_nothing(name: &str, client: &Client) {
    for (client, binding) in [Binding::JsonRpc, Binding::Rest].into_iter().flat_map(|binding| {
        let client = client.over(binding);
        [(client.clone(), binding), (client.activating(&[HINTS]), binding)]
    }) {
        let name = format!("{name} over {binding:?}");
        let mut answers: Vec<(&str, Value)> = Vec::new();

        let sent = client.send(&message(&prompt(&name))).await;
        assert_eq!(state_of(&sent), "COMPLETED", "{name}: {sent:#}");
        answers.push(("send", sent));

        let mut stream = client.stream(&message(&prompt(&name))).await;
        let mut frames = stream.until("two texts", nth_text(2)).await;
        let task = task_id(&frames[0]);
        let subscribed = client.subscribe(&task).await;
        frames.extend(stream.rest().await);
        let subscribed = subscribed.rest().await;
        let from_start = client.resume(&task, 0).await.rest().await;
        let cut = frames[frames.len() / 2].id.expect("a frame has an id");
        let resumed = client.resume(&task, cut).await.rest().await;
        let stored = client.get(&task).await;
        let blocks = blocks_of_task(&raw::plain_text(&stored));
        let listed = {
            let params = json!({"contextId": context_id(&frames[0]), "includeArtifacts": true});
            client.call("ListTasks", params).await
        };
        assert_eq!(listed["tasks"][0]["artifacts"], stored["artifacts"], "{name}: the list shows otherwise");
        for (what, frames) in [("stream", &frames), ("subscription", &subscribed), ("whole log", &from_start)]
        {
            assert_eq!(blocks_of_task(&raw::fold(frames)), blocks, "{name}: the {what}");
            answers.push((what, frames.iter().map(|frame| frame.json.clone()).collect()));
        }
        answers.push(("resumed stream", resumed.iter().map(|frame| frame.json.clone()).collect()));
        answers.push(("task", stored.clone()));
        answers.push(("list", listed));
        for (what, answer) in answers {
            let text = answer.to_string();
            for trace in TRACES {
                assert!(!text.contains(trace), "{name}: the {what} shows {trace}: {answer:#}");
            }
        }
        let [block] = blocks.as_slice() else { panic!("{name}: {blocks:#?}") };
        assert_eq!((block.name.as_str(), &block.content), ("text", &json!(SAID)), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_is_hidden_from_everybody_or_from_one_credential() {
    let harness = Harness::start(Setup::demo(LONGSHORE).flag("--thinking-exposure").flag("none")).await;
    shows_nothing("a gateway that hides it", &harness.client).await;
    drop(harness);

    let credentials = json!([
        {"scheme": "bearer", "token": OPEN, "principal": "ada"},
        {"scheme": "bearer", "token": CLOSED, "principal": "ada", "thinking_exposure": "none"},
    ]);
    let setup = Setup::demo(LONGSHORE).env("A2A_STATIC_AUTH_CREDENTIALS", credentials.to_string());
    let harness = Harness::start(setup).await;
    let closed = Client::with_token(&harness.gateway, CLOSED);
    shows_nothing("a credential that hides it", &closed).await;

    // It is in the log all the same, for a credential that may see it.
    let open = Client::with_token(&harness.gateway, OPEN);
    let frames = closed.stream(&message(&prompt("seen by another"))).await.rest().await;
    let shown = open.get(&task_id(&frames[0])).await.to_string();
    for trace in ["Thought 1 of", "trace-42", "\"call_id\""] {
        assert!(shown.contains(trace), "the log lost {trace}: {shown}");
    }
}
