//! What a contract says about a method of an extension, and about an error.

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use crate::extension::Extension;
use crate::methods::{self, Answer, Item, Method};
use crate::surface::Line;
use crate::{v1, v03};

pub(super) fn of(extension: Extension) -> impl Iterator<Item = &'static Method> {
    methods::served().filter(move |method| method.extension == extension)
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
    let named = |is_required: bool| -> Vec<&str> {
        let named = method.params.iter().filter(|param| param.required == is_required);
        named.map(|param| param.name).collect()
    };
    let (required, optional) = (named(true), named(false));
    if !required.is_empty() {
        params.insert("required".to_owned(), json!(required));
    }
    if !optional.is_empty() {
        params.insert("optional".to_owned(), json!(optional));
    }
    let result = match method.result {
        Answer::Items(Item::Interrupt) => json!({"fields": ["items"], "items_type": "InterruptRequest[]"}),
        _ => json!({"fields": ["ok", "request_id"]}),
    };
    json!({"params": params, "result": result, "notification_response_status": 204})
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
