//! A decoded request: the command, and how the caller wants it performed. The bindings make these, so that the operations know no
//! binding and no format.

use longshore_model::{
    CancelTask, CreatePushConfig, DeletePushConfig, EventId, GetPushConfig, GetTask, ListPushConfigs,
    ListTasks, Result, SendMessage, SubscribeToTask, TraceContext,
};
use longshore_wire::extension::Activated;
use longshore_wire::methods::{Call, Method, Need};
use tracing::Span;

use crate::request_line::RequestLine;
use crate::version::ProtocolVersion;

/// What a caller requests.
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
    /// The decoded parameters, and the switch that they need besides that of the method. An error counts only after the checks of
    /// the caller: one who may not call the method learns nothing about its parameters.
    pub(crate) call: Result<(Call, Option<Need>)>,
}

/// How a command is to be performed.
#[derive(Clone, Debug)]
pub(crate) struct RequestOptions {
    /// Some rules of behaviour differ between the versions.
    pub(crate) version: ProtocolVersion,
    pub(crate) activated: Activated,
    /// The last event that the caller has received. Only streams have one.
    pub(crate) resume_after: Option<EventId>,
    /// The position of the request in the trace of its caller.
    pub(crate) trace: TraceContext,
    /// The log line of the request.
    pub(crate) line: RequestLine,
    /// The span of every log line about the request, also of those after the response.
    pub(crate) span: Span,
}
