//! Requests of callers, decoded from the wire.

use std::fmt;

use crate::id::{ContextId, PushConfigId, TaskId};
use crate::json::Metadata;
use crate::message::Message;
use crate::options::{OutputModes, SendOptions};
use crate::push::{PushAuthentication, PushFormat, PushView};
use crate::secret::Secret;
use crate::task::TaskState;
use crate::time::Timestamp;
use crate::trace::TraceContext;

#[derive(Clone, PartialEq, Debug)]
pub struct SendMessage {
    pub message: Message,
    pub config: SendConfig,
    pub metadata: Option<Metadata>,
    pub options: SendOptions,
    /// Whether the caller may claim an unowned session.
    pub may_claim: bool,
    /// The trace context of the request. Not stored with the task.
    pub trace: Option<TraceContext>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendConfig {
    pub accepted_output_modes: OutputModes,
    /// How many messages of the history the response contains. `None`: all. 0: none.
    pub history_length: Option<u32>,
    /// Whether the response is sent as soon as the task is durable.
    pub return_immediately: bool,
    /// The push configuration to register for the task.
    pub push: Option<Box<PushRequest>>,
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
    /// Only tasks whose status changed at this time or later.
    pub status_after: Option<Timestamp>,
    /// The size of a page: 1 to 100.
    pub page_size: u32,
    /// The token from the previous page, which is opaque to the caller. `None` or empty: the first page.
    pub page_token: Option<String>,
    pub history_length: Option<u32>,
    pub include_artifacts: bool,
}

/// A configuration of push notifications as a caller sends it.
#[derive(Clone, PartialEq, Eq)]
pub struct PushRequest {
    /// The request field that contains the configuration, for errors. Empty: the parameters themselves are the configuration.
    pub place: &'static str,
    /// The id of the configuration. `None`: the id of the task is used.
    pub id: Option<PushConfigId>,
    pub url: String,
    pub token: Option<Secret>,
    pub authentication: Option<PushAuthentication>,
    pub format: PushFormat,
    pub view: PushView,
}

impl PushRequest {
    /// The path of a field of the configuration in the request.
    pub fn field(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }
}

impl fmt::Debug for PushRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Does not show the URL, which can contain a secret.
        f.debug_struct("PushRequest")
            .field("id", &self.id)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// Registers a configuration. Replaces a configuration of the task with the same id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreatePushConfig {
    pub task: TaskId,
    pub request: PushRequest,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GetPushConfig {
    pub task: TaskId,
    /// The id of the configuration. `None`: the one that was registered without an id, or else the first.
    pub id: Option<PushConfigId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPushConfigs {
    pub task: TaskId,
    pub page_size: u32,
    /// The page token, as in [`ListTasks`].
    pub page_token: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletePushConfig {
    pub task: TaskId,
    pub id: PushConfigId,
}
