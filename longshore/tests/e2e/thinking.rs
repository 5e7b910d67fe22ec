//! Hidden thinking: no answer contains reasoning or a tool call.

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

/// Words that appear only in the thinking, and not in the prompts.
const TRACES: [&str; 5] = ["Thought 1 of", "trace-42", "\"reasoning\"", "\"tool_call\"", "\"call_id\""];

const SAID: &str = "The tide turns at six, and not before.";

fn prompt(name: &str) -> String {
    format!("scn:bash cmd=\"echo trace-$((40+2))\" scn:reason rn=3 n=100 delay=30 text={SAID:?} ({name})")
}

/// The client over both bindings, with and without the extension.
fn every_client(client: &Client) -> Vec<Client> {
    let over = |binding| [client.over(binding), client.over(binding).activating(&[HINTS])];
    [Binding::JsonRpc, Binding::Rest].into_iter().flat_map(over).collect()
}

/// Plays a turn for each client, reads it by every operation, and fails when any answer shows what is hidden.
async fn assert_hidden(name: &str, clients: Vec<Client>) {
    for (number, client) in clients.into_iter().enumerate() {
        let name = format!("{name}, client {number}");
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
async fn long_thinking_is_hidden_in_every_binding_and_extension() {
    let harness = Harness::start(Setup::demo(LONGSHORE).flag("--thinking-exposure").flag("none")).await;
    assert_hidden("a gateway that hides it", every_client(&harness.client)).await;
    drop(harness);

    let setup = Setup::demo(LONGSHORE).env("A2A_STATIC_AUTH_CREDENTIALS", json!(credentials()).to_string());
    let harness = Harness::start(setup).await;
    let closed = Client::with_token(&harness.gateway, CLOSED);
    assert_hidden("a credential that hides it", every_client(&closed)).await;
}

/// Two credentials of one principal. The second hides the thinking.
pub(crate) fn credentials() -> [Value; 2] {
    [
        json!({"scheme": "bearer", "token": OPEN, "principal": "ada"}),
        json!({"scheme": "bearer", "token": CLOSED, "principal": "ada", "thinking_exposure": "none"}),
    ]
}

pub(crate) async fn thinking_is_hidden_from_one_credential(harness: &Harness) {
    let closed = Client::with_token(&harness.gateway, CLOSED);
    assert_hidden("a credential that hides it", vec![closed.over(Binding::Rest).activating(&[HINTS])]).await;

    // The log has the thinking, and another credential of the principal sees it.
    let open = Client::with_token(&harness.gateway, OPEN);
    let frames = closed.stream(&message(&prompt("seen by another"))).await.rest().await;
    let shown = open.get(&task_id(&frames[0])).await.to_string();
    for trace in ["Thought 1 of", "trace-42", "\"call_id\""] {
        assert!(shown.contains(trace), "the log lost {trace}: {shown}");
    }
}
