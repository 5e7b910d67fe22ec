//! Tests that asks are reported once, closed once, and never lost.

use std::collections::HashSet;

use longshore_engine::port::Resume;
use longshore_model::{AskKind, RequestId, Resolution};
use serde_json::{Value, json};

use super::merging::{feed, step};
use super::replay::Replay;
use super::*;
use crate::api::{PermissionAsk, QuestionAsk};

/// The reported asks and their ends, in order.
fn reported(events: &[AgentEvent]) -> Vec<String> {
    let reported = events.iter().filter_map(|event| match event {
        AgentEvent::Asked(ask) => Some(format!("{} asked", ask.request_id)),
        AgentEvent::AskClosed { request_id, resolution } => {
            Some(format!("{request_id} {}", resolution.as_str()))
        }
        _ => None,
    });
    reported.collect()
}

fn permissions(asks: &[(&str, &str)]) -> Vec<PermissionAsk> {
    let ask = |&(id, session): &(&str, &str)| {
        json!({"id": id, "sessionID": session, "permission": "bash", "patterns": ["x"],
            "tool": {"messageID": "msg_a", "callID": "c"}})
    };
    serde_json::from_value(asks.iter().map(ask).collect()).unwrap()
}

fn ask(translator: &mut Translator, id: &str, session: &str) {
    feed(translator, "permission.asked", &json!({"id": id, "sessionID": session, "permission": "bash"}));
}

fn sessions(sessions: &[&str]) -> HashSet<String> {
    sessions.iter().map(|session| (*session).to_owned()).collect()
}

fn complete(translator: &mut Translator, error: &Value) {
    let mut info = json!({"id": "msg_a", "parentID": "msg_p", "role": "assistant", "finish": "tool-calls",
        "time": {"created": 2, "completed": 3}});
    if !error.is_null() {
        info["error"] = json!({"name": error});
    }
    feed(translator, "message.updated", &json!({"info": info}));
}

#[test]
fn asks_of_the_agent_and_of_its_sub_agents_are_reported_once() {
    let cases = [
        ("permission_once", vec!["The agent asks for permission to run: rm -f gone.txt"]),
        (
            "permission_pair",
            vec![
                "The agent asks for permission to run: rm -f x1",
                "The agent asks for permission to run: rm -f x2",
            ],
        ),
        ("task_permission", vec!["A sub-agent asks for permission to run: rm -f child.txt"]),
        ("question_reject", vec!["The agent asks: Which colour? (Red, Green, Blue)"]),
    ];
    for (name, expected) in cases {
        let replay = Replay::of(name, 0).finished();
        let asked: Vec<&str> = replay
            .events
            .iter()
            .filter_map(|event| match event {
                AgentEvent::Asked(ask) => Some(ask.summary.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(asked, expected, "{name}");
    }
}

#[test]
fn asks_that_an_abort_left_in_the_lists_are_not_reported_again() {
    let mut replay = Replay::of("question_abort", 0).finished();
    let ask = replay.events.iter().find_map(|event| match event {
        AgentEvent::Asked(ask) => Some(ask.request_id.clone()),
        _ => None,
    });
    let left: QuestionAsk = serde_json::from_value(serde_json::json!({
        "id": ask.unwrap(), "sessionID": replay.session, "questions": [],
        "tool": {"messageID": "msg_of_the_turn_before", "callID": "c"},
    }))
    .unwrap();
    let busy = sessions(&[&replay.session]);
    replay.translator.merge_asks(&[], std::slice::from_ref(&left), &busy);
    assert_eq!(replay.translator.take(), [], "reported before");
    let mut next = Translator::new(&replay.session, "msg_next");
    next.merge_asks(&[], &[left], &busy);
    assert_eq!(next.take(), [], "belongs to another turn");
}

#[test]
fn every_recorded_ask_is_closed_once_with_its_real_resolution() {
    // How each ask of the recordings ends. An abort leaves its ask in OpenCode's lists for ever.
    let cases = [
        ("permission_once", 0, vec!["elsewhere"]),
        ("permission_always", 0, vec!["elsewhere"]),
        ("permission_edit", 0, vec!["elsewhere"]),
        ("permission_external_directory", 0, vec!["elsewhere"]),
        ("permission_reject", 0, vec!["rejected_elsewhere"]),
        ("permission_reject_message", 0, vec!["rejected_elsewhere"]),
        ("permission_pair", 0, vec!["rejected_elsewhere", "rejected_elsewhere"]),
        ("task_permission", 0, vec!["elsewhere"]),
        ("question_answer", 0, vec!["elsewhere"]),
        ("question_multi", 0, vec!["elsewhere"]),
        ("question_reject", 0, vec!["rejected_elsewhere"]),
        ("question_abort", 0, vec!["dropped"]),
        ("text", 0, vec![]),
    ];
    for (name, nth, ends) in cases {
        let mut replay = Replay::of(name, nth).finished();
        replay.close();
        let asked: Vec<String> = reported(&replay.events)
            .iter()
            .filter_map(|line| Some(line.strip_suffix(" asked")?.to_owned()))
            .collect();
        assert_eq!(asked.len(), ends.len(), "{name}");
        let mut expected: Vec<String> = asked.iter().map(|id| format!("{id} asked")).collect();
        expected.extend(asked.iter().zip(ends).map(|(id, end)| format!("{id} {end}")));
        assert_eq!(reported(&replay.events), expected, "{name}");
    }
}

#[test]
fn an_ask_names_its_session_and_details_for_people_and_for_programs() {
    let first = |name: &str| {
        let replay = Replay::of(name, 0).finished();
        let ask = replay.events.iter().find_map(|event| match event {
            AgentEvent::Asked(ask) => Some(ask.as_ref().clone()),
            _ => None,
        });
        (ask.expect("an ask"), replay)
    };
    let (ask, replay) = first("task_permission");
    assert_eq!(ask.kind, AskKind::Permission);
    assert_eq!(ask.session.as_str(), replay.tree[1], "the sub-agent asks");
    let details = ask.details.to_value();
    assert_eq!(details["tool"]["call_id"], "call_644b7c6778_0");
    assert_eq!(
        (&details["always"], &details["metadata"]),
        (&json!(["rm *"]), &json!({"command": "rm -f child.txt"}))
    );

    let (ask, replay) = first("question_multi");
    assert_eq!((ask.kind, ask.session.as_str()), (AskKind::Question, replay.session.as_str()));
    assert_eq!(ask.summary, "The agent asks: Pick (1) (A, B, C) Pick (2) (A, B, C)");
    assert_eq!(ask.questions.len(), 2);
    assert!(ask.questions.iter().all(|question| question.multiple && question.options == ["A", "B", "C"]));
    let first = json!({"header": "Pick 1", "question": "Pick (1)", "multiple": true, "custom": true, "options": [
        {"label": "A", "description": "Choose A"}, {"label": "B", "description": "Choose B"},
        {"label": "C", "description": "Choose C"}]});
    assert_eq!(ask.details.to_value()["questions"][0], first);
}

#[test]
fn a_turn_goes_on_while_it_asks() {
    for name in ["permission_once", "question_answer", "task_permission"] {
        let mut replay = Replay::of(name, 0);
        let asks = ["permission.asked", "question.asked"];
        while !asks.contains(&replay.next_event().unwrap()["type"].as_str().unwrap()) {}
        assert_eq!(replay.translator.verdict(false), Verdict::Running, "{name}");
        replay.translator.gap();
        replay.translator.confirm_status(Some(&busy()));
        assert_eq!(replay.translator.verdict(false), Verdict::Running, "{name}, after a gap");
    }
}

#[test]
fn after_a_gap_the_lists_show_which_asks_are_new_and_which_are_gone() {
    let mut t = step();
    ask(&mut t, "per_1", "ses_1");
    ask(&mut t, "per_2", "ses_child");
    ask(&mut t, "per_3", "ses_rests");
    t.take();
    t.gap();
    let mut listed = permissions(&[
        ("per_2", "ses_child"),
        ("per_3", "ses_rests"),
        ("per_4", "ses_1"),
        ("per_5", "ses_foreign"),
    ]);
    t.merge_asks(&listed, &[], &sessions(&["ses_1", "ses_child"]));
    assert_eq!(reported(&t.take()), ["per_1 elsewhere", "per_3 dropped", "per_4 asked"]);
    assert!(t.has_open_asks());
    // The events about these asks arrive late, or again.
    ask(&mut t, "per_4", "ses_1");
    for id in ["per_1", "per_2", "per_2", "per_9"] {
        feed(&mut t, "permission.replied", &json!({"sessionID": "ses_1", "requestID": id, "reply": "once"}));
    }
    assert_eq!(reported(&t.take()), ["per_2 elsewhere"]);
    listed.remove(0);
    t.merge_asks(&listed, &[], &sessions(&["ses_1"]));
    assert_eq!(reported(&t.take()), [""; 0]);
    t.close();
    assert_eq!(reported(&t.take()), ["per_4 dropped"]);
    assert!(!t.has_open_asks());
}

#[test]
fn an_ask_of_a_finished_turn_was_answered_if_the_turn_ended_by_itself_and_else_dropped() {
    let cases = [
        // The columns: whether the ask is in the list, whether the newest message is complete, its error, and the end of the ask.
        (true, true, json!(null), "per_1 dropped"),
        (true, true, json!("MessageAbortedError"), "per_1 dropped"),
        (false, true, json!(null), "per_1 elsewhere"),
        (false, true, json!("MessageAbortedError"), "per_1 dropped"),
        (false, false, json!(null), "per_1 dropped"),
    ];
    for (listed, completed, error, expected) in cases {
        let mut t = step();
        ask(&mut t, "per_1", "ses_1");
        t.take();
        if completed {
            complete(&mut t, &error);
        }
        t.confirm_status(None);
        let listed_asks = if listed { permissions(&[("per_1", "ses_1")]) } else { Vec::new() };
        t.merge_asks(&listed_asks, &[], &HashSet::new());
        assert_eq!(reported(&t.take()), [expected], "{listed} {completed} {error}");
    }
}

#[test]
fn a_resumed_turn_reports_only_asks_that_the_log_lacks() {
    let known = ["per_1", "per_2", "per_3"].map(|id| RequestId::parse(id).unwrap());
    let mut t =
        Translator::resume("ses_1", "msg_p", &Resume { open_asks: known.to_vec(), ..Resume::default() });
    feed(
        &mut t,
        "message.updated",
        &json!({"info": {"id": "msg_p", "role": "user", "time": {"created": 1}}}),
    );
    super::merging::message(&mut t, "msg_a", "msg_p", &json!({}));
    assert!(t.has_open_asks());
    let listed = permissions(&[("per_1", "ses_1"), ("per_3", "ses_child"), ("per_4", "ses_child")]);
    t.merge_asks(&listed, &[], &sessions(&["ses_1", "ses_child"]));
    assert_eq!(reported(&t.take()), ["per_2 elsewhere", "per_4 asked"]);
    ask(&mut t, "per_1", "ses_1");
    assert_eq!(reported(&t.take()), [""; 0], "the log has it");
    feed(&mut t, "session.idle", &json!({"sessionID": "ses_child"}));
    assert!(t.take_must_read_asks(), "the list named the session that asks");
}

#[test]
fn an_idle_event_alone_drops_no_ask() {
    let mut t = step();
    ask(&mut t, "per_1", "ses_1");
    ask(&mut t, "per_2", "ses_child");
    t.take();
    // The second idle event of an aborted turn arrives late, when the next turn may already have an ask.
    feed(&mut t, "session.idle", &json!({"sessionID": "ses_1"}));
    assert_eq!((reported(&t.take()).len(), t.verdict(false)), (0, Verdict::Unsettled));
    feed(&mut t, "session.idle", &json!({"sessionID": "ses_other_child"}));
    assert!(!t.take_must_read_asks());
    feed(&mut t, "session.idle", &json!({"sessionID": "ses_child"}));
    assert!(t.take_must_read_asks());
    assert!(!t.take_must_read_asks(), "returned once");
    let resolution = Resolution::RejectedElsewhere.as_str();
    feed(&mut t, "question.rejected", &json!({"sessionID": "ses_child", "requestID": "per_2"}));
    assert_eq!(reported(&t.take()), [format!("per_2 {resolution}")]);
}

/// An abort left the ask of a sub-agent in the list, and a later turn calls the same sub-agent.
#[test]
fn an_ask_of_a_sub_agent_that_is_older_than_the_turn_is_not_reported() {
    let mut t = Translator::new("ses_1", "msg_p");
    let began = 1_790_000_000_000_i64;
    let prompt = json!({"info": {"id": "msg_p", "role": "user", "time": {"created": began}}});
    feed(&mut t, "message.updated", &prompt);
    let message = |milliseconds: i64| {
        let digits = (milliseconds << 12) & ((1 << 48) - 1);
        format!("msg_{digits:012x}AAAAAAAAAAAAAA")
    };
    let ask = |id: &str, message: &str| {
        json!({"id": id, "sessionID": "ses_child", "permission": "bash", "patterns": ["x"],
            "tool": {"messageID": message, "callID": "c"}})
    };
    let listed = json!([
        ask("per_older", &message(began - 1)),
        ask("per_newer", &message(began)),
        ask("per_timeless", "msg_x"),
    ]);
    let listed: Vec<PermissionAsk> = serde_json::from_value(listed).unwrap();
    t.merge_asks(&listed, &[], &sessions(&["ses_1", "ses_child"]));
    assert_eq!(reported(&t.take()), ["per_newer asked", "per_timeless asked"]);
}
