//! Tests of titles, steps, retries, compactions, todos, and the usage of a turn.

use std::collections::HashMap;

use longshore_engine::port::Resume;
use longshore_model::{Cost, Usage};
use longshore_testkit::fake_opencode::{RecordedLine, Recording};
use serde_json::{Value, json};

use super::merging::{feed, message, step};
use super::replay::{Replay, answers, decode, names};
use super::*;
use crate::api::StoredInfo;

/// The details of the reported progress.
fn progress(events: &[AgentEvent]) -> Vec<Value> {
    let details = events.iter().filter_map(|event| match event {
        AgentEvent::Progress(progress) => progress.details.as_ref().map(longshore_model::Json::to_value),
        _ => None,
    });
    details.collect()
}

/// The last reported usage.
fn usage(events: &[AgentEvent]) -> Usage {
    let reported: Vec<Usage> = events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Usage(usage) => Some(*usage),
            _ => None,
        })
        .collect();
    assert!(reported.windows(2).all(|pair| pair[0] != pair[1]), "reported without a change: {reported:?}");
    reported.last().copied().unwrap_or_default()
}

#[test]
fn a_title_is_reported_once_and_the_placeholder_is_not() {
    for (name, expected) in [("title_generation", "Title: text"), ("todo", "titled"), ("task", "titled")] {
        let replay = Replay::of(name, 0).finished();
        let titles: Vec<_> = replay
            .events
            .iter()
            .filter_map(|event| match event {
                AgentEvent::Session(note) => Some((note.id.as_str(), note.title.as_deref())),
                _ => None,
            })
            .collect();
        assert_eq!(titles, [(replay.session.as_str(), Some(expected))], "{name}");
    }
    let mut t = step();
    for title in ["New session - plans", "New session - plans", "Other", "", "New session - plans"] {
        feed(&mut t, "session.updated", &json!({"info": {"id": "ses_1", "title": title}}));
    }
    assert_eq!(t.take().len(), 3, "each change, and nothing else");
}

#[test]
fn steps_retries_compactions_and_todos_are_reported_in_order() {
    let start = json!("step-start");
    let finish = |reason: &str| json!(["step-finish", reason]);
    let todo = |one: &str, two: &str, three: &str| json!(["todo", one, two, three]);
    let cases = [
        ("text", vec![start.clone(), finish("stop")]),
        ("tool_bash", vec![start.clone(), finish("tool-calls"), start.clone(), finish("stop")]),
        // The steps of the sub-agent do not count as steps of the turn.
        ("task_child_error", vec![start.clone(), finish("tool-calls"), start.clone(), finish("stop")]),
        (
            "error_429_recovers",
            vec![json!(["retry", 1, "Rate limit reached"]), start.clone(), finish("stop")],
        ),
        (
            "auto_compact",
            vec![
                start.clone(),
                finish("tool-calls"),
                json!("compaction"),
                start.clone(),
                finish("stop"),
                start.clone(),
                finish("stop"),
            ],
        ),
        (
            "todo",
            vec![
                start.clone(),
                todo("in_progress", "pending", "pending"),
                finish("tool-calls"),
                start.clone(),
                todo("completed", "completed", "in_progress"),
                finish("tool-calls"),
                start.clone(),
                finish("stop"),
            ],
        ),
    ];
    for (name, expected) in cases {
        let reported = progress(&Replay::of(name, 0).finished().events);
        let mut short = Vec::new();
        for details in &reported {
            let kind = &details["type"];
            short.push(match kind.as_str().unwrap() {
                "step-start" | "step-finish" => {
                    assert!(
                        details["part_id"].as_str().is_some_and(|id| id.starts_with("prt_")),
                        "{details}"
                    );
                    details.get("reason").map_or(kind.clone(), |reason| json!([kind, reason]))
                }
                "retry" => {
                    assert!(details["next"].is_u64(), "{details}");
                    json!([kind, details["attempt"], details["message"]])
                }
                "todo" => {
                    let todos = details["todos"].as_array().unwrap();
                    assert_eq!(todos[0]["content"], "plan");
                    std::iter::once(kind).chain(todos.iter().map(|todo| &todo["status"])).cloned().collect()
                }
                _ => kind.clone(),
            });
        }
        assert_eq!(short, expected, "{name}");
    }
}

#[test]
fn unchanged_progress_is_not_reported_again_and_urls_of_providers_are_masked() {
    let mut t = step();
    let retry = json!({"status": {"type": "retry", "attempt": 2, "next": 1_794_713_968_495.5,
        "message": "no luck at https://provider.example/v1"}});
    let todos = json!({"todos": [{"content": "a", "status": "pending", "priority": "low", "id": 7}]});
    let part = json!({"part": {"id": "prt_s", "messageID": "msg_a", "type": "step-start"}});
    for _ in 0..2 {
        feed(&mut t, "session.status", &retry);
        feed(&mut t, "todo.updated", &todos);
        feed(&mut t, "message.part.updated", &part);
    }
    let expected = [
        json!({"type": "retry", "attempt": 2, "message": "no luck at <redacted-url>", "next": 1_794_713_968_495.5}),
        json!({"type": "todo", "todos": [{"content": "a", "status": "pending", "priority": "low"}]}),
        json!({"type": "step-start", "part_id": "prt_s"}),
    ];
    assert_eq!(progress(&t.take()), expected);
}

/// The sum of the usage in the messages.
fn sum<'a>(infos: impl Iterator<Item = &'a Value>) -> Usage {
    infos.fold(Usage::default(), |sum, info| {
        let tokens = &info["tokens"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        sum.plus(Usage {
            input: count(&tokens["input"]),
            output: count(&tokens["output"]),
            total: count(&tokens["total"]),
            reasoning: count(&tokens["reasoning"]),
            cache_read: count(&tokens["cache"]["read"]),
            cache_write: count(&tokens["cache"]["write"]),
            cost: Cost::from_float(info["cost"].as_f64().unwrap_or_default()),
        })
    })
}

/// The last state of the sub-agents' answers, by session and message.
fn child_answers(name: &str, replay: &Replay) -> HashMap<(String, String), Value> {
    let mut found = HashMap::new();
    for line in Recording::load(name).lines {
        let RecordedLine::Event(event) = line else { continue };
        let info = &event["properties"]["info"];
        let session = info["sessionID"].as_str().unwrap_or_default().to_owned();
        let child = session != replay.session && replay.tree.contains(&session);
        if event["type"] == "message.updated" && info["role"] == "assistant" && child {
            found.insert((session, info["id"].as_str().unwrap().to_owned()), info.clone());
        }
    }
    found
}

#[test]
fn usage_is_the_sum_of_all_messages_of_the_turn_and_of_its_sub_agents() {
    let (mut compared, mut with_sub_agents) = (0, 0);
    for name in names() {
        for nth in 0..Recording::load(&name).prompts().len() {
            let replay = Replay::of(&name, nth).finished();
            let Some(messages) = Replay::stored(&name, &replay.session, &replay.prompt) else { continue };
            let answers = answers(&messages, &replay.prompt);
            let children = child_answers(&name, &replay);
            let expected = sum(answers.iter().map(|message| &message["info"]).chain(children.values()));
            assert_eq!(usage(&replay.events), expected, "{name}, prompt {nth}");
            compared += 1;
            with_sub_agents += usize::from(!children.is_empty());

            // The result is the same if every event was missed.
            let mut resumed = Translator::resume(&replay.session, &replay.prompt, &Resume::default());
            resumed.gap();
            resumed.merge_messages(decode(messages.clone()));
            let infos: Vec<StoredInfo> = children
                .values()
                .map(|info| serde_json::from_value(json!({"info": info, "parts": 7})).unwrap())
                .collect();
            resumed.merge_child_messages(infos.iter().map(|message| &message.info));
            assert_eq!(usage(&resumed.take()), expected, "{name}, prompt {nth}, from the lists");
        }
    }
    assert!(compared > 40 && with_sub_agents >= 3, "{compared} compared, {with_sub_agents} with sub-agents");
}

#[test]
fn usage_never_decreases_and_omits_what_sub_agents_used_for_earlier_turns() {
    let tokens =
        |input: u64| json!({"tokens": {"total": input + 1, "input": input, "output": 1}, "cost": 0.5});
    let child = |id: &str, created: u64, more: Value| {
        let mut info =
            json!({"id": id, "role": "assistant", "parentID": "msg_x", "time": {"created": created}});
        info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"sessionID": "ses_child", "info": info})
    };
    let mut t = step();
    message(&mut t, "msg_a", "msg_p", &tokens(10));
    // An early snapshot of the message arrives late.
    message(&mut t, "msg_a", "msg_p", &json!({"tokens": {"input": 0, "output": 0}, "cost": 0}));
    feed(&mut t, "message.updated", &child("msg_c", 3, tokens(100)));
    feed(&mut t, "message.updated", &child("msg_c", 3, tokens(100)));
    feed(&mut t, "message.updated", &child("msg_b", 0, tokens(1000)));
    let reported: Vec<(u64, u64, f64)> = t
        .take()
        .iter()
        .map(|event| match event {
            AgentEvent::Usage(usage) => (usage.input, usage.total, usage.cost.to_float()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reported, [(10, 11, 0.5), (110, 112, 1.0)]);
    assert_eq!(t.verdict(false), Verdict::Running, "a sub-agent's messages do not end the turn");
}
