//! A provider refuses the credentials of OpenCode: the task waits for them, and a message on it retries the turn.

use serde_json::json;

use crate::client::{Binding, message, message_in, message_on};
use crate::frames::{explanation, id, state, state_of, task_id};
use crate::harness::Harness;
use crate::upstream::{self, Agreement};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_waits_for_credentials_and_a_message_retries_it() {
    let (mut harness, model) = Harness::with_own_model().await;
    for (round, binding) in [Binding::JsonRpc, Binding::Rest].into_iter().enumerate() {
        let prompt = format!("scn:auth body=\"no such key\" ({binding:?})");
        let client = harness.client.over(binding);
        let waiting = client.send(&message(&prompt)).await;
        assert_eq!(state_of(&waiting), "AUTH_REQUIRED", "{waiting:#}");
        assert!(explanation(&waiting).contains("no such key"), "{waiting:#}");
        let task = waiting["id"].as_str().unwrap().to_owned();
        let context = waiting["contextId"].as_str().unwrap();

        // No turn runs, so other messages may use the session.
        let between = format!("scn:text n=1 ({binding:?}, between)");
        let played = harness.play_message(&message_in(context, &between), Agreement::Whole).await;
        played.ended("COMPLETED", "");

        // The credentials are refused again, and the task waits again.
        let still = format!("scn:auth body=\"nor this one\" ({binding:?})");
        let waiting = client.send(&message_on(&task, &json!({"text": still}))).await;
        assert_eq!((&waiting["id"], state_of(&waiting)), (&json!(task), "AUTH_REQUIRED"), "{waiting:#}");
        assert!(explanation(&waiting).contains("nor this one"), "{waiting:#}");

        // The waiting task survives a crash of the gateway.
        harness.gateway.kill();
        harness.restart().await;
        let client = harness.client.over(binding);
        assert_eq!(state_of(&client.get(&task).await), "AUTH_REQUIRED");
        let again = format!("scn:text text=\"Now it works.\" ({binding:?}, again)");
        let sent = message_on(&task, &json!({"text": again}));
        let frames = client.stream(&sent).await.rest().await;
        assert!(frames.iter().all(|frame| task_id(frame) == task), "{frames:#?}");
        let last = frames.last().expect("a stream has a frame");
        assert_eq!(state(last), Some("COMPLETED"), "{frames:#?}");
        let log = client.resume(&task, 0).await.rest().await;
        assert_eq!(log.last().map(id), Some(id(last)), "{log:#?}");
        let done = client.get(&task).await;
        let blocks = upstream::blocks_of_task(&longshore_testkit::raw::plain_text(&done));
        assert_eq!(blocks.len(), 1, "{done:#}");
        assert_eq!(blocks[0].content, "Now it works.", "{done:#}");
        assert_eq!(done["history"].as_array().map(Vec::len), Some(3), "{done:#}");

        let turn = upstream::turn(&harness.opencode, &again).await;
        assert_eq!(turn.session, played.turn.session, "the conversation went to another session");
        assert_eq!(model.journal().turns().len(), 4 * (round + 1), "a prompt was sent twice");
    }
}
