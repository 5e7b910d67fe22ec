//! Reads 0.3 requests (JSON-RPC params, REST bodies, query strings) into commands, and 0.3 responses as a client does.
//!
//! Old clients mix the formats of 0.3 and 1.0, so every unambiguous field is accepted in either format.

use longshore_model::{GetTask, ListTasks, PushFormat, Result, SendConfig, SendMessage, Task};
use serde_json::value::RawValue;

use super::Dialect;
use crate::json::{Object, Read, boolean};
use crate::read::{answer, push, query, request};

#[cfg(test)]
mod tests;

pub use crate::read::push::{
    create_query_v03 as create_push_config_query, create_v03 as create_push_config,
    delete_query as delete_push_config_query, delete_v03 as delete_push_config,
    get_query as get_push_config_query, get_v03 as get_push_config, list_query as list_push_configs_query,
    list_v03 as list_push_configs,
};
pub use crate::v1::decode::{
    StreamEvent, TaskPage, cancel_task, cancel_task_query, get_task, subscribe, subscribe_query,
};

pub fn send_message(dialect: Dialect, json: &str) -> Result<SendMessage> {
    // In the proto file the message field is called `request`, and ProtoJSON permits that name too.
    request::send_message(json, dialect.spelling(), &["message", "request"], |raw| send_config(dialect, raw))
}

pub fn list_tasks(json: &str) -> Result<ListTasks> {
    request::list_tasks(json, Dialect::Rpc.spelling())
}

/// Decodes a request for a task. `id` (the path segment) and the query pairs are already percent-decoded.
pub fn get_task_query(id: &str, query: &[(String, String)]) -> Result<GetTask> {
    let command = query::get_task(id, query)?;
    Ok(GetTask { history_length: unless_zero(command.history_length), ..command })
}

/// Decodes the query of a list. No proto file of 0.3 has this path, so only the spelling of states and flags differs from 1.0.
pub fn list_tasks_query(query: &[(String, String)]) -> Result<ListTasks> {
    let flag = |(name, value): &(String, String)| {
        let value = match (name.as_str(), value.as_str()) {
            ("includeArtifacts" | "include_artifacts", "1") => "true",
            ("includeArtifacts" | "include_artifacts", "0") => "false",
            _ => value,
        };
        (name.clone(), value.to_owned())
    };
    let query: Vec<_> = query.iter().map(flag).collect();
    query::list_tasks(&query, Dialect::Rest.spelling())
}

/// Decodes a stream event, or the response to a send.
pub fn stream_event(dialect: Dialect, json: &str) -> Result<StreamEvent> {
    match dialect {
        Dialect::Rpc => answer::tagged_event(json, dialect.spelling()),
        Dialect::Rest => answer::wrapped_event(json, dialect.spelling()),
    }
}

/// Decodes a bare task, which is the response to getting and canceling a task.
pub fn task(dialect: Dialect, json: &str) -> Result<Task> {
    answer::task(json, dialect.spelling())
}

pub fn task_page(dialect: Dialect, json: &str) -> Result<TaskPage> {
    answer::task_page(json, dialect.spelling())
}

fn send_config(dialect: Dialect, raw: Option<&RawValue>) -> Read<SendConfig> {
    let Some(raw) = raw else {
        return Ok(SendConfig { return_immediately: returns_immediately(dialect), ..SendConfig::default() });
    };
    let known = &[
        "acceptedOutputModes",
        "blocking",
        "returnImmediately",
        "historyLength",
        "pushNotificationConfig",
        "pushNotification",
        "taskPushNotificationConfig",
    ];
    let config = Object::read(raw, known)?;
    let mut push = None;
    for (name, place) in [
        ("pushNotificationConfig", "configuration.pushNotificationConfig"),
        ("pushNotification", "configuration.pushNotification"),
        ("taskPushNotificationConfig", "configuration.taskPushNotificationConfig"),
    ] {
        let read = config.optional(name, |raw| push::in_send(raw, PushFormat::V03, place))?;
        push = push.or(read.map(Box::new));
    }
    let modes = config.optional("acceptedOutputModes", request::output_modes)?;
    let history_length = config.optional("historyLength", request::history_length)?;
    let blocking = config.optional("blocking", boolean)?;
    let return_immediately = config.optional("returnImmediately", boolean)?;
    Ok(SendConfig {
        accepted_output_modes: modes.unwrap_or_default(),
        history_length: match dialect {
            Dialect::Rpc => history_length,
            Dialect::Rest => unless_zero(history_length),
        },
        return_immediately: blocking
            .map(|blocking| !blocking)
            .or(return_immediately)
            .unwrap_or(returns_immediately(dialect)),
        push,
    })
}

/// Whether a send without `blocking` returns as soon as the task has begun. On REST it does, because an absent boolean is false in
/// ProtoJSON.
fn returns_immediately(dialect: Dialect) -> bool {
    match dialect {
        Dialect::Rpc => false,
        Dialect::Rest => true,
    }
}

/// Turns a history length of 0 into "no limit", because in ProtoJSON the number 0 means "not set".
fn unless_zero(length: Option<u32>) -> Option<u32> {
    length.filter(|length| *length > 0)
}
