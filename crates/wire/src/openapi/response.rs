//! Answers: what comes back, and every way in which it can fail.

use std::collections::BTreeMap;

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use super::schema::reference;
use crate::surface::{Line, Verb};
use crate::{v1, v03};

/// The shared answers: the errors of each line by their status.
pub(super) fn all() -> Map<String, Value> {
    let mut responses = Map::new();
    for line in Line::ALL {
        for (status, words) in rows(line) {
            let description = format!("One of {}.", words.join(", "));
            let mut response = json(line, &reference(schema(line)));
            response["description"] = json!(description);
            if status == 401 {
                response["headers"] = challenge();
            }
            responses.insert(name(line, status), response);
        }
    }
    let mut rpc = plain_json(&reference("JsonRpcError"));
    rpc["description"] = json!("HTTP itself refuses, or a handler broke.");
    let mut unauthenticated = rpc.clone();
    unauthenticated["headers"] = challenge();
    responses.insert("RpcError".to_owned(), rpc);
    responses.insert("RpcError401".to_owned(), unauthenticated);
    responses
}

/// The errors that an operation of a line can end in.
pub(super) fn errors(line: Line) -> Map<String, Value> {
    rows(line).into_keys().map(|status| (status.to_string(), error(line, status))).collect()
}

pub(super) fn error(line: Line, status: u16) -> Value {
    shared(&name(line, status))
}

fn shared(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// The words of the errors, by status. A path that takes other verbs is another operation, so 405 is none of any.
fn rows(line: Line) -> BTreeMap<u16, Vec<&'static str>> {
    let mut rows: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for kind in ErrorKind::ALL.into_iter().filter(|kind| *kind != ErrorKind::VerbNotAllowed) {
        let (status, word) = match line {
            Line::V1 => (v1::error::row(kind).http, v1::error::row(kind).reason),
            Line::V03 => (v03::error::row(kind).http, v03::error::row(kind).word),
        };
        rows.entry(status).or_default().push(word);
    }
    rows
}

fn name(line: Line, status: u16) -> String {
    match line {
        Line::V1 => format!("Error{status}"),
        Line::V03 => format!("V03Error{status}"),
    }
}

fn schema(line: Line) -> &'static str {
    match line {
        Line::V1 => "RestError",
        Line::V03 => "V03RestError",
    }
}

fn challenge() -> Value {
    json!({"WWW-Authenticate": {"description": "The schemes that are taken.", "schema": {"type": "string"}}})
}

/// JSON of a line, under the media types that it has.
pub(super) fn json(line: Line, schema: &Value) -> Value {
    let mut response = plain_json(schema);
    if line == Line::V1 {
        response["content"]["application/a2a+json"] = json!({"schema": schema});
    }
    response
}

pub(super) fn plain_json(schema: &Value) -> Value {
    json!({"description": "Done.", "content": {"application/json": {"schema": schema}}})
}

/// A stream of server-sent events. Its text has no schema of its own; each `data:` has.
pub(super) fn events(schema: &Value) -> Value {
    json!({"description": "Events, as they happen.", "content": stream(schema)})
}

fn stream(schema: &Value) -> Value {
    json!({
        "text/event-stream": {
            "schema": {
                "type": "string",
                "description": "Events with `id:`, which is good as Last-Event-ID, and `data:`, which is one line of JSON.",
            },
            "x-event-data": schema,
        },
    })
}

pub(super) fn rpc() -> Map<String, Value> {
    let mut content = plain_json(&reference("JsonRpcResponse"));
    let mut data: Vec<Value> = Vec::new();
    for line in Line::ALL {
        let name = match line {
            Line::V1 => "StreamResponse",
            Line::V03 => "V03StreamResponse",
        };
        data.push(reference(name));
    }
    let frame = json!({
        "type": "object",
        "required": ["jsonrpc", "id"],
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": reference("JsonRpcId"),
            "result": {"anyOf": data},
            "error": {"type": "object", "additionalProperties": true},
        },
    });
    content["content"]["text/event-stream"] = stream(&frame)["text/event-stream"].take();
    content["description"] = json!("The result, the error, or a stream of results.");
    let mut responses = Map::new();
    responses.insert("200".to_owned(), content);
    responses.insert("204".to_owned(), json!({"description": "It was a notification."}));
    responses.insert("401".to_owned(), shared("RpcError401"));
    for status in ["403", "413", "429", "500", "503"] {
        responses.insert(status.to_owned(), shared("RpcError"));
    }
    responses
}

/// With validators.
pub(super) fn cached(schema: &Value, verb: Verb) -> Value {
    let text = json!({"schema": {"type": "string"}});
    let mut response = json!({
        "description": "The card.",
        "headers": {"ETag": text, "Cache-Control": text, "Last-Modified": text},
    });
    if verb != Verb::Head {
        response["content"] = json!({"application/json": {"schema": schema}});
    }
    response
}

pub(super) fn file(verb: Verb) -> Map<String, Value> {
    let content = |description: &str| {
        let mut response = json!({"description": description});
        if verb != Verb::Head {
            response["content"] = json!({"*/*": {}});
        }
        response
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), content("The file."));
    responses.insert("206".to_owned(), content("A part of the file."));
    responses.insert("304".to_owned(), json!({"description": "The caller has the file."}));
    responses.insert("416".to_owned(), json!({"description": "The file has no such part."}));
    responses.extend(errors(Line::V1));
    responses
}

pub(super) fn health() -> Map<String, Value> {
    let mut responses = errors(Line::V1);
    responses.insert("200".to_owned(), plain_json(&reference("Health")));
    let mut unavailable = plain_json(&json!({"anyOf": [reference("Health"), reference("RestError")]}));
    unavailable["description"] = json!("Something that is needed is down.");
    responses.insert("503".to_owned(), unavailable);
    responses
}
