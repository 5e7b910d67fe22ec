//! The gateway dies while an external turn runs: the turn becomes exactly one task, and its asks can be answered.

use serde_json::json;

use super::external_client::{ExternalSession, eventually};
use crate::client::message_on;
use crate::frames::{state, state_of};
use crate::harness::Harness;
use crate::upstream::Agreement;

#[tokio::test(flavor = "multi_thread")]
async fn long_an_external_turn_is_one_task_however_often_the_gateway_dies() {
    let (mut harness, model) = Harness::with_own_model().await;
    let (session, context) = {
        let external = ExternalSession::open(&harness, "before the gateway dies").await;
        (external.session.clone(), external.context.clone())
    };
    let opencode = harness.opencode.pid();

    // The prompt arrives while no gateway runs.
    harness.gateway.kill();
    let away =
        "scn:bash cmd=\"touch typed-away\" scn:text n=2 text=\"Typed away.\" (typed while it was away)";
    ExternalSession::at(&harness, "typed while it was away", &session, &context).type_prompt(away).await;
    eventually("OpenCode asks", async || (!harness.opencode.asks().await.is_empty()).then_some(())).await;
    harness.restart().await;
    assert_eq!(harness.opencode.pid(), opencode, "another OpenCode was started");
    let (task, request) = asking(&harness, &session, &context, 2).await;

    // The gateway dies once more during the ask.
    harness.gateway.kill();
    harness.restart().await;
    let (again, still) = asking(&harness, &session, &context, 2).await;
    assert_eq!((&again, &still), (&task, &request), "another task, or another ask");
    answer(&harness, &task, &request).await;
    let external = ExternalSession::at(&harness, "typed while it was away", &session, &context);
    let played = external.finished(away, &task, Agreement::Whole).await;
    played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "Typed away.")]);
    external.wait_until_idle().await;
    external.assert_task_count(2).await;

    // The gateway dies between the prompt and its ask.
    let between = "scn:bash cmd=\"touch between\" ttft=3000 scn:text n=2 text=\"Between.\" (dies in between)";
    external.type_prompt(between).await;
    let task = external.wait_for_newest_of(3).await;
    assert_eq!(state_of(&task), "WORKING", "{task:#}");
    let first = task["id"].as_str().expect("a task has an id").to_owned();
    harness.gateway.kill();
    harness.restart().await;
    let (task, request) = asking(&harness, &session, &context, 3).await;
    assert_eq!(task, first, "it was taken up as another task");
    answer(&harness, &task, &request).await;
    let external = ExternalSession::at(&harness, "dies in between", &session, &context);
    let played = external.finished(between, &task, Agreement::Whole).await;
    played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "Between.")]);
    let asks = played.frames.iter().filter(|frame| state(frame) == Some("INPUT_REQUIRED")).count();
    assert_eq!(asks, 1, "it asked once: {:#?}", played.frames);

    // No prompt was sent twice: two turns of one step, and two of two.
    external.wait_until_idle().await;
    external.fence(4).await;
    let turns = model.journal().turns();
    assert_eq!(turns.len(), 6, "{turns:#?}");
    harness.assert_no_open_asks("after all of it").await;
}

/// Waits until the newest of this many tasks asks. Returns the task and the ask.
async fn asking(harness: &Harness, session: &str, context: &str, count: usize) -> (String, String) {
    let external = ExternalSession::at(harness, "it asks", session, context);
    let task = external.wait_for_newest_of(count).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    let request = external.wait_for_ask(&id).await;
    let asking = harness.client.get(&id).await;
    assert_eq!(state_of(&asking), "INPUT_REQUIRED", "{asking:#}");
    (id, request)
}

async fn answer(harness: &Harness, task: &str, request: &str) {
    let answer = json!({"data": {"request_id": request, "reply": "once"}});
    let answered = harness.client.send(&message_on(task, &answer)).await;
    assert_eq!(state_of(&answered), "COMPLETED", "{answered:#}");
}
