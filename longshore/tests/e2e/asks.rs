//! What goes on around an ask: streams that close and that stay, sub-agents, cancels, answers given elsewhere.

use serde_json::{Value, json};

use crate::asking::{Answer, Asking, By, knowing};
use crate::client::{message, message_in, message_on};
use crate::frames::{context_id, explanation, state, state_of};
use crate::harness::{Harness, wait_until_idle};
use crate::upstream::{self, Agreement};

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_holds_its_turn_until_somebody_answers() {
    let harness = Harness::demo().await;

    // A blocking send returns at the ask, and the answer to it at the end.
    let prompt = "scn:bash cmd=\"touch blocked\" scn:text n=1";
    let asked = harness.client.send(&message(prompt)).await;
    assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
    let task = asked["id"].as_str().unwrap();
    let answered = harness.client.send(&message_on(task, &json!({"text": "Once"}))).await;
    assert_eq!(state_of(&answered), "COMPLETED", "{answered:#}");
    harness.finished(prompt, task).await.ended("COMPLETED", "");
    let late = json!({"message": message_on(task, &json!({"text": "once"}))});
    let late = harness.client.try_call("SendMessage", late).await.expect_err("the task is over");
    assert_eq!(late.code, -32004, "{}", late.body);

    // A subscription stays open, and so does the stream of a client that knows asks.
    let prompt = "scn:bash cmd=\"touch streamed\" scn:text n=1";
    let mut sent = knowing(&harness.client).stream(&message(prompt)).await;
    let begun = sent.until("the ask", |frame| state(frame) == Some("INPUT_REQUIRED")).await;
    let interrupt = begun.last().unwrap().json.pointer("/statusUpdate/metadata/shared/interrupt").cloned();
    let interrupt = interrupt.unwrap_or_else(|| panic!("no interrupt in {begun:#?}"));
    let mut asking = Asking::of(&begun);
    let subscribed = harness.client.subscribe(&asking.task).await;
    let requests = harness.open_asks(&asking.task, 1).await;
    assert_eq!(interrupt["request_id"], requests[0].as_str(), "{interrupt:#}");
    assert_eq!((&interrupt["type"], &interrupt["phase"]), (&json!("permission"), &json!("asked")));
    assert_eq!(interrupt["details"]["patterns"], json!(["touch streamed"]), "{interrupt:#}");
    harness.answer(&mut asking, &requests[0], By::Words, Answer::Reply("once")).await;
    let (sent, subscribed) = (sent.rest().await, subscribed.rest().await);
    for (which, frames) in [("sent", &sent), ("subscribed", &subscribed)] {
        assert_eq!(frames.last().and_then(state), Some("COMPLETED"), "{which}: {frames:#?}");
    }
    assert_eq!(sent.last().unwrap().id, subscribed.last().unwrap().id);
    let resolved =
        sent.iter().find_map(|frame| frame.json.pointer("/statusUpdate/metadata/shared/interrupt"));
    let resolved = resolved.unwrap_or_else(|| panic!("no interrupt in {sent:#?}"));
    assert_eq!((&resolved["phase"], &resolved["resolution"]), (&json!("resolved"), &json!("replied")));
    harness.finished(prompt, &asking.task).await.ended("COMPLETED", "");

    // A sub-agent's permission is asked for on the only task that the client knows.
    let prompt =
        "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch errand\\\" scn:text n=3\" scn:text n=1";
    let asked = "A sub-agent asks for permission to run: touch errand";
    let played = harness.play_asking(prompt, By::Words, &[(asked, Answer::Reply("once"))]).await;
    played.ended("COMPLETED", "").has(&[("tool:task", "completed"), ("text", "anchor  ")]);
    let brought = played.call("task")["output"].as_str().unwrap_or_default().to_owned();
    assert!(brought.contains("anchor  ballast buoy ca "), "the errand brought back {brought:?}");
    for file in ["blocked", "streamed", "errand"] {
        assert!(harness.gateway.workspace().join(file).exists(), "{file} was allowed but not made");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_ends_with_its_turn_or_at_opencode_itself() {
    let harness = Harness::demo().await;

    // Somebody answers at OpenCode itself.
    let asks = [
        ("scn:bash cmd=\"touch elsewhere\" scn:text n=1", "permission", json!({"reply": "once"})),
        (
            "scn:question q=\"Elsewhere?\" options=\"A|B\" scn:text n=1",
            "question",
            json!({"answers": [["B"]]}),
        ),
    ];
    for (prompt, kind, reply) in asks {
        let asking = harness.until_asked(&message(prompt)).await;
        let subscribed = knowing(&harness.client).subscribe(&asking.task).await;
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        assert_eq!(harness.opencode.asks().await, [request.as_str()]);
        harness.opencode.post_json(&format!("/{kind}/{request}/reply"), &reply).await;
        let frames = subscribed.rest().await;
        let told = |frame: &longshore_testkit::raw::Frame| {
            let interrupt = frame.json.pointer("/statusUpdate/metadata/shared/interrupt");
            interrupt.is_some_and(|interrupt| interrupt["phase"] == "resolved")
        };
        assert!(frames.iter().any(told), "{prompt}: nobody was told of the answer: {frames:#?}");
        harness.finished(prompt, &asking.task).await.ended("COMPLETED", "");
    }

    // The client cancels instead: nothing is asked any more, and the session can be used again.
    let asks = [
        "scn:bash cmd=\"touch forbidden\" scn:text n=1",
        "scn:question q=\"Shall I?\" options=\"Yes|No\" scn:text n=1",
        "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch hidden\\\" scn:text n=1\" scn:text n=1",
    ];
    for (place, prompt) in asks.into_iter().enumerate() {
        let frames = harness.client.stream(&message(prompt)).await.rest().await;
        let asking = Asking::of(&frames);
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        let canceled = harness.client.cancel(&asking.task).await.expect("a task that asks can be canceled");
        assert_eq!(state_of(&canceled), "CANCELED", "{canceled:#}");
        let next = format!("scn:text n=1 text=\"after {place}\"");
        let next = message_in(&context_id(&frames[0]), &next);
        let next = harness.play_message(&next, Agreement::Whole).await;
        next.ended("COMPLETED", "");
        let session = upstream::settled_turn(&harness.opencode, prompt).await.session;
        assert_eq!(next.turn.session, session, "{prompt}: the conversation went to another session");
        wait_until_idle(&harness, &session).await;
        // OpenCode itself may still list it; here nobody is asked any more.
        assert_eq!(harness.listed().await, Vec::<Value>::new(), "{prompt}: asks are still listed");
        let answer = json!({"request_id": request, "reply": "once"});
        let late = knowing(&harness.client).try_call("a2a.interrupt.permission.reply", answer).await;
        let late = late.expect_err("nothing is asked any more");
        assert!(late.body.to_string().contains("INTERRUPT_REQUEST_NOT_FOUND"), "{prompt}: {}", late.body);
        assert_eq!(explanation(&canceled), "", "{prompt}: a canceled task asks for nothing");
    }
    for file in ["forbidden", "hidden"] {
        assert!(!harness.gateway.workspace().join(file).exists(), "{file} was made though nobody allowed it");
    }
}
