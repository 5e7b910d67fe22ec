//! Example requests, which can be sent unchanged.

use serde_json::{Map, Value, json};

use super::schema::Dialect;
use crate::contract::Deployment;
use crate::methods;
use crate::names;
use crate::surface::{OPERATIONS, Params, ProtocolVersion};

/// Example bodies of a send.
pub(super) fn sends(deployment: &Deployment, dialect: Dialect) -> Map<String, Value> {
    let text = text_message(dialect, "msg-1", "Explain what this project does.");
    let mut in_session = json!({"message": text_message(dialect, "msg-2", "Go on.")});
    in_session["metadata"] = json!({"shared": {"session": {"id": "ses_1"}}});
    let mut at_once = json!({"message": text_message(dialect, "msg-3", "Run the tests.")});
    at_once["configuration"] = match dialect {
        Dialect::V1 => json!({"returnImmediately": true}),
        Dialect::V03Rpc | Dialect::V03Rest => json!({"blocking": false}),
    };
    let mut with_model = json!({"message": text_message(dialect, "msg-4", "Review the last change.")});
    with_model["metadata"] = json!({"shared": {"model": {"providerID": "openai", "modelID": "gpt-5"}}});
    let examples = [
        ("text", "A text.", json!({"message": text})),
        ("session", deployment.surface.session_example, in_session),
        ("at_once", "Without waiting for the end of the turn.", at_once),
        ("model", "With a model of choice.", with_model),
    ];
    examples.into_iter().map(|(name, summary, value)| entry(name, summary, &value)).collect()
}

fn entry(name: &str, summary: &str, value: &Value) -> (String, Value) {
    (name.to_owned(), json!({"summary": summary, "value": value}))
}

fn text_message(dialect: Dialect, id: &str, text: &str) -> Value {
    match dialect {
        Dialect::V1 => json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}),
        Dialect::V03Rpc => {
            json!({"kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": text}]})
        }
        Dialect::V03Rest => json!({"messageId": id, "role": "ROLE_USER", "content": [{"text": text}]}),
    }
}

/// Example bodies of JSON-RPC calls.
pub(super) fn calls(deployment: &Deployment) -> Map<String, Value> {
    let mut examples = Map::new();
    for version in ProtocolVersion::ALL {
        let (dialect, word) = match version {
            ProtocolVersion::V1 => (Dialect::V1, "v1"),
            ProtocolVersion::V03 => (Dialect::V03Rpc, "v03"),
        };
        for operation in &OPERATIONS {
            let params = match operation.params {
                Params::Message => {
                    json!({"message": text_message(dialect, "msg-1", "Explain what this project does.")})
                }
                Params::TaskWithHistory => json!({"id": "task-1", "historyLength": 10}),
                Params::List => json!({"pageSize": 20}),
                Params::NewPushConfig => push_config(dialect),
                Params::PushConfig if dialect == Dialect::V1 => json!({"taskId": "task-1", "id": "hook-1"}),
                Params::PushConfig => json!({"id": "task-1", "pushNotificationConfigId": "hook-1"}),
                Params::PushConfigs if dialect == Dialect::V1 => json!({"taskId": "task-1"}),
                Params::Task | Params::PushConfigs => json!({"id": "task-1"}),
                Params::Ignored => continue,
            };
            let value = call(operation.jsonrpc(version), &params);
            let name = format!("{word}_{}", operation.method.as_str());
            examples.extend([entry(&name, operation.summary, &value)]);
        }
    }
    for (method, params) in about_asks().into_iter().chain((deployment.surface.examples)()) {
        if let Some(method) = methods::enabled(deployment).find(|served| served.name == method) {
            examples.extend([entry(method.key, method.summary, &call(method.name, &params))]);
        }
    }
    examples
}

fn push_config(dialect: Dialect) -> Value {
    let (id, url) = ("hook-1", "https://hooks.example.com/a2a");
    let (scheme, credentials) = ("Bearer", "the token of the receiver");
    match dialect {
        Dialect::V1 => json!({
            "taskId": "task-1",
            "id": id,
            "url": url,
            "authentication": {"scheme": scheme, "credentials": credentials},
        }),
        Dialect::V03Rpc | Dialect::V03Rest => json!({
            "taskId": "task-1",
            "pushNotificationConfig": {
                "id": id,
                "url": url,
                "authentication": {"schemes": [scheme], "credentials": credentials},
            },
        }),
    }
}

/// Example parameters for methods about asks.
fn about_asks() -> [(&'static str, Value); 3] {
    [
        ("a2a.interrupt.permission.reply", json!({"request_id": "per_1", "reply": "once"})),
        ("a2a.interrupt.question.reply", json!({"request_id": "que_1", "answers": [["yes"]]})),
        (names::LIST_PERMISSIONS, json!({})),
    ]
}

fn call(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}
