//! The schemas of requests.

use longshore_model::Role;
use serde_json::{Map, Value, json};

use super::content::Dialect;
use super::{object, reference};

pub(super) fn add(schemas: &mut Map<String, Value>, dialect: Dialect) {
    let user = json!({
        "allOf": [
            dialect.reference("Message"),
            {"type": "object", "properties": {"role": {"const": dialect.role(Role::User)}}},
        ],
    });
    object(
        schemas,
        &dialect.named("SendMessageRequest"),
        "A message, and how to respond to it.",
        &["message"],
        json!({
            "message": user,
            "configuration": dialect.reference("SendMessageConfiguration"),
            "metadata": reference("RequestMetadata"),
        }),
    );
    let mut configuration = json!({
        "acceptedOutputModes": {
            "type": "array",
            "items": {"type": "string", "maxLength": 255},
            "maxItems": 64,
            "description": "Media types, or ranges of them.",
        },
        "historyLength": history_length(dialect),
    });
    let (key, description) = match dialect {
        Dialect::V1 => ("returnImmediately", "Respond before the end of the turn. The default is to wait."),
        Dialect::V03Rpc => ("blocking", "Wait for the end of the turn. This is the default."),
        Dialect::V03Rest => ("blocking", "Wait for the end of the turn. The default is not to wait."),
    };
    configuration[key] = json!({"type": "boolean", "description": description});
    let push = match dialect {
        Dialect::V1 => "taskPushNotificationConfig",
        Dialect::V03Rpc => "pushNotificationConfig",
        Dialect::V03Rest => "pushNotification",
    };
    configuration[push] = dialect.reference("PushNotificationConfig");
    object(
        schemas,
        &dialect.named("SendMessageConfiguration"),
        "How to respond to a message.",
        &[],
        configuration,
    );
    if dialect == Dialect::V03Rest {
        // The other REST requests have no body.
        return;
    }
    object(
        schemas,
        &dialect.named("GetTaskRequest"),
        "A task, and how much of its history to return.",
        &["id"],
        json!({"id": reference("Id"), "historyLength": history_length(dialect)}),
    );
    object(schemas, &dialect.named("TaskIdRequest"), "A task.", &["id"], json!({"id": reference("Id")}));
    object(schemas, &dialect.named("ListTasksRequest"), "Which tasks to list.", &[], list_fields(dialect));
}

pub(in crate::openapi) fn history_length(dialect: Dialect) -> Value {
    let description = match dialect {
        Dialect::V1 | Dialect::V03Rpc => "The maximum number of newest messages.",
        // In the ProtoJSON of 0.3, the number 0 cannot be distinguished from an absent number.
        Dialect::V03Rest => "The maximum number of newest messages. 0: all of them.",
    };
    json!({
        "type": "integer",
        "format": "int32",
        "minimum": 0,
        "maximum": i32::MAX,
        "description": description,
    })
}

/// The fields of a list request, in its params and in its query.
pub(in crate::openapi) fn list_fields(dialect: Dialect) -> Value {
    json!({
        "contextId": reference("Id"),
        "status": dialect.reference("TaskState"),
        "statusTimestampAfter": {"type": "string", "format": "date-time", "description": "At this time or later."},
        "pageSize": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100, "default": 50},
        "pageToken": {"type": "string", "description": "The `nextPageToken` of the previous page."},
        // In a query, 0 and absent differ in every dialect.
        "historyLength": history_length(Dialect::V1),
        "includeArtifacts": {"type": "boolean", "default": false},
    })
}
