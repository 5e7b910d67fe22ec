use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::*;

fn update(value: &serde_json::Value) -> Update {
    Update::read(&to_raw_value(value).unwrap())
}

#[test]
fn a_member_of_another_type_does_not_make_the_rest_unreadable() {
    let call = update(&json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "title": 7, "kind": null, "status": "completed",
        "content": [1, {"type": "diff", "path": "a", "oldText": null, "newText": "x"}, {"type": "terminal", "terminalId": "t"}],
        "locations": "here", "rawInput": null, "rawOutput": "", "_meta": [],
    }));
    let Update::ToolCallUpdate(call) = call else { panic!("{call:?}") };
    assert_eq!((call.title, call.kind, call.status.as_deref()), (None, None, Some("completed")));
    assert_eq!(
        (call.locations, call.raw_input, call.raw_output.as_ref().map(Json::get)),
        (None, None, Some("\"\""))
    );
    let content: Vec<_> = call.content.unwrap().into_iter().map(|content| content.kind).collect();
    assert_eq!(content, ["diff", "terminal"]);

    let answer: InitializeAnswer = read(&Json::from_value(&json!({
        "protocolVersion": 1, "agentCapabilities": {"loadSession": true, "sessionCapabilities": {"list": {}, "fork": null, "close": false}},
        "authMethods": [{"id": "a"}, {"name": "no id"}], "agentInfo": null,
    })))
    .unwrap();
    let sessions = answer.agent_capabilities.session_capabilities;
    assert!(answer.agent_capabilities.load_session);
    assert_eq!((sessions.list, sessions.fork, sessions.close, sessions.resume), (true, false, false, false));
    assert_eq!(answer.auth_methods.len(), 1);
}

#[test]
fn an_update_that_is_not_understood_keeps_its_name() {
    for (value, name) in [
        (json!({"sessionUpdate": "telepathy", "x": 1}), "telepathy"),
        (json!({"sessionUpdate": 7}), ""),
        (json!({}), ""),
        (json!([]), ""),
        // Without an id, later updates of a tool call could not be assigned to it.
        (json!({"sessionUpdate": "tool_call", "title": "x"}), "tool_call"),
    ] {
        assert_eq!(update(&value), Update::Unknown(name.to_owned()), "{value}");
    }
}

#[test]
fn the_name_of_a_tool_is_found_where_each_agent_puts_it() {
    for meta in [
        json!({"claudeCode": {"toolName": "Bash"}}),
        json!({"toolName": "Bash", "timestamp": 1}),
        json!({"tool_name": "Bash", "effect_kind": "shell"}),
    ] {
        let call = update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "_meta": meta}));
        let Update::ToolCall(call) = call else { panic!("{call:?}") };
        assert_eq!(call.meta.tool.as_deref(), Some("Bash"));
        assert_eq!(call.meta.raw.map(|raw| raw.to_value()), Some(meta));
    }
}

#[test]
fn a_meta_that_is_empty_long_or_no_object_is_not_passed_on() {
    for (meta, tool) in [
        (json!({}), None),
        (json!([{"toolName": "Bash"}]), None),
        (json!({"toolName": "Bash", "toolResponse": "x".repeat(MAX_META)}), Some("Bash")),
    ] {
        let call = update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "_meta": meta}));
        let Update::ToolCall(call) = call else { panic!("{call:?}") };
        assert_eq!((call.meta.tool.as_deref(), call.meta.raw), (tool, None));
    }
}

#[test]
fn choices_of_a_config_option_may_be_grouped() {
    let answer: SessionAnswer = read(&Json::from_value(&json!({"sessionId": "s", "configOptions": [
        {"id": "model", "category": "model", "currentValue": "a", "options": [
            {"value": "a", "name": "A"}, {"group": "g", "name": "G", "options": [{"value": "b", "name": "B"}]}]},
        {"id": "fast", "type": "boolean", "currentValue": true},
        {"name": "no id"},
    ]})))
    .unwrap();
    let values =
        |option: &ConfigOption| option.choices.iter().map(|choice| choice.value.clone()).collect::<Vec<_>>();
    assert_eq!(answer.config_options.len(), 2);
    assert_eq!(values(&answer.config_options[0]), ["a", "b"]);
    assert_eq!(answer.config_options[1].current_value, "true");
}

#[test]
fn null_is_an_empty_answer_and_other_values_are_none() {
    assert_eq!(read::<SessionAnswer>(&Json::parse("null").unwrap()), Some(SessionAnswer::default()));
    assert_eq!(read::<SessionAnswer>(&Json::parse("[]").unwrap()), None);
}

#[test]
fn a_list_that_is_long_or_deep_is_read_in_part() {
    let many = "{},".repeat(100_000);
    let call = format!(
        r#"{{"sessionUpdate":"tool_call","toolCallId":"c","content":[{many}{{}}],"locations":[{}{{"path":"b"}}]}}"#,
        "{\"path\":\"a\"},".repeat(100_000)
    );
    let Update::ToolCall(call) = Update::read(&RawValue::from_string(call).unwrap()) else {
        panic!("no call")
    };
    assert_eq!(call.content.unwrap().len(), call.locations.as_ref().unwrap().len());
    assert!(call.locations.unwrap().len() < 10_000);

    let title = json!({"sessionUpdate": "session_info_update", "title": "t".repeat(100_000)});
    let Update::Title(Some(title)) = update(&title) else { panic!("no title") };
    assert!(title.len() < 10_000);

    // Choices may be grouped, and an entry of a group may look like another group.
    let depth = 9_000;
    let deep = "{\"options\":[".repeat(depth) + &"]}".repeat(depth);
    let options = format!(
        r#"{{"sessionUpdate":"config_option_update","configOptions":[{{"id":"model","currentValue":"a",
            "options":[{{"value":"a"}},{{"name":"more","options":[{{"value":"b"}}]}},{deep}]}}]}}"#
    );
    let Update::ConfigOptions(options) = Update::read(&RawValue::from_string(options).unwrap()) else {
        panic!("no options")
    };
    let values: Vec<_> = options[0].choices.iter().map(|choice| choice.value.as_str()).collect();
    assert_eq!(values, ["a", "b"]);
}
