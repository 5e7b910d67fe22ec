//! Requests of callers, decoded from the wire.

use crate::id::{ContextId, TaskId};
use crate::json::Metadata;
use crate::message::Message;
use crate::options::{OutputModes, SendOptions};
use crate::task::TaskState;
use crate::time::Timestamp;
use crate::trace::TraceContext;

#[derive(Clone, PartialEq, Debug)]
pub struct SendMessage {
    pub message: Message,
    pub config: SendConfig,
    pub metadata: Option<Metadata>,
    pub options: SendOptions,
    /// The caller may claim an unowned session.
    pub may_claim: bool,
    /// The request's position in the caller's trace. Not stored with the task.
    pub trace: Option<TraceContext>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendConfig {
    pub accepted_output_modes: OutputModes,
    /// `None`: the whole history. 0: none of it.
    pub history_length: Option<u32>,
    /// Respond as soon as the task is durable.
    pub return_immediately: bool,
    /// The caller asked for push notifications.
    pub wants_push: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct GetTask {
    pub id: TaskId,
    pub history_length: Option<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CancelTask {
    pub id: TaskId,
}

#[derive(Clone, PartialEq, Debug)]
pub struct SubscribeToTask {
    pub id: TaskId,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ListTasks {
    pub context_id: Option<ContextId>,
    pub state: Option<TaskState>,
    /// Only tasks whose status is at least this new.
    pub status_after: Option<Timestamp>,
    /// 1 to 100.
    pub page_size: u32,
    /// The token that came with the previous page; opaque to the caller. `None` or empty: the first page.
    pub page_token: Option<String>,
    pub history_length: Option<u32>,
    pub include_artifacts: bool,
}
