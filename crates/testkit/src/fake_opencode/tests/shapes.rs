//! Compares answers with OpenCode's own description of them.

use std::sync::LazyLock;

use serde_json::Value;

/// The answers and the schemas that they use, from the API document of OpenCode 1.18.33.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../recordings/answers.json")).expect("the document is JSON")
});

/// Panics unless the answer is as documented. `call` is method and path, as in the document.
pub(super) fn check(call: &str, answer: &Value) {
    let schema = &DOCUMENT["answers"][call];
    assert!(!schema.is_null(), "{call} is not documented");
    let mut answer = answer.clone();
    if call == "GET /command" {
        remove_nulls(&mut answer);
    }
    if let Err(fault) = fits(schema, &answer, "answer") {
        panic!("{call}: {fault}\n{answer:#}");
    }
}

/// OpenCode lists the unset fields of a command as null, against its own document.
fn remove_nulls(commands: &mut Value) {
    for command in commands.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        command.retain(|_, value| !value.is_null());
    }
}

fn fits(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return fits(&DOCUMENT["schemas"][name], value, path);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let faults: Vec<String> =
            choices.iter().filter_map(|choice| fits(choice, value, path).err()).collect();
        return if faults.len() < choices.len() { Ok(()) } else { Err(faults.join("; ")) };
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return Err(format!("{path}: {value} is none of {values:?}"));
    }
    let is_of_type = match schema["type"].as_str() {
        None => true,
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some(other) => panic!("unknown type: {other}"),
    };
    if !is_of_type {
        return Err(format!("{path}: {value} is no {}", schema["type"]));
    }
    if let (Some(prefix), Some(text)) =
        (schema["pattern"].as_str().and_then(|p| p.strip_prefix('^')), value.as_str())
        && !text.starts_with(prefix)
    {
        return Err(format!("{path}: {text} does not begin with {prefix}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        fits(&schema["items"], item, &format!("{path}[{index}]"))?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(required) {
            return Err(format!("{path}.{required} is missing"));
        }
    }
    for (name, field) in fields {
        let path = format!("{path}.{name}");
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) | (None, schema @ Value::Object(_)) => fits(schema, field, &path)?,
            (None, Value::Bool(false)) => return Err(format!("{path} is not documented")),
            (None, _) => {}
        }
    }
    Ok(())
}

#[test]
fn the_check_finds_missing_additional_and_mistyped_fields() {
    let todo = |answer: Value| fits(&DOCUMENT["schemas"]["Todo"], &answer, "todo").err();
    let whole = serde_json::json!({"content": "a", "status": "pending", "priority": "low"});
    assert_eq!(todo(whole.clone()), None);
    for (name, value) in [("id", Value::from("1")), ("status", Value::from(1)), ("priority", Value::Null)] {
        let mut wrong = whole.clone();
        wrong[name] = value;
        assert!(todo(wrong).is_some(), "{name}");
    }
    assert!(todo(serde_json::json!({"content": "a"})).is_some());
}
