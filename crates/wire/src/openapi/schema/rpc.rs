//! The JSON-RPC schemas: one for each method of each version, generated from the tables.

use serde_json::{Map, Value, json};

use super::content::Dialect;
use super::{object, reference};
use crate::contract::Deployment;
use crate::methods;
use crate::methods::item::OF_ASKS;
use crate::surface::{OPERATIONS, Operation, Params, ProtocolVersion};

pub(super) fn add(schemas: &mut Map<String, Value>, deployment: &Deployment) {
    schemas.insert(
        "JsonRpcId".to_owned(),
        json!({
            "description": "The response repeats the id unchanged. A request without an id is a notification, which is answered with 204.",
            "oneOf": [{"type": "string", "maxLength": 1022}, {"type": "integer"}, {"type": "null"}],
        }),
    );
    let mut calls = Vec::new();
    for version in ProtocolVersion::ALL {
        for operation in &OPERATIONS {
            let call = format!("{}Call", dialect(version).named(operation.method.as_str()));
            schemas.insert(call.clone(), core(version, operation));
            calls.push(reference(&call));
        }
    }
    for method in methods::enabled(deployment) {
        let call = format!("{}Call", methods::pascal_case(method.key));
        schemas.insert(call.clone(), extension(method, deployment));
        calls.push(reference(&call));
    }
    for version in ProtocolVersion::ALL {
        for item in deployment.surface.items.iter().copied().chain(OF_ASKS) {
            if let Some(schema) = methods::schema::item(item, version) {
                schemas.insert(methods::schema::item_name(item, version), schema);
            }
        }
        for method in methods::enabled(deployment) {
            let schema = methods::schema::result(method.result, version);
            schemas.insert(methods::schema::result_name(method.result, version), schema);
        }
    }
    schemas.insert(
        "JsonRpcRequest".to_owned(),
        json!({"description": "A call of any method of either version.", "oneOf": calls}),
    );
    object(
        schemas,
        "JsonRpcResult",
        "The result of a call.",
        &["jsonrpc", "id", "result"],
        json!({"jsonrpc": {"const": "2.0"}, "id": reference("JsonRpcId"), "result": {"anyOf": results(deployment)}}),
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
}

fn dialect(version: ProtocolVersion) -> Dialect {
    match version {
        ProtocolVersion::V1 => Dialect::V1,
        ProtocolVersion::V03 => Dialect::V03Rpc,
    }
}

fn core(version: ProtocolVersion, operation: &Operation) -> Value {
    let dialect = dialect(version);
    let (params, is_required) = match operation.params {
        Params::Message => (dialect.reference("SendMessageRequest"), true),
        Params::TaskWithHistory => (dialect.reference("GetTaskRequest"), true),
        Params::List => (dialect.reference("ListTasksRequest"), false),
        Params::Task => (dialect.reference("TaskIdRequest"), true),
        Params::NewPushConfig => (dialect.reference("CreateTaskPushNotificationConfigRequest"), true),
        Params::PushConfig => (dialect.reference("TaskPushNotificationConfigIdRequest"), true),
        Params::PushConfigs => (dialect.reference("ListTaskPushNotificationConfigsRequest"), true),
        Params::Ignored => (json!({"type": "object", "additionalProperties": true}), false),
    };
    envelope(operation.jsonrpc(version), &params, is_required)
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

/// The schema of a call of an extension method, with its result in each version.
fn extension(method: &methods::Method, deployment: &Deployment) -> Value {
    let params = methods::schema::params(method, deployment);
    let mut call = envelope(method.name, &params, method.params.iter().any(|param| param.required));
    call["description"] = json!(method.summary);
    let results = ProtocolVersion::ALL.map(|version| {
        let result = methods::schema::result_name(method.result, version);
        (version.as_str().to_owned(), reference(&result))
    });
    call["x-a2a-result"] = Value::Object(results.into_iter().collect());
    call
}

fn results(deployment: &Deployment) -> Vec<Value> {
    let mut results = Vec::new();
    for dialect in ProtocolVersion::ALL.map(dialect) {
        for name in [
            "SendMessageResponse",
            "Task",
            "TaskPage",
            "TaskPushNotificationConfig",
            "TaskPushNotificationConfigPage",
            "AgentCard",
        ] {
            let reference = dialect.reference(name);
            // In 0.3 the response to a send is a task.
            if !(dialect == Dialect::V03Rpc && name == "SendMessageResponse") {
                results.push(reference);
            }
        }
    }
    // The results of a deletion: first that of 1.0, then that of 0.3.
    results.push(json!({"title": "Deleted", "type": "object", "maxProperties": 0}));
    results.push(json!({"title": "V03Deleted", "type": "null"}));
    for method in methods::enabled(deployment) {
        for version in ProtocolVersion::ALL {
            let result = reference(&methods::schema::result_name(method.result, version));
            if !results.contains(&result) {
                results.push(result);
            }
        }
    }
    results
}
