//! Converts requests of 0.3 to the parameters of JSON-RPC. The requests refer to resources by names (`tasks/{id}` and
//! `tasks/{id}/pushNotificationConfigs/{id}`), the parameters by ids.

use longshore_model::{Error, Result};
use serde_json::json;

use super::written;
use crate::v03;

pub(super) fn get_task(call: &v03::GetTaskRequest) -> Result<String> {
    let id = task(&call.name, "name")?;
    // In protocol buffers 0 means "not set".
    if call.history_length == 0 {
        written(&json!({"id": id}))
    } else {
        written(&json!({"id": id, "historyLength": call.history_length}))
    }
}

pub(super) fn cancel_task(call: &v03::CancelTaskRequest) -> Result<String> {
    written(&json!({"id": task(&call.name, "name")?}))
}

pub(super) fn subscribe(call: &v03::TaskSubscriptionRequest) -> Result<String> {
    written(&json!({"id": task(&call.name, "name")?}))
}

pub(super) fn create_push(call: &v03::CreateTaskPushNotificationConfigRequest) -> Result<String> {
    let config = call.config.clone().and_then(|config| config.push_notification_config);
    let mut config = config.ok_or_else(|| Error::invalid("config.pushNotificationConfig", "is required"))?;
    if config.id.is_empty() {
        config.id.clone_from(&call.config_id);
    }
    written(&json!({"taskId": task(&call.parent, "parent")?, "pushNotificationConfig": config}))
}

pub(super) fn get_push(call: &v03::GetTaskPushNotificationConfigRequest) -> Result<String> {
    push(&call.name)
}

pub(super) fn delete_push(call: &v03::DeleteTaskPushNotificationConfigRequest) -> Result<String> {
    push(&call.name)
}

pub(super) fn list_push(call: &v03::ListTaskPushNotificationConfigRequest) -> Result<String> {
    written(&json!({"id": task(&call.parent, "parent")?}))
}

fn push(name: &str) -> Result<String> {
    let ids = name.strip_prefix("tasks/").and_then(|rest| rest.split_once("/pushNotificationConfigs/"));
    let (task, id) = ids.filter(|(task, _)| !task.is_empty()).ok_or_else(|| {
        Error::invalid(
            "name",
            "must be tasks/, the id of a task, /pushNotificationConfigs/ and the id of a configuration",
        )
    })?;
    written(&json!({"id": task, "pushNotificationConfigId": id}))
}

/// The task id in a resource name. `field`: the field that holds the name, for the error.
fn task<'a>(name: &'a str, field: &str) -> Result<&'a str> {
    let id = name.strip_prefix("tasks/").filter(|id| !id.is_empty());
    id.ok_or_else(|| Error::invalid(field, "must be tasks/ and the id of a task"))
}
