//! Streams at an ask, readers with and without extensions, answers that are given at OpenCode itself, and turns that are stopped
//! while they ask.

use longshore_testkit::raw::Frame;
use serde_json::{Value, json};

use crate::asking::{Answer, AskingTask, By, interrupt_field, phase, request_id, with_interrupts};
use crate::client::{Binding, message, message_in, message_on};
use crate::frames::{check_log, context_id, explanation, state, state_of, task_id};
use crate::harness::{Harness, scenario, wait_until_idle};
use crate::upstream::{self, Agreement};

const BINDINGS: [Binding; 2] = [Binding::JsonRpc, Binding::Rest];

/// The extensions that add metadata to a task.
const EXTENSIONS: [&str; 4] = [
    "urn:opencode-a2a:extension:session-binding:v1",
    "urn:opencode-a2a:extension:model-selection:v1",
    "urn:opencode-a2a:extension:stream-hints:v1",
    "urn:opencode-a2a:extension:interactive-interrupt:v1",
];

/// One binding each; the `long_` tests have the other combinations.
#[tokio::test(flavor = "multi_thread")]
async fn asks_hold_their_turn_until_they_are_answered_and_end_with_it() {
    let mut harness = Harness::demo().await;
    scenario("held turns", an_ask_holds_its_turn_until_it_is_answered(&mut harness, &[Binding::JsonRpc]))
        .await;
    scenario("extensions", readers_with_and_without_extensions_get_the_same_events(&harness)).await;
    scenario("answers at OpenCode", an_answer_at_opencode_itself_is_noticed(&harness)).await;
    harness.client = harness.client.over(Binding::Rest);
    for (number, by) in [StoppedBy::Client, StoppedBy::OpenCode, StoppedBy::Client].into_iter().enumerate() {
        stop_while_asking(&harness, Binding::Rest, by, number).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_an_ask_holds_its_turn_in_both_bindings() {
    let mut harness = Harness::demo().await;
    an_ask_holds_its_turn_until_it_is_answered(&mut harness, &BINDINGS).await;
}

async fn an_ask_holds_its_turn_until_it_is_answered(harness: &mut Harness, bindings: &[Binding]) {
    for &binding in bindings {
        harness.client = harness.client.over(binding);

        // A blocking send returns at the ask, and the message that answers it returns at the end.
        let prompt = format!("scn:bash cmd=\"touch blocked-{binding:?}\" scn:text n=1");
        let asked = harness.client.send(&message(&prompt)).await;
        assert_eq!(state_of(&asked), "INPUT_REQUIRED", "{asked:#}");
        let task = asked["id"].as_str().expect("a task has an id");
        let answered = harness.client.send(&message_on(task, &json!({"text": "Once"}))).await;
        assert_eq!(state_of(&answered), "COMPLETED", "{answered:#}");
        harness.finished(&prompt, task).await.ended("COMPLETED", "");
        let late = harness.client.try_send(&message_on(task, &json!({"text": "once"}))).await;
        let late = late.expect_err("the task is over");
        assert_eq!(late.reason(), "UNSUPPORTED_OPERATION", "{}", late.body);

        // A subscription stays open, with or without extensions.
        let prompt = format!("scn:bash cmd=\"touch streamed-{binding:?}\" scn:text n=1");
        let mut asking = harness.until_asked(&message(&prompt)).await;
        let subscribed = harness.client.subscribe(&asking.task).await;
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        harness.answer(&mut asking, &request, By::Words, Answer::Reply("once")).await;
        let subscribed = subscribed.rest().await;
        assert_eq!(subscribed.last().and_then(state), Some("COMPLETED"), "{subscribed:#?}");
        harness.finished(&prompt, &asking.task).await.ended("COMPLETED", "");

        // The rejection of one of two asks ends the other as well.
        let prompt = format!("scn:pair a=\"rm -f one-{binding:?}\" b=\"rm -f two\" scn:text n=1");
        let mut asking = harness.until_asked(&message(&prompt)).await;
        let requests = harness.open_asks(&asking.task, 2).await;
        harness.answer(&mut asking, &requests[1], By::Data, Answer::Reply("reject")).await;
        let played = harness.finished(&prompt, &asking.task).await;
        played.ended("FAILED", "rejected permission").has(&[("tool:bash", "error"), ("tool:bash", "error")]);
    }
}

async fn readers_with_and_without_extensions_get_the_same_events(harness: &Harness) {
    // Everything that appears in metadata: reasoning, steps, asks of the agent and of a sub-agent, tool calls, usage.
    let prompt = "scn:question q=\"Ready?\" options=\"Yes|No\" \
                  scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch read\\\" scn:text n=1\" \
                  scn:todo scn:reason rn=2 n=2 text=\"all said\"";
    let mut first = harness.client.activating(&EXTENSIONS).stream(&message(prompt)).await;
    let mut with = first.until("the task", |_| true).await;
    let task = task_id(&with[0]);
    let mut readers = Vec::new();
    for binding in BINDINGS {
        let client = harness.client.over(binding);
        readers.push((binding, false, client.resume(&task, 0).await));
        readers.push((binding, true, client.activating(&EXTENSIONS).resume(&task, 0).await));
    }
    for answer in [Answer::Choose(&[&["Yes"]]), Answer::Reply("once")] {
        with.extend(first.until("an ask", |frame| phase(frame) == Some("asked")).await);
        let request = request_id(with.last().expect("a frame was found"));
        harness.answer_by_method(request, answer).await.expect("the answer is accepted");
    }
    with.extend(first.rest().await);
    check_log(prompt, &with);

    let reported: Value = with.iter().map(|frame| frame.json.clone()).collect();
    let reported = reported.to_string();
    for note in ["stream", "session", "progress", "interrupt", "usage"] {
        assert!(reported.contains(&format!("\"{note}\":{{")), "no shared.{note} in {reported}");
    }
    let without: Vec<Frame> =
        with.iter().map(|frame| Frame { json: without_shared(&frame.json), ..frame.clone() }).collect();
    for (binding, extended, reader) in readers {
        let frames = reader.rest().await;
        let mut expected = if extended { with.clone() } else { without.clone() };
        // Updates that only repeat the status are sent for their notes.
        expected.retain(|expected| {
            let has_status = expected.json.pointer("/statusUpdate/status").is_some();
            extended || !has_status || frames.iter().any(|frame| frame.id == expected.id)
        });
        assert_eq!(frames.len(), expected.len(), "{binding:?} {extended}: another number of events");
        for (frame, expected) in frames.iter().zip(&expected) {
            assert_eq!(frame.id, expected.id, "{binding:?} {extended}");
            assert_eq!(frame.json, expected.json, "{binding:?} {extended}: event {:?}", frame.id);
        }
        // The same holds for the stored task.
        let client = harness.client.over(binding);
        let stored = client.activating(&EXTENSIONS).get(&task).await;
        assert_ne!(stored, without_shared(&stored), "{binding:?}: nothing is shown to those who ask for it");
        assert_eq!(client.get(&task).await, without_shared(&stored), "{binding:?}");
    }
    harness.finished(prompt, &task).await.ended("COMPLETED", "");
}

async fn an_answer_at_opencode_itself_is_noticed(harness: &Harness) {
    for (prompt, kind, reply, outcome) in [
        (
            "scn:bash cmd=\"touch elsewhere\" scn:text n=1",
            "permission",
            json!({"reply": "once"}),
            "elsewhere",
        ),
        (
            "scn:question q=\"Elsewhere?\" options=\"A|B\" scn:text n=1",
            "question",
            json!({"answers": [["B"]]}),
            "elsewhere",
        ),
        (
            "scn:bash cmd=\"touch refused\" scn:text n=1",
            "permission",
            json!({"reply": "reject", "message": "not today"}),
            "rejected_elsewhere",
        ),
    ] {
        let asking = harness.until_asked(&message(prompt)).await;
        let subscribed = with_interrupts(&harness.client).subscribe(&asking.task).await;
        let request = harness.open_asks(&asking.task, 1).await.remove(0);
        assert_eq!(harness.opencode.asks().await, [request.as_str()]);
        harness.opencode.post_json(&format!("/{kind}/{request}/reply"), &reply).await;
        let frames = subscribed.rest().await;
        let reported = frames.iter().find(|frame| phase(frame) == Some("resolved"));
        let reported =
            reported.unwrap_or_else(|| panic!("{prompt}: no frame reports the answer: {frames:#?}"));
        assert_eq!((request_id(reported), interrupt_field(reported, "outcome")), (request.as_str(), outcome));
        harness.finished(prompt, &asking.task).await.ended("COMPLETED", "");
    }
}

/// Who stops the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoppedBy {
    Client,
    OpenCode,
}

/// The asks of a tool, of a question and of a sub-agent, and their answers.
const ASKS: [(&str, Answer<'static>); 3] = [
    ("scn:bash cmd=\"touch {n}\" scn:text n=1", Answer::Reply("once")),
    ("scn:question q=\"Shall I, {n}?\" options=\"Yes|No\" scn:text n=1", Answer::Choose(&[&["Yes"]])),
    (
        "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch {n}\\\" scn:text n=1\" scn:text n=1",
        Answer::Reply("once"),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn long_every_ask_ends_with_its_turn_in_both_bindings() {
    let mut harness = Harness::demo().await;
    for binding in BINDINGS {
        harness.client = harness.client.over(binding);
        for by in [StoppedBy::Client, StoppedBy::OpenCode] {
            for number in 0..ASKS.len() {
                stop_while_asking(&harness, binding, by, number).await;
            }
        }
    }
}

/// Stops the turn of the ask of this number: the ask ends with it, and the next message of the context works.
async fn stop_while_asking(harness: &Harness, binding: Binding, by: StoppedBy, number: usize) {
    let (prompt, answer) = ASKS[number];
    let name = &format!("{binding:?}-{by:?}-{number}");
    let prompt = &prompt.replace("{n}", name);
    let frames = harness.client.stream(&message(prompt)).await.rest().await;
    let asking = AskingTask::of(&frames);
    let subscribed = with_interrupts(&harness.client).subscribe(&asking.task).await;
    let request = harness.open_asks(&asking.task, 1).await.remove(0);
    let session = upstream::turn(&harness.opencode, prompt).await.session;
    match by {
        StoppedBy::Client => {
            let canceled = harness.client.cancel(&asking.task).await;
            let canceled = canceled.expect("a task that asks can be canceled");
            assert_eq!(state_of(&canceled), "CANCELED", "{name}: {canceled:#}");
        }
        StoppedBy::OpenCode => {
            harness.opencode.post(&format!("/session/{session}/abort")).await;
        }
    }
    let reported = subscribed.rest().await;
    let (end, words) = match by {
        StoppedBy::Client => ("CANCELED", ""),
        StoppedBy::OpenCode => end_at_opencode(harness, prompt).await,
    };
    assert_eq!(reported.last().and_then(state), Some(end), "{name}: {reported:#?}");
    if by == StoppedBy::OpenCode {
        let closed = reported.iter().find(|frame| phase(frame) == Some("resolved"));
        let closed =
            closed.unwrap_or_else(|| panic!("{name}: no frame reports the end of the ask: {reported:#?}"));
        assert_eq!((request_id(closed), interrupt_field(closed, "outcome")), (request.as_str(), "dropped"));
    }

    // The task does not mention the ask any more, and answers come too late.
    let log = harness.client.resume(&asking.task, 0).await.rest().await;
    check_log(name, &log);
    let task = with_interrupts(&harness.client).get(&asking.task).await;
    assert_eq!(explanation(&task), words, "{name}: a task that is over asks for nothing");
    assert_eq!(task.pointer("/metadata/shared/interrupt"), None, "{name}: {task:#}");
    assert_eq!(harness.listed().await, Vec::<Value>::new(), "{name}: asks are still listed");
    harness.assert_ask_not_found(name, &asking.task, &request, answer).await;

    let next = message_in(&context_id(&frames[0]), &format!("scn:text n=1 text=\"after {name}\""));
    let next = harness.play_message(&next, Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, session, "{name}: the conversation went to another session");
    wait_until_idle(harness, &session).await;
    harness.assert_no_open_asks(name).await;
    assert!(!harness.gateway.workspace().join(name).exists(), "{name}: a command ran that nobody allowed");
}

/// How a turn ended that was stopped in OpenCode. When a sub-agent asks, OpenCode sometimes stops only the sub-agent, and the turn
/// continues (in one of twelve tries without a gateway).
async fn end_at_opencode(harness: &Harness, prompt: &str) -> (&'static str, &'static str) {
    let turn = upstream::settled_turn(&harness.opencode, prompt).await;
    let newest = turn.answers.last().expect("a turn that asks has an answer");
    match newest.pointer("/info/error/name").and_then(Value::as_str) {
        Some("MessageAbortedError") => ("CANCELED", "The turn was stopped at OpenCode itself."),
        other => {
            let goes_on = other.is_none() && prompt.contains("scn:task");
            assert!(goes_on, "{prompt}: expected that the turn is stopped: {newest:#}");
            ("COMPLETED", "")
        }
    }
}

/// The JSON that a client without extensions gets.
fn without_shared(json: &Value) -> Value {
    match json {
        Value::Array(items) => items.iter().map(without_shared).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let mut value = without_shared(value);
                if name == "metadata" && value.as_object_mut()?.remove("shared").is_some() {
                    // Empty metadata is left out.
                    value.as_object().filter(|left| !left.is_empty())?;
                }
                Some((name.clone(), value))
            })
            .collect(),
        other => other.clone(),
    }
}
