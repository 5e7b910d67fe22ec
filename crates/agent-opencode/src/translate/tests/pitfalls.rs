//! Tests of OpenCode's pitfalls, each with the recording that shows it.

use serde_json::Value;

use super::replay::{Replay, decode};
use super::*;

/// Plays events until a matching one has been handled.
fn until(replay: &mut Replay, found: impl Fn(&Value) -> bool) {
    while !found(&replay.next_event().expect("the recording has such an event")) {}
}

fn is_idle(event: &Value) -> bool {
    event["type"] == "session.idle"
}

#[test]
fn idle_is_reported_twice_on_error_and_ends_the_turn_once() {
    for name in ["bad_json", "abort_stream", "error_500_gives_up", "stall"] {
        let mut replay = Replay::of(name, 0);
        until(&mut replay, is_idle);
        assert_eq!(replay.translator.verdict(false), Verdict::Unsettled, "{name}: the message is not final");
        until(&mut replay, |event| event["type"] == "session.status");
        assert!(replay.outcome.is_some(), "{name}: the second idle ends it");
    }
}

#[test]
fn no_idle_is_reported_when_the_prompt_fails_before_the_run() {
    let mut replay = Replay::of("error_model_not_found", 2);
    assert_eq!(replay.translator.verdict(false), Verdict::Running);
    until(&mut replay, |event| event["type"] == "session.error");
    assert_eq!(replay.translator.verdict(false), Verdict::Unsettled);
    assert_eq!(replay.translator.evidence(), Evidence::Refused);
}

#[test]
fn late_events_of_the_turn_before_do_not_end_the_turn() {
    // The first idle event of the aborted turn, and its last message, belong to the previous turn.
    let mut before = Replay::of("abort_stream", 0);
    let mut next = Translator::new(&before.session, "msg_next");
    while let Some(event) = before.next_event() {
        let kind = EventKind::parse(event["type"].as_str().unwrap()).unwrap();
        next.event(kind, event.to_string().as_bytes()).unwrap();
        assert!(!matches!(next.verdict(false), Verdict::Over(_)), "{event}");
    }
    // Both turns have the session's title.
    let reported = next.take();
    assert!(reported.iter().all(|event| matches!(event, AgentEvent::Session(_))), "{reported:?}");
    // They do not affect the outcome either, because this turn was not stopped.
    assert_eq!(next.evidence(), Evidence::None);
    let forced_outcome = next.forced_outcome(false, true);
    assert!(matches!(forced_outcome, Outcome::Failed(_)), "{forced_outcome:?}");
}

#[test]
fn text_of_a_failed_attempt_is_withdrawn_when_the_retry_begins() {
    for name in ["cut_fin_partial", "cut_rst_partial", "sse_error_midstream"] {
        let mut replay = Replay::of(name, 0);
        until(&mut replay, |event| event["properties"]["status"]["type"] == "retry");
        assert!(!replay.events.is_empty(), "{name} shows the attempt");
        assert_eq!(fold(&replay.events), [], "{name}");
        let mut replay = replay.finished();
        replay.close();
        let texts: Vec<String> = fold(&replay.events).into_iter().map(|block| block.text).collect();
        assert_eq!(texts, ["recovered after failure"], "{name}");
    }
}

#[test]
fn text_of_an_aborted_turn_stays() {
    let mut replay = Replay::of("stall", 0).finished();
    replay.close();
    let blocks = fold(&replay.events);
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].text.as_str(), blocks[0].ended), ("alpha b bravo c charlie ", true));
}

#[test]
fn text_of_a_killed_server_stays() {
    let mut replay = Replay::of("restart_sigterm", 0).finished();
    assert_eq!(replay.outcome, None);
    let messages = Replay::stored("restart_after_sigterm", &replay.session, &replay.prompt).unwrap();
    replay.translator.gap();
    replay.translator.merge_messages(decode(messages));
    replay.translator.confirm_status(None);
    assert_eq!(replay.translator.verdict(false), Verdict::Unsettled);
    replay.close();
    let blocks = fold(&replay.events);
    assert_eq!((blocks[0].text.as_str(), blocks[0].ended), ("alpha b ", true));
}

#[test]
fn a_prompt_is_never_reported_as_output() {
    for name in ["text", "task", "title_generation", "auto_compact", "context_overflow"] {
        let replay = Replay::of(name, 0);
        let prompt = replay.prompt.clone();
        let replay = replay.finished();
        for block in fold(&replay.events) {
            assert!(
                !block.text.starts_with("scn:") && !block.text.starts_with("hello scn:"),
                "{name}: {block:?}"
            );
            assert_ne!(block.id, prompt);
        }
    }
}

#[test]
fn a_turn_continues_after_a_compaction_and_the_summary_is_not_output() {
    for name in ["auto_compact", "context_overflow"] {
        let replay = Replay::of(name, 0).finished();
        assert_eq!(replay.outcome, Some(Outcome::Completed { remark: None }), "{name}");
        let blocks = fold(&replay.events);
        assert!(blocks.iter().all(|block| !block.text.contains("Scripted summary")), "{name}: {blocks:?}");
        assert!(blocks.last().is_some_and(|block| block.text.starts_with("echo: ")), "{name}: {blocks:?}");
    }
}

#[test]
fn a_prompt_that_opencode_repeats_after_a_compaction_belongs_to_the_turn() {
    let replay = Replay::of("overflow_replays_prompt", 1).finished();
    assert_eq!(replay.outcome, Some(Outcome::Completed { remark: None }));
    let texts: Vec<String> = fold(&replay.events).into_iter().map(|block| block.text).collect();
    assert_eq!(texts, ["recovered after failure"]);
}

#[test]
fn a_stop_is_not_the_end_when_the_conversation_must_be_compacted() {
    let mut replay = Replay::of("stop_then_compact", 0);
    until(&mut replay, |event| event["properties"]["info"]["time"]["completed"].is_number());
    assert_eq!(replay.translator.verdict(false), Verdict::Running, "complete with the reason stop");
    let replay = replay.finished();
    assert_eq!(replay.outcome, Some(Outcome::Completed { remark: None }));
    let texts: Vec<String> = fold(&replay.events).into_iter().map(|block| block.text).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[1].starts_with("echo: Continue"), "{texts:?}");
}

#[test]
fn a_prompt_of_another_client_during_a_compaction_does_not_belong_to_the_turn() {
    let message = |id: &str, role: &str, parent: Option<&str>, created: u32, mode: &str, part: Value| {
        let mut part = part;
        part["id"] = format!("prt_{id}").into();
        part["messageID"] = id.into();
        serde_json::json!({"info": {"id": id, "role": role, "parentID": parent, "mode": mode, "finish": "stop",
            "time": {"created": created, "completed": created + 10}}, "parts": [part]})
    };
    let text = |text: &str| serde_json::json!({"type": "text", "text": text, "time": {"end": 1}});
    let mut translator = Translator::new("ses_1", "msg_1");
    translator.merge_messages(decode(vec![
        message("msg_1", "user", None, 1, "", text("ours")),
        message("msg_c", "user", None, 20, "", serde_json::json!({"type": "compaction", "auto": true})),
        message("msg_s", "assistant", Some("msg_c"), 21, "compaction", text("a summary")),
        message("msg_x", "user", None, 25, "", text("theirs")),
        message("msg_r", "user", None, 31, "", text("ours")),
        message("msg_a", "assistant", Some("msg_r"), 32, "build", text("the answer")),
        message("msg_y", "assistant", Some("msg_x"), 50, "build", text("another answer")),
    ]));
    let texts: Vec<String> = fold(&translator.take()).into_iter().map(|block| block.text).collect();
    assert_eq!(texts, ["the answer"]);
}

#[test]
fn sub_agents_do_not_end_the_turn_of_their_root() {
    // The result is in the tool call.
    let replay = Replay::of("task", 0).finished();
    let blocks = fold(&replay.events);
    assert!(
        blocks.iter().any(|block| block.kind == "tool:task" && block.text.contains("state=\"completed\""))
    );
    assert_eq!(blocks.last().unwrap().kind, "text");
}

#[test]
fn a_prompt_of_another_client_ends_this_turn_and_its_answer_is_not_output() {
    let info = |id: &str, role: &str, parent: Option<&str>, created: u32, finish: &str| {
        serde_json::json!({"info": {"id": id, "role": role, "parentID": parent, "finish": finish,
            "time": {"created": created, "completed": 99}}, "parts": [
            {"id": format!("prt_{id}"), "messageID": id, "type": "text", "text": id, "time": {"end": 1}}]})
    };
    let cases = [
        ("stop", "completed"),
        (
            "tool-calls",
            "failed: Another prompt in the same session made OpenCode drop the rest of this turn.",
        ),
    ];
    for (finish, expected) in cases {
        let mut translator = Translator::new("ses_1", "msg_1");
        translator.merge_messages(decode(vec![
            info("msg_1", "user", None, 1, ""),
            info("msg_2", "user", None, 2, ""),
            info("msg_a1", "assistant", Some("msg_1"), 3, finish),
            info("msg_a2", "assistant", Some("msg_2"), 4, "stop"),
        ]));
        translator.confirm_status(Some(&busy()));
        let Verdict::Over(outcome) = translator.verdict(false) else { panic!("it is over") };
        assert_eq!(short(&outcome), expected);
        let texts: Vec<String> = fold(&translator.take()).into_iter().map(|block| block.text).collect();
        assert_eq!(texts, ["msg_a1"]);
    }
}
