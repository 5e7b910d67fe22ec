use longshore_testkit::fake_opencode::{RecordedLine, Recording};
use serde_json::{Value, json};

use super::*;

/// Plays a script: `user 1`, `text 1`, `own 1` (a synthetic text), `mark 1`, `busy`, `answer 1`, `whole 1`, `error`, `idle`, `ask`.
/// The number stands for the user's message and for its creation time.
fn play(state: &mut WatchedSession, script: &str) -> Vec<String> {
    let mut decided = Vec::new();
    for line in script.split(", ") {
        let (what, number) = line.split_once(' ').unwrap_or((line, "0"));
        let user = format!("msg_{number}");
        let created: f64 = number.parse().unwrap();
        let part = |kind: &str, synthetic: bool, ignored: bool| -> Part {
            let part = json!({"id": "prt", "messageID": user, "type": kind, "synthetic": synthetic, "ignored": ignored});
            serde_json::from_value(part).unwrap()
        };
        let answer = |completed: Option<f64>| -> Message {
            let time = json!({"created": created, "completed": completed});
            let info = json!({"id": "msg_answer", "role": "assistant", "parentID": user, "time": time});
            serde_json::from_value(info).unwrap()
        };
        let info = json!({"id": user, "role": "user", "time": {"created": created}});
        let mut observe = |observation: Observation<'_>| state.observe(observation);
        let decision = match what {
            "user" => observe(Observation::Message(&serde_json::from_value(info).unwrap())),
            "text" => observe(Observation::Part(&part("text", false, false))),
            "own" => observe(Observation::Part(&part("text", true, false))),
            "aside" => observe(Observation::Part(&part("text", false, true))),
            "mark" => observe(Observation::Part(&part("compaction", false, false))),
            "file" | "agent" | "subtask" => observe(Observation::Part(&part(what, false, false))),
            "busy" => observe(Observation::Busy),
            "idle" => observe(Observation::Idle),
            "error" => observe(Observation::Error),
            "ask" => observe(Observation::Asked),
            "answer" => observe(Observation::Message(&answer(None))),
            "whole" => observe(Observation::Message(&answer(Some(created + 1.0)))),
            other => panic!("{other}"),
        };
        decided.extend(described(state, decision));
    }
    decided
}

/// The prompt of a turn that is reported, or `check`.
fn described(state: &mut WatchedSession, decision: Decision) -> Option<String> {
    match decision {
        Decision::Nothing => None,
        Decision::Check => Some("check".to_owned()),
        Decision::TurnStarted(prompt) => {
            assert!(state.mark_reported(&prompt), "{prompt} is reported once");
            Some(prompt)
        }
    }
}

#[test]
fn only_a_users_message_that_gets_an_answer_is_a_turn() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("a prompt", "user 1, text 1, busy, answer 1, busy, whole 1, idle", &["msg_1"]),
        ("with a file alone", "user 1, file 1, busy, answer 1", &["msg_1"]),
        ("to an agent", "user 1, agent 1, own 1, busy, answer 1", &["msg_1"]),
        (
            "with a sub-agent",
            "user 1, subtask 1, busy, answer 1, whole 1, user 2, own 2, busy, answer 2",
            &["msg_1"],
        ),
        ("a prompt whose model does not exist", "user 1, text 1, busy, error, idle, error", &["msg_1"]),
        ("a prompt whose agent does not exist", "error, error", &[]),
        ("a prompt without a requested answer", "user 1, text 1", &[]),
        (
            "a prompt without a requested answer, during a turn",
            "user 1, text 1, busy, answer 1, user 2, text 2, whole 1, answer 2",
            &["msg_1", "msg_2"],
        ),
        ("a text that the model does not see", "user 1, aside 1, busy, answer 1", &[]),
        ("a shell", "busy, user 1, own 1, answer 1, whole 1, idle", &[]),
        (
            "a shell after a prompt without a requested answer",
            "user 1, text 1, busy, user 2, own 2, answer 2, idle",
            &[],
        ),
        ("a shell without a message", "busy, error, idle", &[]),
        (
            "a prompt after a shell",
            "busy, user 1, own 1, answer 1, whole 1, idle, user 2, text 2, busy, answer 2",
            &["msg_2"],
        ),
        ("a summary", "user 1, mark 1, busy, answer 1, whole 1, idle", &[]),
        (
            "a summary after which OpenCode continues",
            "user 1, mark 1, busy, answer 1, whole 1, user 2, own 2, answer 2, idle",
            &[],
        ),
        ("a shell that asks", "busy, user 1, own 1, answer 1, ask", &["check"]),
        (
            "a summary after which OpenCode continues and asks",
            "user 1, mark 1, busy, answer 1, whole 1, user 2, own 2, answer 2, ask",
            &["check"],
        ),
        ("an ask of a known prompt", "user 1, text 1, busy, answer 1, ask, ask", &["msg_1"]),
        ("an ask without any other event", "ask", &["check"]),
        ("a fork", "user 1, text 1, whole 1, user 2, text 2, whole 2", &[]),
        ("the late end of a turn of the gateway", "user 1, idle", &[]),
        ("an old message that is updated late", "user 2, text 2, busy, user 1, answer 2", &["msg_2"]),
        ("an answer to a message that was missed", "busy, answer 7, answer 7", &["check"]),
        (
            "two prompts",
            "user 1, text 1, busy, answer 1, whole 1, idle, user 2, text 2, busy, answer 2",
            &["msg_1", "msg_2"],
        ),
        ("an error after the answer began", "user 1, text 1, busy, answer 1, error, idle, error", &["msg_1"]),
    ];
    for (name, script, expected) in cases {
        assert_eq!(play(&mut WatchedSession::default(), script), *expected, "{name}");
    }
}

#[test]
fn a_reported_turn_is_not_reported_again_after_a_gap() {
    let mut state = WatchedSession::default();
    assert_eq!(play(&mut state, "user 1, text 1, busy, answer 1"), ["msg_1"]);
    state.reset();
    assert_eq!(play(&mut state, "answer 1, user 1, text 1, busy, answer 1, error, ask"), [] as [&str; 0]);
    assert!(!state.mark_reported("msg_1") && state.mark_reported("msg_2"));
}

/// Plays the events of a recording, session by session.
fn recorded(name: &str) -> Vec<String> {
    let recording = Recording::load(name);
    let mut sessions: std::collections::HashMap<String, WatchedSession> = std::collections::HashMap::new();
    let mut decided = Vec::new();
    for line in &recording.lines {
        let RecordedLine::Event(event) = line else { continue };
        let kind = event["type"].as_str().unwrap();
        let Some(kind) = crate::api::EventKind::parse(kind) else { continue };
        let session = event["properties"]["sessionID"].as_str().unwrap_or_default();
        let state = sessions.entry(session.to_owned()).or_default();
        let event = crate::skim::Event::parsed(kind, event.to_string().into());
        let decision = super::super::decide(state, false, &event).unwrap();
        decided.extend(described(state, decision));
    }
    decided
}

#[test]
fn recorded_turns_are_reported_once_and_shells_are_not() {
    // A shell command, and then a prompt.
    assert_eq!(recorded("shell").len(), 1);
    // Two commands, and the sub-agent of the second, which has a session of its own.
    let commands = recorded("command");
    assert_eq!(commands.len(), 3, "{commands:?}");
    for name in ["long", "reasoning_then_tool", "error_401", "abort_stream"] {
        let prompts = Recording::load(name).prompts().len();
        assert_eq!(recorded(name).len(), prompts, "{name}");
    }
}

fn message(id: &str, role: &str, created: u64, more: &Value, parts: &[Value]) -> Value {
    let mut info = json!({"id": id, "role": role, "time": {"created": created}});
    for (name, value) in more.as_object().unwrap() {
        info[name] = value.clone();
    }
    let parts: Vec<Value> = parts
        .iter()
        .map(|part| {
            let mut part = part.clone();
            (part["id"], part["messageID"]) = ("prt".into(), id.into());
            part
        })
        .collect();
    json!({"info": info, "parts": parts})
}

#[test]
fn the_prompt_of_a_busy_session_is_found_in_its_messages() {
    let user =
        |id: &str, at: u64| message(id, "user", at, &json!({}), &[json!({"type": "text", "text": "go"})]);
    let own = |id: &str, at: u64| {
        message(id, "user", at, &json!({}), &[json!({"type": "text", "synthetic": true})])
    };
    let mark = |id: &str, at: u64| message(id, "user", at, &json!({}), &[json!({"type": "compaction"})]);
    let called = |id: &str, at: u64| {
        message(id, "user", at, &json!({}), &[json!({"type": "subtask", "command": "sub"})])
    };
    let open = |parent: &str, at: u64| message("msg_a", "assistant", at, &json!({"parentID": parent}), &[]);
    let whole = |parent: &str, at: u64, finish: &str| {
        let more =
            json!({"parentID": parent, "finish": finish, "time": {"created": at, "completed": at + 1}});
        message("msg_b", "assistant", at, &more, &[])
    };
    let cases = [
        ("no message", vec![], None),
        ("a prompt without an answer yet", vec![user("1", 1)], Some(("1", true))),
        ("a prompt that is being answered", vec![user("1", 1), open("1", 2)], Some(("1", true))),
        ("between two steps", vec![user("1", 1), whole("1", 2, "tool-calls")], Some(("1", true))),
        ("after the end", vec![user("1", 1), whole("1", 2, "stop")], None),
        ("the next prompt", vec![user("1", 1), whole("1", 2, "stop"), user("2", 4)], Some(("2", true))),
        ("another prompt during a step", vec![user("1", 1), open("1", 2), user("2", 4)], Some(("1", true))),
        (
            "another prompt after a step",
            vec![user("1", 1), whole("1", 2, "tool-calls"), user("2", 4)],
            Some(("2", true)),
        ),
        ("a shell", vec![own("1", 1), open("1", 2)], Some(("1", false))),
        (
            "a summary",
            vec![user("1", 1), whole("1", 2, "stop"), mark("2", 4), open("2", 5)],
            Some(("2", false)),
        ),
        (
            "a command after its sub-agent",
            vec![called("1", 1), whole("1", 2, "tool-calls"), own("2", 4), open("2", 5)],
            Some(("1", true)),
        ),
        ("a prompt older than the messages", vec![open("1", 2)], Some(("1", true))),
    ];
    for (name, messages, expected) in cases {
        let messages: Vec<StoredMessage> = serde_json::from_value(messages.into()).unwrap();
        let found = current_work(&messages).map(|work| (work.prompt.to_owned(), work.is_from_user));
        let expected = expected.map(|(prompt, is_from_user): (&str, bool)| (prompt.to_owned(), is_from_user));
        assert_eq!(found, expected, "{name}");
    }
}
