//! What a contract says about a method of an extension, and about an error.

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use crate::extension::Extension;
use crate::surface::Line;
use crate::v1::extension::{METHODS, Method};
use crate::{v1, v03};

/// The answer of a method, and what it cannot do without.
struct Row {
    name: &'static str,
    required: &'static [&'static str],
    fields: &'static [&'static str],
    items_type: Option<&'static str>,
}

const TABLE: [Row; 5] = [
    Row {
        name: "a2a.interrupt.permission.reply",
        required: &["request_id", "reply"],
        fields: &["ok", "request_id"],
        items_type: None,
    },
    Row {
        name: "a2a.interrupt.question.reply",
        required: &["request_id", "answers"],
        fields: &["ok", "request_id"],
        items_type: None,
    },
    Row {
        name: "a2a.interrupt.question.reject",
        required: &["request_id"],
        fields: &["ok", "request_id"],
        items_type: None,
    },
    Row {
        name: "opencode.permissions.list",
        required: &[],
        fields: &["items"],
        items_type: Some("InterruptRequest[]"),
    },
    Row {
        name: "opencode.questions.list",
        required: &[],
        fields: &["items"],
        items_type: Some("InterruptRequest[]"),
    },
];

pub(super) fn of(extension: Extension) -> impl Iterator<Item = &'static Method> {
    METHODS.iter().filter(move |method| method.extension == extension)
}

/// The methods of an extension, by the keys of the card.
pub(super) fn names(extension: Extension) -> Map<String, Value> {
    of(extension).map(|method| (method.key.to_owned(), json!(method.name))).collect()
}

/// How each method of an extension is called.
pub(super) fn contracts(extension: Extension) -> Map<String, Value> {
    of(extension).map(|method| (method.name.to_owned(), contract(method))).collect()
}

fn contract(method: &Method) -> Value {
    let mut params = Map::new();
    let required = required(method.name);
    let optional: Vec<&str> =
        method.params().iter().copied().filter(|name| !required.contains(name)).collect();
    if !required.is_empty() {
        params.insert("required".to_owned(), json!(required));
    }
    if !optional.is_empty() {
        params.insert("optional".to_owned(), json!(optional));
    }
    let row = row(method.name);
    let mut result = json!({"fields": row.map_or(&[][..], |row| row.fields)});
    if let Some(items_type) = row.and_then(|row| row.items_type) {
        result["items_type"] = json!(items_type);
    }
    json!({"params": params, "result": result, "notification_response_status": 204})
}

/// The parameters that a method cannot do without.
pub(crate) fn required(method: &str) -> &'static [&'static str] {
    row(method).map_or(&[], |row| row.required)
}

fn row(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

/// The code of an error and the word that clients go by, in the spelling of a line.
pub(crate) fn code(line: Line, kind: ErrorKind) -> (i32, &'static str) {
    match line {
        Line::V1 => {
            let row = v1::error::row(kind);
            (row.code, row.reason)
        }
        Line::V03 => {
            let row = v03::error::row(kind);
            (row.code, row.word)
        }
    }
}

pub(super) fn error(line: Line, kind: ErrorKind) -> Value {
    let (code, word) = code(line, kind);
    json!({"code": code, "type": word})
}

/// The codes of these kinds, by their words.
pub(super) fn codes(line: Line, kinds: &[ErrorKind]) -> Map<String, Value> {
    kinds.iter().map(|kind| code(line, *kind)).map(|(code, word)| (word.to_owned(), json!(code))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extension::Activated;

    #[test]
    fn every_method_has_one_row_and_what_it_requires_is_required() {
        assert_eq!(TABLE.map(|row| row.name).as_slice(), METHODS.each_ref().map(|method| method.name));
        for method in &METHODS {
            let activated: Activated = [method.extension].into_iter().collect();
            let value = |name: &str| match name {
                "request_id" => json!("per_1"),
                "reply" => json!("once"),
                "answers" => json!([["yes"]]),
                "metadata" => json!({}),
                "message" => json!("go on"),
                _ => panic!("{name}"),
            };
            let full: Map<String, Value> =
                method.params().iter().map(|name| ((*name).to_owned(), value(name))).collect();
            assert!(method.read(&Value::Object(full.clone()).to_string(), activated).is_ok());
            for name in method.params() {
                let mut partial = full.clone();
                partial.shift_remove(*name);
                let read = method.read(&Value::Object(partial).to_string(), activated);
                assert_eq!(read.is_err(), required(method.name).contains(name), "{} {name}", method.name);
            }
        }
    }
}
