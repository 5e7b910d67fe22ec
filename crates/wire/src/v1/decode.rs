//! Reads 1.0 requests (JSON-RPC params, REST bodies, query strings) into commands, and 1.0 responses as a client does.

use longshore_model::{ListTasks, PushFormat, Result, SendConfig, SendMessage, Task};
use serde_json::value::RawValue;

use super::SPELLING;
use crate::json::{Object, Read, boolean};
use crate::read::{answer, push, query, request};

pub(super) mod part;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::read::answer::{StreamEvent, TaskPage};
pub use crate::read::push::{
    create as create_push_config, create_query as create_push_config_query, delete as delete_push_config,
    delete_query as delete_push_config_query, get as get_push_config, get_query as get_push_config_query,
    list_configs as list_push_configs, list_query as list_push_configs_query,
};
pub use crate::read::query::{
    cancel_task as cancel_task_query, get_task as get_task_query, subscribe as subscribe_query,
};
pub use crate::read::request::{cancel_task, get_task, subscribe};

pub fn send_message(json: &str) -> Result<SendMessage> {
    request::send_message(json, &SPELLING, &["message"], |raw| {
        raw.map(send_config).transpose().map(Option::unwrap_or_default)
    })
}

pub fn list_tasks(json: &str) -> Result<ListTasks> {
    request::list_tasks(json, &SPELLING)
}

/// Decodes a send, whose message is in the body. Of the query, only `tenant` is checked.
pub fn send_message_query(query: &[(String, String)], body: &str) -> Result<SendMessage> {
    query::check_tenant(query)?;
    send_message(body)
}

pub fn list_tasks_query(query: &[(String, String)]) -> Result<ListTasks> {
    query::list_tasks(query, &SPELLING)
}

/// Decodes a stream event, or the response to a send: `{"task": …}` and so on.
pub fn stream_event(json: &str) -> Result<StreamEvent> {
    answer::wrapped_event(json, &SPELLING)
}

/// Decodes a bare task, which is the response to `GetTask` and `CancelTask`.
pub fn task(json: &str) -> Result<Task> {
    answer::task(json, &SPELLING)
}

pub fn task_page(json: &str) -> Result<TaskPage> {
    answer::task_page(json, &SPELLING)
}

fn send_config(raw: &RawValue) -> Read<SendConfig> {
    let known = &["acceptedOutputModes", "taskPushNotificationConfig", "historyLength", "returnImmediately"];
    let config = Object::read(raw, known)?;
    let push = config.optional("taskPushNotificationConfig", |raw| {
        push::in_send(raw, PushFormat::V1, "configuration.taskPushNotificationConfig")
    })?;
    let modes = config.optional("acceptedOutputModes", request::output_modes)?;
    Ok(SendConfig {
        accepted_output_modes: modes.unwrap_or_default(),
        history_length: config.optional("historyLength", request::history_length)?,
        return_immediately: config.optional("returnImmediately", boolean)?.unwrap_or(false),
        push: push.map(Box::new),
    })
}
