//! A decoded request: the command, and the options with which it is performed. The bindings decode requests into these types, so
//! that the operations need to know no binding and no format.

use longshore_model::{
    CancelTask, CreatePushConfig, DeletePushConfig, EventId, GetPushConfig, GetTask, ListPushConfigs,
    ListTasks, Result, SendMessage, SubscribeToTask, TraceContext,
};
use longshore_wire::extension::Activated;
use longshore_wire::methods::{Call, Method, Need};
use tracing::Span;

use crate::request_line::RequestLine;
use crate::version::ProtocolVersion;

/// The operation that a caller requests, with its parameters.
#[derive(Debug)]
pub(crate) enum Command {
    Send(SendMessage),
    Stream(SendMessage),
    Get(GetTask),
    List(ListTasks),
    Cancel(CancelTask),
    Subscribe(SubscribeToTask),
    CreatePushConfig(CreatePushConfig),
    GetPushConfig(GetPushConfig),
    ListPushConfigs(ListPushConfigs),
    DeletePushConfig(DeletePushConfig),
    ExtendedCard,
    /// A call of an extension method.
    Method(MethodCall),
}

impl Command {
    /// Whether the reply is a stream of events.
    pub(crate) fn streams(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Subscribe(_))
    }
}

/// A call of an extension method.
#[derive(Debug)]
pub(crate) struct MethodCall {
    pub(crate) method: &'static Method,
    /// The decoded parameters, and the switch that they need in addition to the switch of the method. A decoding error is reported
    /// only after the checks of the caller, so that a caller who may not call the method learns nothing about its parameters.
    pub(crate) call: Result<(Call, Option<Need>)>,
}

/// The options with which a command is performed.
#[derive(Clone, Debug)]
pub(crate) struct RequestOptions {
    /// The protocol version, because some rules of behaviour differ between the versions.
    pub(crate) version: ProtocolVersion,
    pub(crate) activated: Activated,
    /// The last event that the caller has received. Only requests for a stream have one.
    pub(crate) resume_after: Option<EventId>,
    /// The trace context of the request.
    pub(crate) trace: TraceContext,
    /// The log line of the request.
    pub(crate) line: RequestLine,
    /// The span for all log lines about the request, including lines that are written after the response.
    pub(crate) span: Span,
}
