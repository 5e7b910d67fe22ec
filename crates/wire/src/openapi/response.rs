//! Builds the responses of the `OpenAPI` document, including all errors.

use std::collections::BTreeMap;

use longshore_model::ErrorKind;
use serde_json::{Map, Value, json};

use super::schema::reference;
use crate::surface::{ProtocolVersion, Verb};
use crate::{v1, v03};

/// The status codes of errors that occur before the version is known, or on a path that belongs to neither version. The format of
/// these errors depends on the request.
const OF_EITHER_VERSION: [u16; 6] = [401, 403, 404, 429, 500, 503];

/// The status codes of every path: 403 for a forbidden origin, and 429 for too many requests if requests to the path are counted.
pub(super) const OF_ANY_PATH: [u16; 2] = [403, 429];

/// The shared responses: for each version its errors, by status.
pub(super) fn all() -> Map<String, Value> {
    let mut responses = Map::new();
    for version in ProtocolVersion::ALL {
        for (status, words) in rows(version) {
            let mut description = format!("One of {}.", words.join(", "));
            let mut response = json(version, &reference(schema(version)));
            if OF_EITHER_VERSION.contains(&status) {
                description.push_str(" In the format of the version that the request names.");
                response = of_either_version();
            }
            response["description"] = json!(description);
            if let Some(name) = header_of(status) {
                response["headers"] = headers(&[name]);
            }
            responses.insert(name(version, status), response);
        }
    }
    let mut rpc = plain_json(&reference("JsonRpcError"));
    rpc["description"] = json!("HTTP itself refuses, or a handler failed.");
    for status in [401, 429] {
        let mut error = rpc.clone();
        error["headers"] = headers(header_of(status).as_slice());
        responses.insert(format!("RpcError{status}"), error);
    }
    responses.insert("RpcError".to_owned(), rpc);
    responses
}

/// The header of an error with this status.
fn header_of(status: u16) -> Option<&'static str> {
    match status {
        401 => Some(CHALLENGE),
        429 => Some(RETRY_AFTER),
        _ => None,
    }
}

fn of_either_version() -> Value {
    let mut response = json(ProtocolVersion::V1, &reference(schema(ProtocolVersion::V1)));
    response["content"]["application/json"]["schema"] =
        json!({"anyOf": ProtocolVersion::ALL.map(|version| reference(schema(version)))});
    response
}

/// The errors of an operation of a version.
pub(super) fn errors(version: ProtocolVersion) -> Map<String, Value> {
    rows(version).into_keys().map(|status| (status.to_string(), error(version, status))).collect()
}

pub(super) fn error(version: ProtocolVersion, status: u16) -> Value {
    shared(&name(version, status))
}

fn shared(name: &str) -> Value {
    json!({"$ref": format!("#/components/responses/{name}")})
}

/// Errors that only occur in JSON-RPC methods.
const OF_METHODS: [ErrorKind; 7] = [
    ErrorKind::SessionNotFound,
    ErrorKind::SessionForbidden,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::AuthorizationForbidden,
    ErrorKind::MethodDisabled,
];

/// The error words of a version by status. Contains no 405, because a path with another verb is another operation.
fn rows(version: ProtocolVersion) -> BTreeMap<u16, Vec<&'static str>> {
    let mut rows: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    let is_listed = |kind: &ErrorKind| *kind != ErrorKind::VerbNotAllowed && !OF_METHODS.contains(kind);
    for kind in ErrorKind::ALL.into_iter().filter(is_listed) {
        let (status, word) = match version {
            ProtocolVersion::V1 => (v1::error::row(kind).http, v1::error::row(kind).reason),
            ProtocolVersion::V03 => (v03::error::row(kind).http, v03::error::row(kind).word),
        };
        rows.entry(status).or_default().push(word);
    }
    rows
}

fn name(version: ProtocolVersion, status: u16) -> String {
    match version {
        ProtocolVersion::V1 => format!("Error{status}"),
        ProtocolVersion::V03 => format!("V03Error{status}"),
    }
}

fn schema(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V1 => "RestError",
        ProtocolVersion::V03 => "V03RestError",
    }
}

const VERSION: &str = "A2A-Version";
const TRACE: &str = "traceparent";
const RETRY_AFTER: &str = "Retry-After";
const CHALLENGE: &str = "WWW-Authenticate";
const ETAG: &str = "ETag";
const LAST_MODIFIED: &str = "Last-Modified";
const CACHE_CONTROL: &str = "Cache-Control";
const ACCEPT_RANGES: &str = "Accept-Ranges";
const CONTENT_RANGE: &str = "Content-Range";
const CONTENT_DISPOSITION: &str = "Content-Disposition";

/// The shared headers. A response always has the headers that it declares, except `Retry-After`, whose value may be unknown.
pub(super) fn all_headers() -> Map<String, Value> {
    let described = [
        (VERSION, "The version of A2A that defines the format of this response."),
        (TRACE, "The trace that the request belongs to: its own, or a new one."),
        (RETRY_AFTER, "The number of seconds after which to retry."),
        (CHALLENGE, "The accepted authentication schemes."),
        (ETAG, "The tag of this version, for If-None-Match."),
        (LAST_MODIFIED, "The time since which this version exists."),
        (CACHE_CONTROL, "Who may cache the document, and for how long."),
        (ACCEPT_RANGES, "Ranges can be requested."),
        (CONTENT_RANGE, "The range in this response, and the size of the file."),
        (CONTENT_DISPOSITION, "The suggested file name."),
    ];
    let header = |(name, description): (&str, &str)| {
        let mut schema = json!({"type": "string"});
        if name == VERSION {
            schema["enum"] = json!(ProtocolVersion::ALL.map(ProtocolVersion::as_str));
        }
        if name == RETRY_AFTER {
            schema = json!({"type": "integer", "minimum": 1});
        }
        let is_required = name != RETRY_AFTER;
        (name.to_owned(), json!({"description": description, "required": is_required, "schema": schema}))
    };
    described.into_iter().map(header).collect()
}

fn headers(names: &[&str]) -> Value {
    let header = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
    Value::Object(names.iter().map(header).collect())
}

/// Adds the headers of every response. Skips references, because the referenced response has the headers.
pub(super) fn add_common_headers(answers: &mut Value) {
    for answer in answers.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if answer.get("$ref").is_none() {
            for name in [VERSION, TRACE] {
                answer["headers"][name] = headers(&[name])[name].take();
            }
        }
    }
}

/// A JSON response of a version, with the media types of the version.
pub(super) fn json(version: ProtocolVersion, schema: &Value) -> Value {
    let mut response = plain_json(schema);
    if version == ProtocolVersion::V1 {
        response["content"]["application/a2a+json"] = json!({"schema": schema});
    }
    response
}

pub(super) fn plain_json(schema: &Value) -> Value {
    json!({"description": "Done.", "content": {"application/json": {"schema": schema}}})
}

/// A stream of server-sent events. The text itself has no schema, but the JSON in each `data:` has one.
pub(super) fn events(schema: &Value) -> Value {
    json!({"description": "Events, as they happen.", "content": stream(schema)})
}

fn stream(schema: &Value) -> Value {
    json!({
        "text/event-stream": {
            "schema": {
                "type": "string",
                "description": "Each event has `data:` with one line of JSON, and `id:`, which can be sent as Last-Event-ID. An error has no id.",
            },
            "x-event-data": schema,
        },
    })
}

pub(super) fn rpc() -> Map<String, Value> {
    let mut content = plain_json(&reference("JsonRpcResponse"));
    let mut data: Vec<Value> = Vec::new();
    for version in ProtocolVersion::ALL {
        let name = match version {
            ProtocolVersion::V1 => "StreamResponse",
            ProtocolVersion::V03 => "V03StreamResponse",
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
    responses.insert("204".to_owned(), json!({"description": "The request was a notification."}));
    responses.insert("401".to_owned(), shared("RpcError401"));
    responses.insert("429".to_owned(), shared("RpcError429"));
    for status in ["403", "413", "500", "503"] {
        responses.insert(status.to_owned(), shared("RpcError"));
    }
    responses
}

/// The responses of a cacheable document: the document, and 304 for a caller that already has it.
pub(super) fn cached(description: &str, schema: &Value, verb: Verb) -> Map<String, Value> {
    let headers = headers(&[ETAG, LAST_MODIFIED, CACHE_CONTROL]);
    let mut response = json!({"description": description, "headers": headers});
    if verb != Verb::Head {
        response["content"] = json!({"application/json": {"schema": schema}});
    }
    let unchanged = json!({"description": "The caller has the current version.", "headers": headers});
    Map::from_iter([("200".to_owned(), response), ("304".to_owned(), unchanged)])
}

pub(super) fn file(verb: Verb) -> Map<String, Value> {
    let version = [ETAG, LAST_MODIFIED, CACHE_CONTROL, ACCEPT_RANGES];
    let content = |description: &str, more: &[&str]| {
        let named = [&version[..], &[CONTENT_DISPOSITION], more].concat();
        let mut response = json!({"description": description, "headers": headers(&named)});
        if verb != Verb::Head {
            response["content"] = json!({"*/*": {}});
        }
        response
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), content("The file.", &[]));
    if verb != Verb::Head {
        responses.insert("206".to_owned(), content("A part of the file.", &[CONTENT_RANGE]));
        let outside =
            json!({"description": "The file has no such range.", "headers": headers(&[CONTENT_RANGE])});
        responses.insert("416".to_owned(), outside);
    }
    let unchanged = json!({"description": "The caller has the file.", "headers": headers(&version)});
    responses.insert("304".to_owned(), unchanged);
    for status in OF_EITHER_VERSION {
        responses.insert(status.to_string(), error(ProtocolVersion::V1, status));
    }
    responses
}

pub(super) fn health(verb: Verb) -> Map<String, Value> {
    let response = |description: &str| {
        let mut response = json!({"description": description});
        if verb != Verb::Head {
            response["content"] = json!({"application/json": {"schema": reference("Health")}});
        }
        response
    };
    let mut responses = Map::new();
    responses.insert("200".to_owned(), response("The gateway accepts new work."));
    for status in [401, 500] {
        responses.insert(status.to_string(), error(ProtocolVersion::V1, status));
    }
    responses.insert("503".to_owned(), response("A required part is down."));
    responses
}

pub(super) fn metrics(verb: Verb) -> Map<String, Value> {
    let mut page = json!({"description": "The page."});
    if verb != Verb::Head {
        page["content"] = json!({"text/plain": {"schema": {"type": "string"}}});
    }
    let mut responses = Map::new();
    responses.insert("200".to_owned(), page);
    for status in [401, 500] {
        responses.insert(status.to_string(), error(ProtocolVersion::V1, status));
    }
    responses
}
