//! JSON-RPC: one schema for each method of each line, made from the tables.

use serde_json::{Map, Value, json};

use super::content::Dialect;
use super::request::extension_field;
use super::{list_of, object, reference};
use crate::methods;
use crate::surface::{Line, OPERATIONS};
use crate::v1::method::Method;

pub(super) fn add(schemas: &mut Map<String, Value>, lines: &[Line]) {
    schemas.insert(
        "JsonRpcId".to_owned(),
        json!({
            "description": "Comes back as it was. A request without one is a notification, which is answered with 204.",
            "oneOf": [{"type": "string", "maxLength": 1022}, {"type": "integer"}, {"type": "null"}],
        }),
    );
    let mut calls = Vec::new();
    for line in lines {
        for operation in &OPERATIONS {
            let name = operation.jsonrpc(*line);
            let call = format!("{}Call", dialect(*line).named(operation.method.as_str()));
            schemas.insert(call.clone(), core(*line, name, operation.method));
            calls.push(reference(&call));
        }
    }
    for method in methods::served() {
        let fields: Map<String, Value> =
            method.params.iter().map(|param| (param.name.to_owned(), extension_field(param.name))).collect();
        let required: Vec<&str> =
            method.params.iter().filter(|param| param.required).map(|param| param.name).collect();
        let mut params = json!({"type": "object", "properties": fields, "additionalProperties": false});
        if !required.is_empty() {
            params["required"] = json!(required);
        }
        let call = format!("{}Call", pascal_case(method.key));
        schemas.insert(call.clone(), envelope(method.name, &params, !required.is_empty()));
        calls.push(reference(&call));
    }
    schemas.insert(
        "JsonRpcRequest".to_owned(),
        json!({"description": "A call of any method of either line.", "oneOf": calls}),
    );
    object(
        schemas,
        "JsonRpcResult",
        "What a call gave.",
        &["jsonrpc", "id", "result"],
        json!({"jsonrpc": {"const": "2.0"}, "id": reference("JsonRpcId"), "result": {"anyOf": results(lines)}}),
    );
    object(
        schemas,
        "JsonRpcError",
        "Why a call failed.",
        &["jsonrpc", "id", "error"],
        json!({
            "jsonrpc": {"const": "2.0"},
            "id": reference("JsonRpcId"),
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "integer"},
                    "message": {"type": "string"},
                    "data": {
                        "oneOf": [
                            {
                                "title": "1.0",
                                "type": "array",
                                "items": reference("ErrorDetail"),
                            },
                            {"title": "0.3", "allOf": [reference("V03ErrorFacts")]},
                        ],
                    },
                },
            },
        }),
    );
    schemas.insert(
        "JsonRpcResponse".to_owned(),
        json!({"oneOf": [reference("JsonRpcResult"), reference("JsonRpcError")]}),
    );
    object(
        schemas,
        "InterruptAnswered",
        "The agent has the answer.",
        &["ok", "request_id"],
        json!({"ok": {"const": true}, "request_id": reference("Id")}),
    );
    object(
        schemas,
        "InterruptList",
        "What the caller's tasks wait for.",
        &["items"],
        json!({"items": list_of(&reference("InterruptRequest"))}),
    );
    let fields =
        ["request_id", "session_id", "interrupt_type", "task_id", "context_id", "details", "expires_at"];
    object(
        schemas,
        "InterruptRequest",
        "What a task waits for.",
        &fields,
        json!({
            "request_id": reference("Id"),
            "session_id": reference("Id"),
            "interrupt_type": {"enum": ["permission", "question"]},
            "task_id": reference("Id"),
            "context_id": reference("Id"),
            "details": {"type": "object", "additionalProperties": true},
            "expires_at": {
                "type": ["number", "null"],
                "description": "Unix time in seconds. Null: there is no deadline.",
            },
        }),
    );
}

fn pascal_case(key: &str) -> String {
    let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    key.split('_').map(capital).collect()
}

fn dialect(line: Line) -> Dialect {
    match line {
        Line::V1 => Dialect::V1,
        Line::V03 => Dialect::V03Rpc,
    }
}

fn core(line: Line, name: &str, method: Method) -> Value {
    let dialect = dialect(line);
    let (params, is_required) = match method {
        Method::SendMessage | Method::SendStreamingMessage => (dialect.reference("SendMessageRequest"), true),
        Method::GetTask => (dialect.reference("GetTaskRequest"), true),
        Method::ListTasks => (dialect.reference("ListTasksRequest"), false),
        Method::CancelTask | Method::SubscribeToTask => (dialect.reference("TaskIdRequest"), true),
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => {
            let why = "Not read: push notifications are not supported.";
            (json!({"type": "object", "description": why, "additionalProperties": true}), false)
        }
        Method::GetExtendedAgentCard => (json!({"type": "object", "additionalProperties": true}), false),
    };
    envelope(name, &params, is_required)
}

fn envelope(method: &str, params: &Value, needs_params: bool) -> Value {
    let mut required = vec!["jsonrpc", "method"];
    if needs_params {
        required.push("params");
    }
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": reference("JsonRpcId"),
            "method": {"const": method},
            "params": params,
        },
    })
}

fn results(lines: &[Line]) -> Vec<Value> {
    let mut results = Vec::new();
    for dialect in lines.iter().map(|line| dialect(*line)) {
        for name in ["SendMessageResponse", "Task", "TaskPage", "AgentCard"] {
            let reference = dialect.reference(name);
            // On 0.3 the answer to a send is a task.
            if !(dialect == Dialect::V03Rpc && name == "SendMessageResponse") {
                results.push(reference);
            }
        }
    }
    results.extend(["InterruptAnswered", "InterruptList"].map(reference));
    results
}
