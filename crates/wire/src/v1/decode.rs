//! Requests of 1.0, from JSON-RPC params, REST bodies and query strings to commands; and what a client reads back.
//!
//! Unknown fields are ignored, as the specification asks. A fault names its field as the caller spelled it.

mod answer;
mod message;
mod params;
mod query;
#[cfg(test)]
mod tests;
mod wishes;

pub use answer::{StreamEvent, TaskPage, stream_event, task, task_page};
pub use params::{cancel_task, get_task, list_tasks, send_message, subscribe};
pub use query::{cancel_task_query, get_task_query, list_tasks_query, send_message_query, subscribe_query};
pub(super) use wishes::gated_fields;
