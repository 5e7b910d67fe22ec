use longshore_testkit::fake_opencode::{RecordedLine, Recording};
use serde_json::{Value, json};

use super::*;

/// Plays what is written in words: `user 1`, `text 1`, `own 1` (words of OpenCode's own), `mark 1`, `busy`, `answer 1`,
/// `whole 1`, `error`, `idle`, `ask`. The number is that of the user's message, and when it was written.
fn play(session_state: &mut WatchedSession, words: &str) -> Vec<String> {
    let mut decided = Vec::new();
    for word in words.split(", ") {
        let (what, number) = word.split_once(' ').unwrap_or((word, "0"));
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
        let decision = match what {
            "user" => session_state.observe(Observation::Message(&serde_json::from_value(info).unwrap())),
            "text" => session_state.observe(Observation::Part(&part("text", false, false))),
            "own" => session_state.observe(Observation::Part(&part("text", true, false))),
            "aside" => session_state.observe(Observation::Part(&part("text", false, true))),
            "mark" => session_state.observe(Observation::Part(&part("compaction", false, false))),
            "file" | "agent" | "subtask" => session_state.observe(Observation::Part(&part(what, false, false))),
            "busy" => session_state.observe(Observation::Busy),
            "idle" => session_state.observe(Observation::Idle),
            "error" => session_state.observe(Observation::Error),
            "ask" => session_state.observe(Observation::Asked),
            "answer" => session_state.observe(Observation::Message(&answer(None))),
            "whole" => session_state.observe(Observation::Message(&answer(Some(created + 1.0)))),
            other => panic!("{other}"),
        };
        match decision {
            Decision::Nothing => {}
            Decision::Check => decided.push("look".to_owned()),
            Decision::TurnStarted(prompt) => {
                assert!(session_state.tell(&prompt), "{prompt} is told once");
                decided.push(prompt);
            }
        }
    }
    decided
}

#[test]
fn only_what_somebody_said_and_gets_an_answer_is_a_turn() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("a prompt", "user 1, text 1, busy, answer 1, busy, whole 1, idle", &["msg_1"]),
        ("with a file alone", "user 1, file 1, busy, answer 1", &["msg_1"]),
        ("to an agent", "user 1, agent 1, own 1, busy, answer 1", &["msg_1"]),
        (
            "with a sub-agent",
            "user 1, subtask 1, busy, answer 1, whole 1, user 2, own 2, busy, answer 2",
            &["msg_1"],
        ),
        ("whose model is not there", "user 1, text 1, busy, error, idle, error", &["msg_1"]),
        ("whose agent is not there", "error, error", &[]),
        ("not to be answered", "user 1, text 1", &[]),
        (
            "not to be answered, in mid-turn",
            "user 1, text 1, busy, answer 1, user 2, text 2, whole 1, answer 2",
            &["msg_1", "msg_2"],
        ),
        ("not for the model", "user 1, aside 1, busy, answer 1", &[]),
        ("a shell", "busy, user 1, own 1, answer 1, whole 1, idle", &[]),
        (
            "a shell after something that nobody is to answer",
            "user 1, text 1, busy, user 2, own 2, answer 2, idle",
            &[],
        ),
        ("a shell of which nothing comes", "busy, error, idle", &[]),
        (
            "a prompt after a shell",
            "busy, user 1, own 1, answer 1, whole 1, idle, user 2, text 2, busy, answer 2",
            &["msg_2"],
        ),
        ("a summary", "user 1, mark 1, busy, answer 1, whole 1, idle", &[]),
        (
            "a summary that goes on",
            "user 1, mark 1, busy, answer 1, whole 1, user 2, own 2, answer 2, idle",
            &[],
        ),
        ("a shell that asks", "busy, user 1, own 1, answer 1, ask", &["look"]),
        (
            "a summary that goes on and asks",
            "user 1, mark 1, busy, answer 1, whole 1, user 2, own 2, answer 2, ask",
            &["look"],
        ),
        ("an ask of a prompt that is known", "user 1, text 1, busy, answer 1, ask, ask", &["msg_1"]),
        ("an ask out of nowhere", "ask", &["look"]),
        ("a fork", "user 1, text 1, whole 1, user 2, text 2, whole 2", &[]),
        ("the late end of a turn of ours", "user 1, idle", &[]),
        ("an old message that is changed late", "user 2, text 2, busy, user 1, answer 2", &["msg_2"]),
        ("an answer to what was not heard", "busy, answer 7, answer 7", &["look"]),
        (
            "two prompts",
            "user 1, text 1, busy, answer 1, whole 1, idle, user 2, text 2, busy, answer 2",
            &["msg_1", "msg_2"],
        ),
        ("an error after the answer began", "user 1, text 1, busy, answer 1, error, idle, error", &["msg_1"]),
    ];
    for (name, words, expected) in cases {
        assert_eq!(play(&mut WatchedSession::default(), words), *expected, "{name}");
    }
}

#[test]
fn what_was_told_is_not_told_again_after_a_gap() {
    let mut session_state = WatchedSession::default();
    assert_eq!(play(&mut session_state, "user 1, text 1, busy, answer 1"), ["msg_1"]);
    session_state.forget();
    assert_eq!(play(&mut session_state, "answer 1, user 1, text 1, busy, answer 1, error, ask"), [] as [&str; 0]);
    assert!(!session_state.tell("msg_1") && session_state.tell("msg_2"));
}

/// What the real OpenCode said while somebody used it, session by session.
fn recorded(name: &str) -> Vec<String> {
    let recording = Recording::load(name);
    let mut sessions: std::collections::HashMap<String, WatchedSession> = std::collections::HashMap::new();
    let mut told = Vec::new();
    for line in &recording.lines {
        let RecordedLine::Event(event) = line else { continue };
        let kind = event["type"].as_str().unwrap();
        let Some(kind) = crate::api::EventKind::parse(kind) else { continue };
        let session = event["properties"]["sessionID"].as_str().unwrap_or_default();
        let session_state = sessions.entry(session.to_owned()).or_default();
        let event = crate::skim::Event::parsed(kind, event.to_string().into());
        match super::super::decide(session_state, false, &event).unwrap() {
            Decision::Nothing => {}
            Decision::Check => told.push("look".to_owned()),
            Decision::TurnStarted(prompt) => {
                assert!(session_state.tell(&prompt));
                told.push(prompt);
            }
        }
    }
    told
}

#[test]
fn recorded_turns_are_told_once_each_and_shells_are_not() {
    // A shell, and a prompt after it.
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
fn what_a_busy_session_is_at_is_seen_from_its_messages() {
    let said =
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
        ("nothing was said", vec![], None),
        ("a prompt that is not answered yet", vec![said("1", 1)], Some(("1", true))),
        ("one that is", vec![said("1", 1), open("1", 2)], Some(("1", true))),
        ("between two steps", vec![said("1", 1), whole("1", 2, "tool-calls")], Some(("1", true))),
        ("its end, and somebody begins", vec![said("1", 1), whole("1", 2, "stop")], None),
        ("the next one", vec![said("1", 1), whole("1", 2, "stop"), said("2", 4)], Some(("2", true))),
        ("another came in mid-turn", vec![said("1", 1), open("1", 2), said("2", 4)], Some(("1", true))),
        ("and is next", vec![said("1", 1), whole("1", 2, "tool-calls"), said("2", 4)], Some(("2", true))),
        ("a shell", vec![own("1", 1), open("1", 2)], Some(("1", false))),
        (
            "a summary",
            vec![said("1", 1), whole("1", 2, "stop"), mark("2", 4), open("2", 5)],
            Some(("2", false)),
        ),
        (
            "a command after its sub-agent",
            vec![called("1", 1), whole("1", 2, "tool-calls"), own("2", 4), open("2", 5)],
            Some(("1", true)),
        ),
        ("more than was read", vec![open("1", 2)], Some(("1", true))),
    ];
    for (name, messages, expected) in cases {
        let messages: Vec<StoredMessage> = serde_json::from_value(messages.into()).unwrap();
        let found = current_work(&messages).map(|work| (work.prompt.to_owned(), work.is_from_user));
        let expected = expected.map(|(prompt, is_from_user): (&str, bool)| (prompt.to_owned(), is_from_user));
        assert_eq!(found, expected, "{name}");
    }
}
