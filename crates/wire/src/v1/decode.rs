//! Requests of 1.0, from JSON-RPC params, REST bodies and query strings to commands; and what a client reads back.

use longshore_model::{
    CancelTask, GetTask, ListTasks, Result, SendConfig, SendMessage, SubscribeToTask, Task,
};
use serde_json::value::RawValue;

use super::SPELLING;
use crate::json::{Object, Read, boolean};
use crate::read::{answer, query, request};

pub(super) mod part;
#[cfg(test)]
mod tests;

pub use crate::read::answer::{StreamEvent, TaskPage};

pub fn send_message(json: &str) -> Result<SendMessage> {
    request::send_message(json, &SPELLING, &["message"], |raw| {
        raw.map(send_config).transpose().map(Option::unwrap_or_default)
    })
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
    request::list_tasks(json, &SPELLING)
}

/// The message stands in the body; the query can name a tenant, and nothing else that counts.
pub fn send_message_query(query: &[(String, String)], body: &str) -> Result<SendMessage> {
    query::check_tenant(query)?;
    send_message(body)
}

/// `id` is the segment of the path, decoded; so are the pairs of the query.
pub fn get_task_query(id: &str, query: &[(String, String)]) -> Result<GetTask> {
    query::get_task(id, query)
}

pub fn subscribe_query(id: &str, query: &[(String, String)], body: &str) -> Result<SubscribeToTask> {
    query::subscribe(id, query, body)
}

pub fn cancel_task_query(id: &str, query: &[(String, String)], body: &str) -> Result<CancelTask> {
    query::cancel_task(id, query, body)
}

pub fn list_tasks_query(query: &[(String, String)]) -> Result<ListTasks> {
    query::list_tasks(query, &SPELLING)
}

/// A stream event, or the answer to a send: `{"task": …}` and its siblings.
pub fn stream_event(json: &str) -> Result<StreamEvent> {
    answer::wrapped_event(json, &SPELLING)
}

/// A bare task, as `GetTask` and `CancelTask` answer it.
pub fn task(json: &str) -> Result<Task> {
    answer::task(json, &SPELLING)
}

pub fn task_page(json: &str) -> Result<TaskPage> {
    answer::task_page(json, &SPELLING)
}

fn send_config(raw: &RawValue) -> Read<SendConfig> {
    let known = &["acceptedOutputModes", "taskPushNotificationConfig", "historyLength", "returnImmediately"];
    let config = Object::read(raw, known)?;
    let push = config.optional("taskPushNotificationConfig", |raw| Object::read(raw, &[]))?;
    let modes = config.optional("acceptedOutputModes", request::output_modes)?;
    Ok(SendConfig {
        accepted_output_modes: modes.unwrap_or_default(),
        history_length: config.optional("historyLength", request::history_length)?,
        return_immediately: config.optional("returnImmediately", boolean)?.unwrap_or(false),
        wants_push: push.is_some(),
    })
}
