//! Tests of the turns of sub-agents: which messages belong to them, and how a tool call names them.

use longshore_testkit::fake_opencode::Recording;
use serde_json::{Value, json};

use super::merging::{feed, message, step};
use super::replay::decode;
use super::*;

fn user(id: &str, created: u64, text: &str) -> Value {
    json!({"info": {"id": id, "role": "user", "time": {"created": created}},
        "parts": [{"id": format!("prt_{id}"), "messageID": id, "type": "text", "text": text}]})
}

fn answer(id: &str, parent: &str, created: u64, text: &str) -> Value {
    json!({"info": {"id": id, "role": "assistant", "parentID": parent, "finish": "stop",
            "time": {"created": created, "completed": created + 1}},
        "parts": [{"id": format!("prt_{id}"), "messageID": id, "type": "text", "text": text,
            "time": {"start": 1, "end": 2}}]})
}

fn texts(events: &[AgentEvent]) -> Vec<String> {
    fold(events).into_iter().map(|block| block.text).collect()
}

/// The session was called at 10 and again at 20, and a user wrote to it at 12.
#[test]
fn a_sub_agents_turn_has_the_messages_since_its_call_and_before_the_next() {
    let all = [
        user("msg_0", 1, "of an earlier turn"),
        answer("msg_1", "msg_0", 2, "old"),
        user("msg_2", 10, "first call"),
        answer("msg_3", "msg_2", 11, "one"),
        user("msg_4", 12, "a user writes to it"),
        answer("msg_5", "msg_4", 13, "two"),
        user("msg_6", 20, "second call"),
        answer("msg_7", "msg_6", 21, "three"),
    ];
    let cases = [
        (10, Some(20), Some("msg_2"), vec!["one", "two"]),
        (20, None, Some("msg_6"), vec!["three"]),
        (30, None, None, vec![]),
    ];
    for (since, until, prompt, expected) in cases {
        let mut translator = Translator::for_sub_agent("ses_c", f64::from(since));
        if let Some(until) = until {
            translator.set_next_call_at(f64::from(until));
        }
        assert_eq!(translator.prompt(), None);
        translator.merge_messages(decode(all.to_vec()));
        translator.confirm_status(None);
        assert_eq!(translator.prompt(), prompt, "{since}");
        assert_eq!(texts(&translator.take()), expected, "{since}");
        let over = matches!(translator.verdict(false), Verdict::Over(Outcome::Completed { remark: None }));
        assert_eq!(over, prompt.is_some(), "{since}");
    }
}

#[test]
fn a_sub_agent_is_resumed_with_its_prompt_or_by_its_call() {
    let all = [user("msg_2", 10, "called"), answer("msg_3", "msg_2", 11, "one")];
    for prompt in [Some("msg_2"), None] {
        let mut translator = Translator::resume_sub_agent("ses_c", prompt, &[], &[]);
        if prompt.is_none() {
            translator.merge_messages(decode(all.to_vec()));
            assert_eq!(translator.prompt(), None, "the time of the call is unknown");
            translator = Translator::resume_sub_agent("ses_c", prompt, &[], &[]);
            translator.set_called_at(10.0);
        }
        translator.merge_messages(decode(all.to_vec()));
        translator.confirm_status(None);
        assert_eq!((translator.prompt(), translator.prompt_created()), (Some("msg_2"), Some(10.0)));
        assert_eq!(texts(&translator.take()), ["one"]);
        assert!(matches!(translator.verdict(false), Verdict::Over(_)));
    }
}

fn task(state: &Value, tool: &str) -> Value {
    json!({"part": {"id": "prt_t", "messageID": "msg_a", "type": "tool", "tool": tool, "callID": "call_1",
        "state": state}})
}

#[test]
fn a_task_call_names_its_session_once_it_has_one() {
    let with = json!({"sessionId": "ses_c", "parentSessionId": "ses_1"});
    let cases = [
        (json!({"status": "pending", "input": {}}), "task", None),
        (json!({"status": "running", "input": {"prompt": "x"}, "time": {"start": 5}}), "task", None),
        (json!({"status": "running", "input": {"prompt": "x"}, "metadata": with}), "task", Some("ses_c")),
        (json!({"status": "running", "input": {"prompt": "x"}, "metadata": {"sessionId": 7}}), "task", None),
        (json!({"status": "error", "error": "no", "metadata": with}), "task", Some("ses_c")),
        (json!({"status": "running", "input": {"prompt": "x"}, "metadata": with}), "other", None),
    ];
    for (state, tool, expected) in cases {
        let mut translator = step();
        feed(&mut translator, "message.part.updated", &task(&state, tool));
        let events = translator.take();
        let [AgentEvent::Tool { call, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(call.child.as_ref().map(longshore_model::SessionId::as_str), expected, "{state}");
    }
}

#[test]
fn a_call_is_found_by_its_id() {
    let mut translator = step();
    assert_eq!(translator.call("call_1"), None);
    let running = json!({"status": "running", "input": {"prompt": "x"}, "time": {"start": 5}});
    feed(&mut translator, "message.part.updated", &task(&running, "task"));
    let state = CallState { started: Some(5.0), is_over: false, error: None, model: None };
    assert_eq!(translator.call("call_1"), Some(state));
    let error = json!({"status": "error", "error": "no", "time": {"start": 5, "end": 6}});
    feed(&mut translator, "message.part.updated", &task(&error, "task"));
    let state = CallState { started: Some(5.0), is_over: true, error: Some("no".to_owned()), model: None };
    assert_eq!(translator.call("call_1"), Some(state));
}

/// Whether a sub-agent is active is decided by its own session.
#[test]
fn a_running_tool_or_a_pending_retry_is_a_reason_to_be_silent() {
    let running = json!({"status": "running", "input": {"command": "sleep 9"}});
    let called = json!({"status": "running", "input": {}, "metadata": {"sessionId": "ses_c"}});
    let completed = json!({"status": "completed", "input": {}, "output": "x"});
    let cases = [
        ("bash", &json!({"status": "pending", "input": {}}), true),
        ("bash", &running, true),
        ("task", &called, false),
        ("bash", &completed, false),
    ];
    for (tool, state, expected) in cases {
        let mut translator = step();
        assert!(!translator.may_be_silent());
        feed(&mut translator, "message.part.updated", &task(state, tool));
        assert_eq!(translator.may_be_silent(), expected, "{tool} {state}");
        // A call that a killed OpenCode left in a finished step counts as not running.
        message(&mut translator, "msg_a", "msg_p", &json!({"time": {"created": 2, "completed": 3}}));
        assert!(!translator.may_be_silent(), "{tool} {state}");
    }
    let mut translator = step();
    for (status, expected) in [("retry", true), ("busy", false), ("retry", true), ("idle", false)] {
        feed(&mut translator, "session.status", &json!({"status": {"type": status}}));
        assert_eq!(translator.may_be_silent(), expected, "{status}");
    }
}

#[test]
fn the_recorded_sub_agents_are_called_before_they_are_prompted() {
    for name in ["task", "task_permission", "task_abort", "task_child_error"] {
        let recording = Recording::load(name);
        let part = |event: &Value| event["properties"]["part"].clone();
        let called =
            recording.events().map(part).find(|part| part["state"]["metadata"]["sessionId"].is_string());
        let called = called.unwrap_or_else(|| panic!("{name} calls no sub-agent"));
        let child = called["state"]["metadata"]["sessionId"].as_str().unwrap();
        let start = called["state"]["time"]["start"].as_f64().unwrap();
        let mut translator = Translator::for_sub_agent(child, start);
        for event in recording.events().filter(|event| event["properties"]["sessionID"] == child) {
            if let Some(kind) = EventKind::parse(event["type"].as_str().unwrap()) {
                translator.event(kind, event.to_string().as_bytes()).unwrap();
            }
        }
        assert!(translator.prompt().is_some(), "{name}");
        assert!(matches!(translator.verdict(false), Verdict::Over(_)), "{name}");
    }
}
