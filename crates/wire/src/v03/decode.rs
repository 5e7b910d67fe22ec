//! Requests of 0.3, from JSON-RPC params, REST bodies and query strings to commands; and what a client reads back.
//!
//! Old clients mix the shapes of their time with those of 1.0, so what says clearly what it is, is understood in either.

use longshore_model::{
    CancelTask, GetTask, ListTasks, Result, SendConfig, SendMessage, SubscribeToTask, Task,
};
use serde_json::value::RawValue;

use super::Dialect;
use crate::json::{Object, Read, boolean};
use crate::read::{answer, query, request};

#[cfg(test)]
mod tests;

pub use crate::read::answer::{StreamEvent, TaskPage};

pub fn send_message(dialect: Dialect, json: &str) -> Result<SendMessage> {
    // In the proto file the message is called `request`, and ProtoJSON takes that name too.
    request::send_message(json, dialect.spelling(), &["message", "request"], |raw| send_config(dialect, raw))
}

pub fn get_task(json: &str) -> Result<GetTask> {
    request::get_task(json)
}

pub fn cancel_task(json: &str) -> Result<CancelTask> {
    request::cancel_task(json)
}

pub fn subscribe(json: &str) -> Result<SubscribeToTask> {
    request::subscribe(json)
}

pub fn list_tasks(json: &str) -> Result<ListTasks> {
    request::list_tasks(json, Dialect::Rpc.spelling())
}

/// `id` is the segment of the path, decoded; so are the pairs of the query.
pub fn get_task_query(id: &str, query: &[(String, String)]) -> Result<GetTask> {
    let command = query::get_task(id, query)?;
    Ok(GetTask { history_length: unless_zero(command.history_length), ..command })
}

pub fn subscribe_query(id: &str, query: &[(String, String)], body: &str) -> Result<SubscribeToTask> {
    query::subscribe(id, query, body)
}

pub fn cancel_task_query(id: &str, query: &[(String, String)], body: &str) -> Result<CancelTask> {
    query::cancel_task(id, query, body)
}

/// The path is in no proto file of 0.3, so only the spelling of states and flags is different from 1.0.
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

/// A stream event, or the answer to a send.
pub fn stream_event(dialect: Dialect, json: &str) -> Result<StreamEvent> {
    match dialect {
        Dialect::Rpc => answer::tagged_event(json, dialect.spelling()),
        Dialect::Rest => answer::wrapped_event(json, dialect.spelling()),
    }
}

/// A bare task, as getting and canceling answer it.
pub fn task(dialect: Dialect, json: &str) -> Result<Task> {
    answer::task(json, dialect.spelling())
}

pub fn task_page(dialect: Dialect, json: &str) -> Result<TaskPage> {
    answer::task_page(json, dialect.spelling())
}

fn send_config(dialect: Dialect, raw: Option<&RawValue>) -> Read<SendConfig> {
    let Some(raw) = raw else {
        return Ok(SendConfig { return_immediately: is_short(dialect), ..SendConfig::default() });
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
    let mut wants_push = false;
    for name in ["pushNotificationConfig", "pushNotification", "taskPushNotificationConfig"] {
        wants_push |= config.optional(name, |raw| Object::read(raw, &[]))?.is_some();
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
            .unwrap_or(is_short(dialect)),
        wants_push,
    })
}

/// Whether a sender that does not say so waits for no more than the task's beginning: a boolean of ProtoJSON that is not
/// there is false, and `blocking` is one.
fn is_short(dialect: Dialect) -> bool {
    match dialect {
        Dialect::Rpc => false,
        Dialect::Rest => true,
    }
}

/// A number of ProtoJSON that is 0 is one that was not set, and a limit that was not set is none.
fn unless_zero(length: Option<u32>) -> Option<u32> {
    length.filter(|length| *length > 0)
}
