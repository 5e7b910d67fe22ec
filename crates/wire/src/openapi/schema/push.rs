//! The schemas of push notifications.

use serde_json::{Map, Value, json};

use super::content::Dialect;
use super::{list_of, object, reference};

pub(super) fn add(schemas: &mut Map<String, Value>, dialect: Dialect) {
    let (id, text) = (reference("Id"), json!({"type": "string"}));
    let (key, kind) = match dialect {
        Dialect::V1 => ("scheme", text.clone()),
        Dialect::V03Rpc | Dialect::V03Rest => ("schemes", list_of(&text)),
    };
    let config = |is_request: bool| {
        let mut authentication = json!({key: kind});
        let mut fields = json!({
            "id": {"allOf": [id], "description": "Without one, the configuration gets the id of the task."},
            "url": {"type": "string", "format": "uri", "maxLength": 2048},
        });
        if is_request {
            authentication["credentials"] = text.clone();
            fields["token"] = text.clone();
        }
        fields["authentication"] = json!({"type": "object", "required": [key], "properties": authentication});
        fields
    };
    let named = |name: &str| dialect.named(name);
    let (request, answer) = (config(true), config(false));
    let about = "Where the events of a task are sent to.";
    if dialect == Dialect::V1 {
        let with_task = |fields: &Value| {
            let mut all = json!({"taskId": id});
            all.as_object_mut().into_iter().for_each(|all| all.extend(members(fields)));
            all
        };
        object(schemas, &named("PushNotificationConfig"), about, &["url"], with_task(&request));
        let name = named("CreateTaskPushNotificationConfigRequest");
        object(schemas, &name, about, &["url"], with_task(&request));
        let name = named("TaskPushNotificationConfig");
        object(schemas, &name, about, &["taskId", "id", "url"], with_task(&answer));
    } else {
        let place = if dialect == Dialect::V03Rpc { "taskId" } else { "name" };
        let inner = dialect.reference("PushNotificationConfig");
        object(schemas, &named("PushNotificationConfig"), about, &["url"], request);
        let wrapped = json!({place: text, "pushNotificationConfig": inner});
        let name = named("TaskPushNotificationConfig");
        object(schemas, &name, about, &["pushNotificationConfig"], wrapped.clone());
        let request = match dialect {
            Dialect::V03Rest => json!({
                "configId": id,
                "config": {"type": "object", "properties": wrapped},
                "name": text,
                "pushNotificationConfig": inner,
            }),
            _ => wrapped,
        };
        object(schemas, &named("CreateTaskPushNotificationConfigRequest"), about, &[], request);
    }
    let page = match dialect {
        Dialect::V03Rpc => list_of(&dialect.reference("TaskPushNotificationConfig")),
        _ => json!({
            "type": "object",
            "description": "The configurations of a task. Without `nextPageToken` it is the last page.",
            "required": ["configs"],
            "properties": {
                "configs": list_of(&dialect.reference("TaskPushNotificationConfig")),
                "nextPageToken": text,
            },
        }),
    };
    schemas.insert(named("TaskPushNotificationConfigPage"), page);
    if dialect == Dialect::V03Rest {
        // The other REST requests have no body.
        return;
    }
    let (task, config) = match dialect {
        Dialect::V1 => ("taskId", "id"),
        _ => ("id", "pushNotificationConfigId"),
    };
    let name = named("TaskPushNotificationConfigIdRequest");
    object(schemas, &name, "A configuration of a task.", &[task], json!({task: id, config: id}));
    let mut list = json!({task: id});
    if dialect == Dialect::V1 {
        list.as_object_mut().into_iter().for_each(|list| list.extend(members(&list_fields())));
    }
    let name = named("ListTaskPushNotificationConfigsRequest");
    object(schemas, &name, "Which configurations to list.", &[task], list);
}

/// The paging fields of a list request.
pub(in crate::openapi) fn list_fields() -> Value {
    json!({
        "pageSize": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "default": 50},
        "pageToken": {"type": "string", "description": "The `nextPageToken` of the previous page."},
    })
}

fn members(object: &Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap_or_default()
}
