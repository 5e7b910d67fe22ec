//! The JSON-RPC binding: `POST /`, and the messages of connections that carry several requests (`multiplexer`).
//!
//! The checks, in order: media type, body, envelope, protocol version, required extensions, method, parameters. A request
//! without an id is a notification: a command is executed, a query is not, and the response is 204 in every case. In 0.3 only an
//! extension method may be a notification. Any other request without an id is refused and not executed.

use bytes::Bytes;
use http::StatusCode;
use longshore_model::{
    CancelTask, CreatePushConfig, DeletePushConfig, Error, ErrorKind, GetPushConfig, GetTask,
    ListPushConfigs, ListTasks, Result, SendMessage, SubscribeToTask,
};
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::{self as envelope, Id};
use longshore_wire::surface::Operation;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use longshore_wire::{contract, methods, v1, v03};

use crate::auth::Caller;
use crate::binding::Bindings;
use crate::command::{Command, MethodCall, RequestOptions};
use crate::incoming::Incoming;
use crate::media::{self, Media};
use crate::operation::Reply;
use crate::payload;
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::sse::{self, Envelope};
use crate::version::{self, ProtocolVersion};
use crate::{count, extensions};

/// The functions that decode the parameters of the operations for one version.
pub(crate) struct Decoders {
    send: fn(&str) -> Result<SendMessage>,
    get: fn(&str) -> Result<GetTask>,
    list: fn(&str) -> Result<ListTasks>,
    cancel: fn(&str) -> Result<CancelTask>,
    subscribe: fn(&str) -> Result<SubscribeToTask>,
    create_push_config: fn(&str) -> Result<CreatePushConfig>,
    get_push_config: fn(&str) -> Result<GetPushConfig>,
    list_push_configs: fn(&str) -> Result<ListPushConfigs>,
    delete_push_config: fn(&str) -> Result<DeletePushConfig>,
}

pub(crate) const V1: Decoders = Decoders {
    send: v1::decode::send_message,
    get: v1::decode::get_task,
    list: v1::decode::list_tasks,
    cancel: v1::decode::cancel_task,
    subscribe: v1::decode::subscribe,
    create_push_config: v1::decode::create_push_config,
    get_push_config: v1::decode::get_push_config,
    list_push_configs: v1::decode::list_push_configs,
    delete_push_config: v1::decode::delete_push_config,
};

const V03: Decoders = Decoders {
    send: |params| v03::decode::send_message(Dialect::Rpc, params),
    get: v03::decode::get_task,
    list: v03::decode::list_tasks,
    cancel: v03::decode::cancel_task,
    subscribe: v03::decode::subscribe,
    create_push_config: v03::decode::create_push_config,
    get_push_config: v03::decode::get_push_config,
    list_push_configs: v03::decode::list_push_configs,
    delete_push_config: v03::decode::delete_push_config,
};

/// The decoders for the parameters of a 0.3 gRPC call after its conversion to JSON. They use `ProtoJSON` names and defaults.
pub(crate) const V03_GRPC: Decoders =
    Decoders { send: |params| v03::decode::send_message(Dialect::Rest, params), ..V03 };

/// How the response to a call is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// The response is an HTTP response. Events are server-sent events.
    Http,
    /// The response is a message on a connection that carries several requests. Each event is also a message.
    Message,
}

/// A call, with the facts from the head of its request. Its method may be unknown.
struct Received<'a> {
    bindings: &'a Bindings,
    incoming: &'a Incoming<'a>,
    carrier: Carrier,
    format: ResponseFormat,
    /// The row of the operation. `None`: the version has no operation with this method.
    operation: Option<&'static Operation>,
    /// The row of the extension method, enabled or not. `None`: no extension of this deployment has the method.
    extension: Option<&'static methods::Method>,
}

/// The id of a call, and its command, or the error for why the command cannot be performed.
type Prepared = (Option<Id>, Result<(Command, RequestOptions)>);

/// Answers a call over HTTP, with any method.
pub(crate) async fn answer<B>(
    bindings: &Bindings,
    caller: &Caller,
    incoming: &Incoming<'_>,
    body: B,
) -> Response
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let headers = &incoming.parts.headers;
    let read = async {
        media::check_content_type(headers, true)?;
        bindings.read_body(caller, incoming, body).await
    };
    match read.await {
        Ok(body) => answer_text(bindings, caller, incoming, Carrier::Http, body).await,
        Err(error) => incoming.refuse(&error),
    }
}

/// The parts of a call's text that its refusal needs.
#[derive(Debug)]
pub(crate) struct CallHead {
    /// The id of the call. `None`: the call is a notification.
    id: Option<Id>,
    /// The method of the call. `None`: the text names no method.
    method: Option<String>,
}

impl CallHead {
    pub(crate) fn new(parsed: std::result::Result<&envelope::Request<'_>, &envelope::Rejected>) -> Self {
        match parsed {
            Ok(call) => Self { id: call.id.clone(), method: Some(call.method.clone().into_owned()) },
            Err(rejected) => Self { id: Some(rejected.id.clone()), method: rejected.method.clone() },
        }
    }
}

/// Refuses a call without performing anything. `shows_id`: whether the response contains the id of the request.
pub(crate) fn refuse(
    bindings: &Bindings,
    incoming: &Incoming<'_>,
    call: &CallHead,
    error: &Error,
    shows_id: bool,
) -> Response {
    let headers = &incoming.parts.headers;
    let CallHead { id, method } = call;
    let implied = method.as_deref().and_then(|method| version::implied_by_method(method, headers));
    let format = ResponseFormat::rpc(incoming.requested.response_version(implied));
    if let Some(method) = method {
        let extension = methods::find(&bindings.deployment, method);
        set_called(incoming, Operation::by_jsonrpc(format.version, method), extension);
    }
    let mut response = match id {
        Some(id) => format.refuse(if shows_id { id } else { &Id::Null }, headers, error),
        None => silent(error),
    };
    reply::set_version(&mut response, format.version);
    response
}

/// Sets the method's name for the metrics. An unknown method gets a fixed name, because callers must not choose labels.
fn set_called(
    incoming: &Incoming<'_>,
    operation: Option<&'static Operation>,
    extension: Option<&'static methods::Method>,
) {
    let extension = extension.map(|_| count::EXTENSION);
    let name = operation.map(|operation| operation.method.as_str()).or(extension);
    if let Some(name) = name {
        incoming.called.get_or_init(|| name);
    }
}

/// Answers a call whose text was read completely. The text is dropped before the call is performed, which may take hours. A
/// response without a body answers a notification.
pub(crate) async fn answer_text(
    bindings: &Bindings,
    caller: &Caller,
    incoming: &Incoming<'_>,
    carrier: Carrier,
    body: Bytes,
) -> Response {
    let headers = &incoming.parts.headers;
    let call = match envelope::parse(&body) {
        Ok(call) => call,
        Err(rejected) => {
            return refuse(bindings, incoming, &CallHead::new(Err(&rejected)), &rejected.error, true);
        }
    };
    let implied = version::implied_by_method(&call.method, headers);
    let format = ResponseFormat::rpc(incoming.requested.response_version(implied));
    let received = Received {
        bindings,
        incoming,
        carrier,
        format,
        operation: Operation::by_jsonrpc(format.version, &call.method),
        extension: methods::find(&bindings.deployment, &call.method),
    };
    let named = received.echoed(extensions::activated(headers));
    let logged = received.operation.map(|operation| operation.jsonrpc(format.version));
    incoming.line.set_method(received.logged_name());
    set_called(incoming, received.operation, received.extension);
    payload::log_request(bindings.payload_log, logged, headers, &body);
    let prepared = match incoming.requested.resolve(implied) {
        Ok(_) => received.prepare(call),
        // The protocol version is checked before the method and its parameters. A notification never gets an error.
        Err(error) => Err(match &call.id {
            Some(id) => format.refuse(id, headers, &error),
            None if received.may_be_notification() => silent(&error),
            None => format.refuse(&Id::Null, headers, &error),
        }),
    };
    drop(body);
    let mut response = match prepared {
        Ok((id, request)) => received.answer(caller, id, request).await,
        Err(refused) => refused,
    };
    payload::log_response(bindings.payload_log, logged, &response);
    extensions::echo(&mut response, headers, named);
    reply::set_version(&mut response, format.version);
    response
}

impl Received<'_> {
    /// Decodes a call into its id and its command. The error is the response that refuses the call.
    #[expect(clippy::result_large_err, reason = "both are returned once for each request")]
    fn prepare(&self, call: envelope::Request<'_>) -> std::result::Result<Prepared, Response> {
        if call.id.is_none() && !self.may_be_notification() {
            let error = match self.operation {
                Some(_) => without_id(),
                None => self.unsupported(&call.method),
            };
            return Err(self.format.refuse(&Id::Null, &self.incoming.parts.headers, &error));
        }
        let request = self.decode(&call).and_then(|command| {
            let options = self.incoming.options(self.format, call.id.is_some() && command.streams())?;
            Ok((command, options))
        });
        Ok((call.id, request))
    }

    /// Performs the call and encodes the response. `id`: `None` for a notification.
    async fn answer(
        &self,
        caller: &Caller,
        id: Option<Id>,
        request: Result<(Command, RequestOptions)>,
    ) -> Response {
        let (headers, operations) = (&self.incoming.parts.headers, &self.bindings.operations);
        let Some(id) = id else {
            let notified = match request {
                Ok((command, options)) => operations.notify(caller, command, &options).await,
                Err(error) => Err(error),
            };
            return match notified {
                Ok(()) => reply::empty(StatusCode::NO_CONTENT),
                Err(error) => silent(&error),
            };
        };
        let replied = match request {
            Ok((command, options)) => operations.perform(caller, command, &options).await,
            Err(error) => Err(error),
        };
        let answered = match replied {
            Ok(reply) => self.encode(caller, &id, reply).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(response) => response,
            Err(error) if self.refuses_in_stream() => {
                let envelope = Envelope::rpc(self.format.version, id);
                let mut response = reply::events(sse::refused(&envelope, &error));
                reply::note_error(&mut response, &error);
                response
            }
            Err(error) => self.format.refuse(&id, headers, &error),
        }
    }

    fn decode(&self, call: &envelope::Request<'_>) -> Result<Command> {
        let params = call.params.map_or("{}", |params| params.get());
        let version = self.format.version;
        if let Some(method) = self.served_extension() {
            let call = method.read_with_need(version, params, Activated::ALL);
            return Ok(Command::Method(MethodCall { method, call }));
        }
        if self.operation.is_none_or(|operation| operation.needs_extensions) {
            let activated = self.format.rules().activated(&self.incoming.parts.headers);
            self.bindings.operations.check_required(activated)?;
        }
        let operation = self.operation.ok_or_else(|| self.unsupported(&call.method))?;
        self.bindings.operations.check_served(operation)?;
        decoders(version).command(operation.method, params)
    }

    async fn encode(&self, caller: &Caller, id: &Id, reply: Reply) -> Result<Response> {
        let (format, incoming) = (self.format, self.incoming);
        let result = match reply {
            Reply::Events(reader) => {
                let envelope = match self.carrier {
                    Carrier::Http => Envelope::rpc(format.version, id.clone()),
                    Carrier::Message => Envelope::message(format.version, id.clone()),
                };
                return self.bindings.events(*reader, format, envelope, incoming.span.clone()).await;
            }
            Reply::ExtendedCard(cards) => {
                cards.json(&incoming.document_request(Some(caller), Some(format.version), Dialect::Rpc))
            }
            Reply::Sent(task, view) => format.sent(&task, view),
            Reply::Task(task, view) => format.task(&task, view),
            Reply::Page(listing, view) => format.page(&listing, view),
            Reply::PushConfig(config) => format.push_config(&config),
            Reply::PushConfigs(listing) => format.push_page(&listing),
            Reply::PushConfigDeleted => format.push_config_deleted(),
            Reply::Method(reply) => format.method(&reply)?,
        };
        Ok(reply::json(StatusCode::OK, Media::Json, envelope::result(id, &result)))
    }

    /// The extensions that the response names. The extended card declares all extensions, so it names all activated ones.
    fn echoed(&self, activated: Activated) -> Activated {
        match self.operation {
            Some(operation) if operation.method == Method::GetExtendedAgentCard => activated,
            _ => extensions::echoed_for_method(self.extension, activated, self.bindings.public_extensions),
        }
    }

    /// The row of the method, if this deployment has the extension.
    fn served_extension(&self) -> Option<&'static methods::Method> {
        self.extension.filter(|method| method.is_there(&self.bindings.deployment))
    }

    /// Whether a request without an id counts as a notification. If not, the missing id is an error.
    fn may_be_notification(&self) -> bool {
        self.format.rules().allows_operation_notifications || self.served_extension().is_some()
    }

    /// Whether an error is sent as the only event of a stream.
    fn refuses_in_stream(&self) -> bool {
        self.carrier == Carrier::Http
            && self.format.rules().refuses_in_stream
            && self.operation.is_some_and(|operation| operation.streams)
    }

    /// The name of the method for the log. An unknown name is not logged, because it is text of the caller.
    fn logged_name(&self) -> &'static str {
        let extension = self.extension.map(|method| method.name);
        self.operation.map(|operation| operation.method.as_str()).or(extension).unwrap_or("unknown method")
    }

    fn unsupported(&self, method: &str) -> Error {
        contract::unsupported_method(self.format.version, method, &self.bindings.deployment)
    }
}

impl Decoders {
    pub(crate) fn command(&self, operation: Method, params: &str) -> Result<Command> {
        Ok(match operation {
            Method::SendMessage => Command::Send((self.send)(params)?),
            Method::SendStreamingMessage => Command::Stream((self.send)(params)?),
            Method::GetTask => Command::Get((self.get)(params)?),
            Method::ListTasks => Command::List((self.list)(params)?),
            Method::CancelTask => Command::Cancel((self.cancel)(params)?),
            Method::SubscribeToTask => Command::Subscribe((self.subscribe)(params)?),
            Method::CreateTaskPushNotificationConfig => {
                Command::CreatePushConfig((self.create_push_config)(params)?)
            }
            Method::GetTaskPushNotificationConfig => Command::GetPushConfig((self.get_push_config)(params)?),
            Method::ListTaskPushNotificationConfigs => {
                Command::ListPushConfigs((self.list_push_configs)(params)?)
            }
            Method::DeleteTaskPushNotificationConfig => {
                Command::DeletePushConfig((self.delete_push_config)(params)?)
            }
            Method::GetExtendedAgentCard => Command::ExtendedCard,
        })
    }
}

fn decoders(version: ProtocolVersion) -> &'static Decoders {
    match version {
        ProtocolVersion::V1 => &V1,
        ProtocolVersion::V03 => &V03,
    }
}

/// The error for a missing id. It names no field, because a field name would refer to a parameter.
fn without_id() -> Error {
    let version = ProtocolVersion::V03.as_str();
    Error::new(
        ErrorKind::InvalidParams,
        format!(
            "The request has no id, and A2A {version} has no operations without one; add \"id\" beside \"method\"."
        ),
    )
}

/// The response to a failed notification. Even its headers do not show the error.
fn silent(error: &Error) -> Response {
    reply::log(error, "notification");
    let mut response = reply::empty(StatusCode::NO_CONTENT);
    count::note_error(&mut response, error.kind());
    response
}
