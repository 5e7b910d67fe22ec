//! Tests of snapshots and deltas of one part, in every order in which they may arrive.

use longshore_model::{ArtifactId, BlockRef, MessageId};
use serde_json::{Value, json};

use super::*;

const SESSION: &str = "ses_1";

/// A translator with a prompt and one step, both known.
pub(super) fn step() -> Translator {
    let mut translator = Translator::new(SESSION, "msg_p");
    feed(
        &mut translator,
        "message.updated",
        &json!({"info": {"id": "msg_p", "role": "user", "time": {"created": 1}}}),
    );
    message(&mut translator, "msg_a", "msg_p", &json!({}));
    translator
}

pub(super) fn feed(translator: &mut Translator, kind: &str, properties: &Value) {
    let event = json!({"id": "evt_1", "type": kind, "properties": properties});
    translator.event(EventKind::parse(kind).unwrap(), event.to_string().as_bytes()).unwrap();
}

pub(super) fn message(translator: &mut Translator, id: &str, parent: &str, more: &Value) {
    let mut info = json!({"id": id, "parentID": parent, "role": "assistant", "time": {"created": 2}});
    info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    feed(translator, "message.updated", &json!({"info": info}));
}

fn start(translator: &mut Translator, part: &str, text: &str) {
    let part = json!({"id": part, "messageID": "msg_a", "type": "text", "text": text, "time": {"start": 1}});
    feed(translator, "message.part.updated", &json!({"part": part}));
}

fn end(translator: &mut Translator, part: &str, text: &str) {
    let part = json!({"id": part, "messageID": "msg_a", "type": "text", "text": text, "time": {"start": 1, "end": 2}});
    feed(translator, "message.part.updated", &json!({"part": part}));
}

fn delta(translator: &mut Translator, part: &str, delta: &str) {
    let properties = json!({"messageID": "msg_a", "partID": part, "field": "text", "delta": delta});
    feed(translator, "message.part.delta", &properties);
}

/// The text of other turns, before and after their message is known, must leave room for early text of this turn.
#[test]
fn early_text_is_held_however_much_text_other_turns_have() {
    let mut translator = step();
    let much = "x".repeat(256 * 1024);
    for (message_id, more) in [("msg_other", json!({})), ("msg_summary", json!({"mode": "compaction"}))] {
        let parent = if message_id == "msg_other" { "msg_q" } else { "msg_p" };
        for part in 0..2 {
            let part = format!("prt_{message_id}_{part}");
            let properties = json!({"messageID": message_id, "partID": part, "field": "text", "delta": much});
            feed(&mut translator, "message.part.delta", &properties);
            message(&mut translator, message_id, parent, &more);
        }
    }
    delta(&mut translator, "prt_1", "early");
    start(&mut translator, "prt_1", "");
    let events = translator.take();
    assert_eq!(fold(&events).iter().map(|block| block.text.as_str()).collect::<Vec<_>>(), ["early"]);
}

/// A message list that OpenCode cannot show is read only once, and the dropped parts still count.
#[test]
fn the_outcome_is_unknown_if_dropped_parts_cannot_be_read() {
    let mut translator = step();
    let drop_some = |translator: &mut Translator| {
        for number in 0..=MAX_HELD_PARTS {
            let part =
                json!({"id": format!("prt_{number}"), "messageID": "msg_late", "type": "text", "text": ""});
            feed(translator, "message.part.updated", &json!({"part": part}));
        }
    };
    drop_some(&mut translator);
    assert!(translator.must_reread());
    translator.messages_unavailable();
    drop_some(&mut translator);
    assert!(!translator.must_reread());
    message(
        &mut translator,
        "msg_a",
        "msg_p",
        &json!({"finish": "tool-calls", "time": {"created": 2, "completed": 3}}),
    );
    translator.confirm_status(None);
    assert_eq!(translator.verdict(false), Verdict::Unsettled, "another step may have been dropped");
    assert!(short(&translator.forced_outcome(false, true)).contains("it is not known how the turn ended"));
}

fn tool(translator: &mut Translator, state: &Value) {
    let part = json!({"id": "prt_t", "messageID": "msg_a", "type": "tool", "tool": "bash", "callID": "c", "state": state});
    feed(translator, "message.part.updated", &json!({"part": part}));
}

fn listed(translator: &mut Translator, info: &Value, parts: &Value) {
    let mut answer = json!({"id": "msg_a", "parentID": "msg_p", "role": "assistant", "time": {"created": 2}});
    answer.as_object_mut().unwrap().extend(info.as_object().unwrap().clone());
    let prompt = json!({"info": {"id": "msg_p", "role": "user", "time": {"created": 1}}, "parts": []});
    translator.merge_messages(replay::decode(vec![prompt, json!({"info": answer, "parts": parts})]));
}

fn block(part: &str) -> BlockRef {
    let id = ArtifactId::parse(part).unwrap();
    BlockRef { id, kind: BlockKind::Text, message: MessageId::parse("msg_a").ok() }
}

fn text(part: &str, text: &str) -> AgentEvent {
    AgentEvent::Text { block: block(part), text: text.to_owned() }
}

fn replaced(part: &str, text: &str) -> AgentEvent {
    AgentEvent::TextReplaced { block: block(part), text: text.to_owned() }
}

fn ended(part: &str) -> AgentEvent {
    AgentEvent::TextEnded { block: block(part) }
}

#[test]
fn text_is_never_trimmed_and_the_final_snapshot_adds_what_is_missing() {
    let mut t = step();
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", " \n a ");
    end(&mut t, "prt_1", " \n a b\n\n");
    assert_eq!(t.take(), [text("prt_1", " \n a "), text("prt_1", "b\n\n"), ended("prt_1")]);
    // Repeated and late events change nothing.
    end(&mut t, "prt_1", " \n a b\n\n");
    delta(&mut t, "prt_1", "x");
    start(&mut t, "prt_1", "");
    assert_eq!(t.take(), []);
}

#[test]
fn a_final_snapshot_that_differs_replaces_the_text() {
    let mut t = step();
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "abc");
    end(&mut t, "prt_1", "xyz");
    assert_eq!(t.take(), [text("prt_1", "abc"), replaced("prt_1", "xyz"), ended("prt_1")]);
}

#[test]
fn deltas_that_arrive_before_their_part_wait_for_it() {
    let mut t = step();
    delta(&mut t, "prt_1", "a");
    delta(&mut t, "prt_1", "b");
    assert_eq!(t.take(), []);
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "c");
    // Deltas that wait together are reported together.
    assert_eq!(t.take(), [text("prt_1", "abc")]);
    delta(&mut t, "prt_1", "d");
    assert_eq!(t.take(), [text("prt_1", "d")]);
}

#[test]
fn a_finished_call_keeps_nothing_of_its_output() {
    let mut t = step();
    let output = "x".repeat(100_000);
    tool(&mut t, &json!({"status": "running", "input": {"command": "ls"}, "metadata": {"output": output}}));
    tool(&mut t, &json!({"status": "completed", "input": {"command": "ls"}, "output": output}));
    let events = t.take();
    assert!(
        matches!(events.last(), Some(AgentEvent::Tool { call, .. }) if call.output.as_ref() == Some(&output))
    );
    assert!(format!("{t:?}").len() < 10_000);
    // A repeated state is not reported.
    tool(&mut t, &json!({"status": "completed", "input": {"command": "ls"}, "output": output}));
    assert_eq!(t.take(), []);
}

#[test]
fn waiting_deltas_are_bounded_and_the_snapshot_brings_their_text() {
    let mut t = step();
    let big = "x".repeat(100_000);
    for _ in 0..4 {
        delta(&mut t, "prt_1", &big);
    }
    end(&mut t, "prt_1", &big.repeat(4));
    assert_eq!(t.take(), [text("prt_1", &big.repeat(4)), ended("prt_1")]);
}

#[test]
fn parts_that_arrive_before_their_message_wait_for_it() {
    let mut t = Translator::new(SESSION, "msg_p");
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "a");
    feed(
        &mut t,
        "message.updated",
        &json!({"info": {"id": "msg_p", "role": "user", "time": {"created": 1}}}),
    );
    assert_eq!(t.take(), []);
    message(&mut t, "msg_a", "msg_p", &json!({}));
    assert_eq!(t.take(), [text("prt_1", "a")]);
    assert!(!t.must_reread());
    for _ in 0..100 {
        let part =
            json!({"id": "prt_9", "messageID": "msg_z", "type": "text", "text": "?", "time": {"start": 1}});
        feed(&mut t, "message.part.updated", &json!({"part": part}));
    }
    assert!(t.must_reread(), "a dropped part must be read from the list");
}

#[test]
fn after_a_gap_text_waits_for_its_final_snapshot() {
    let mut t = step();
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "a");
    t.gap();
    listed(
        &mut t,
        &json!({}),
        &json!([
            {"id": "prt_1", "messageID": "msg_a", "type": "text", "text": "", "time": {"start": 1}},
            {"id": "prt_2", "messageID": "msg_a", "type": "text", "text": "", "time": {"start": 1}},
        ]),
    );
    // "b" was lost in the gap, so "c" cannot be reported yet. How much of prt_2 was lost is unknown.
    delta(&mut t, "prt_1", "c");
    delta(&mut t, "prt_2", "z");
    assert_eq!(t.take(), [text("prt_1", "a")]);
    end(&mut t, "prt_1", "abc");
    end(&mut t, "prt_2", "xyz");
    assert_eq!(t.take(), [text("prt_1", "bc"), ended("prt_1"), text("prt_2", "xyz"), ended("prt_2")]);
}

#[test]
fn a_part_that_starts_after_the_gap_is_live_even_if_the_list_has_it() {
    let mut t = step();
    t.gap();
    listed(
        &mut t,
        &json!({}),
        &json!([
            {"id": "prt_1", "messageID": "msg_a", "type": "text", "text": "", "time": {"start": 1}},
        ]),
    );
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "a");
    assert_eq!(t.take(), [text("prt_1", "a")]);
}

#[test]
fn events_that_are_older_than_the_list_change_nothing() {
    let mut t = step();
    t.gap();
    listed(
        &mut t,
        &json!({"finish": "stop", "time": {"created": 2, "completed": 3}}),
        &json!([
            {"id": "prt_1", "messageID": "msg_a", "type": "text", "text": "abc", "time": {"start": 1, "end": 2}},
            {"id": "prt_t", "messageID": "msg_a", "type": "tool", "tool": "bash", "callID": "c",
             "state": {"status": "completed", "input": {"command": "ls"}, "output": "x"}},
        ]),
    );
    assert_eq!(t.take().len(), 3);
    start(&mut t, "prt_1", "");
    delta(&mut t, "prt_1", "abc");
    tool(&mut t, &json!({"status": "pending", "input": {}}));
    tool(&mut t, &json!({"status": "running", "input": {"command": "ls"}, "metadata": {"output": "x"}}));
    end(&mut t, "prt_1", "abc");
    message(&mut t, "msg_a", "msg_p", &json!({}));
    assert_eq!(t.take(), []);
    t.confirm_status(None);
    assert_eq!(t.verdict(false), Verdict::Over(Outcome::Completed { remark: None }));
}

#[test]
fn a_part_that_a_user_deletes_is_withdrawn() {
    let mut t = step();
    end(&mut t, "prt_1", "abc");
    t.take();
    feed(&mut t, "message.part.removed", &json!({"messageID": "msg_a", "partID": "prt_1"}));
    assert_eq!(t.take(), [replaced("prt_1", "")]);
}

#[test]
fn only_the_added_output_of_a_running_call_is_reported() {
    let mut t = step();
    let running = |output: &str| json!({"status": "running", "input": {"command": "x"}, "metadata": {"output": output}});
    tool(&mut t, &json!({"status": "pending", "input": {}, "raw": ""}));
    tool(&mut t, &running(""));
    tool(&mut t, &running(""));
    tool(&mut t, &running("one\n"));
    tool(&mut t, &running("one\ntwo\n"));
    tool(&mut t, &running("another\n"));
    tool(&mut t, &json!({"status": "completed", "input": {"command": "x"}, "output": "done", "title": "X"}));
    let reported: Vec<String> = t
        .take()
        .iter()
        .map(|event| match event {
            AgentEvent::Tool { call, .. } => format!("{} {:?}", call.status.as_str(), call.output),
            AgentEvent::ToolOutput { call, .. } => format!("+ {:?}", call.output),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        reported,
        [
            "pending None",
            "running None",
            "+ Some(\"one\\n\")",
            "+ Some(\"two\\n\")",
            "running Some(\"another\\n\")",
            "completed Some(\"done\")",
        ]
    );
}

#[test]
fn a_call_keeps_its_title_and_subtitle() {
    let mut t = step();
    let state = |subtitle: &str| json!({"status": "running", "input": {"command": "x"}, "title": "X", "subtitle": subtitle});
    // An empty subtitle counts as none, and a repeated state is not reported.
    for subtitle in ["", "first", "first", "second"] {
        tool(&mut t, &state(subtitle));
    }
    let reported: Vec<_> = t
        .take()
        .into_iter()
        .map(|event| match event {
            AgentEvent::Tool { call, .. } => (call.title, call.subtitle),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [None, Some("first"), Some("second")];
    assert_eq!(reported, expected.map(|subtitle| (Some("X".to_owned()), subtitle.map(str::to_owned))));
}

#[test]
fn a_runaway_is_many_answers_in_a_row_without_a_finish_reason() {
    let mut t = step();
    let unknown = json!({"finish": "unknown", "time": {"created": 3, "completed": 4}});
    for nth in 1..RUNAWAY {
        message(&mut t, &format!("msg_b{nth}"), "msg_p", &unknown);
        assert!(!t.is_runaway());
    }
    message(
        &mut t,
        "msg_c",
        "msg_p",
        &json!({"finish": "tool-calls", "time": {"created": 3, "completed": 4}}),
    );
    message(&mut t, "msg_d", "msg_p", &unknown);
    assert!(!t.is_runaway(), "another answer came between");
    for nth in 1..RUNAWAY {
        message(&mut t, &format!("msg_e{nth}"), "msg_p", &unknown);
    }
    assert!(t.is_runaway());
    message(&mut t, "msg_f", "msg_p", &json!({}));
    assert!(t.is_runaway(), "the next answer has begun");
}

const RUNAWAY: usize = super::super::verdict::RUNAWAY_LIMIT;
