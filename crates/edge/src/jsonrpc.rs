//! The JSON-RPC binding: `POST /`.
//!
//! The checks, in order: media type, body, envelope, protocol version, required extensions, method, parameters. A request
//! without an id is a notification: a command is executed, a query is not, and the response is 204 whatever the result. In 0.3
//! only an extension method may be a notification; every other request without an id is refused and nothing is executed.

use http::StatusCode;
use longshore_engine::port::with_caller_trace;
use longshore_model::{
    CancelTask, Error, ErrorKind, GetTask, ListTasks, Result, SendMessage, SubscribeToTask,
};
use longshore_wire::contract::Deployment;
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::{self as envelope, Id};
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use longshore_wire::{contract, methods, v1, v03};

use crate::auth::Caller;
use crate::dispatch::{Dispatcher, Incoming};
use crate::media::{self, Media};
use crate::operation::{self, MethodCall, Operation, Outcome};
use crate::payload;
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::sse::{self, Envelope};
use crate::version::{self, ProtocolVersion};
use crate::{body, count, extensions};

/// The operation or document that a method of the A2A protocol asks for.
enum Request {
    Operation(Box<Operation>),
    ExtendedCard,
}

/// How one version decodes the parameters of the operations.
struct Decoders {
    method: fn(&str) -> Option<Method>,
    send: fn(&str) -> Result<SendMessage>,
    get: fn(&str) -> Result<GetTask>,
    list: fn(&str) -> Result<ListTasks>,
    cancel: fn(&str) -> Result<CancelTask>,
    subscribe: fn(&str) -> Result<SubscribeToTask>,
}

const V1: Decoders = Decoders {
    method: Method::parse,
    send: v1::decode::send_message,
    get: v1::decode::get_task,
    list: v1::decode::list_tasks,
    cancel: v1::decode::cancel_task,
    subscribe: v1::decode::subscribe,
};

const V03: Decoders = Decoders {
    method: v03::method::parse,
    send: |params| v03::decode::send_message(Dialect::Rpc, params),
    get: v03::decode::get_task,
    list: v03::decode::list_tasks,
    cancel: v03::decode::cancel_task,
    subscribe: v03::decode::subscribe,
};

impl Dispatcher {
    pub(crate) async fn rpc<B>(&self, caller: &Caller, incoming: &Incoming<'_>, body: B) -> Response
    where
        B: http_body::Body<Data = bytes::Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let headers = &incoming.parts.headers;
        let read = async {
            media::check_content_type(headers, true)?;
            body::read(headers, body, self.limits, self.bodies.begin(&caller.principal)).await
        };
        let body = match read.await {
            Ok(body) => body,
            Err(error) => return incoming.refuse(&error),
        };
        let call = match envelope::parse(&body) {
            Ok(call) => call,
            Err(rejected) => {
                let implied = rejected.method.and_then(|method| version::implied_by_method(&method, headers));
                let format = ResponseFormat::rpc(incoming.requested.response_version(implied));
                let mut response = format.refuse(&rejected.id, headers, &rejected.error);
                reply::set_version(&mut response, format.version);
                return response;
            }
        };
        let implied = version::implied_by_method(&call.method, headers);
        let format = ResponseFormat::rpc(incoming.requested.response_version(implied));
        let named = self.echoed(format.version, &call.method, extensions::activated(headers));
        let method = call.method.clone();
        let known_method = known(format.version, &method);
        let operation = known_method.is_some().then_some(&*method);
        let extension_method = methods::find(&self.deployment, &method);
        incoming.line.set_method(logged_name(known_method, extension_method));
        payload::log_request(self.payload_log, operation, headers, &body);
        let mut response = match incoming.requested.resolve(implied) {
            Ok(_) => self.call(caller, incoming, call, format).await,
            // The protocol version is checked before the method and its parameters. A notification gets no error, whatever is wrong
            // with it.
            Err(error) => match &call.id {
                Some(id) => format.refuse(id, headers, &error),
                None if self.may_be_notification(format, &method) => silent(&error),
                None => format.refuse(&Id::Null, headers, &error),
            },
        };
        payload::log_response(self.payload_log, operation, &response);
        extensions::echo(&mut response, headers, named);
        reply::set_version(&mut response, format.version);
        response
    }

    async fn call(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        call: envelope::Request<'_>,
        format: ResponseFormat,
    ) -> Response {
        let headers = &incoming.parts.headers;
        if call.id.is_none() && !self.may_be_notification(format, &call.method) {
            let error = match known(format.version, &call.method) {
                Some(_) => without_id(),
                None => contract::unsupported_method(format.version, &call.method, &self.deployment),
            };
            return format.refuse(&Id::Null, headers, &error);
        }
        let params = call.params.map_or("{}", |params| params.get());
        let activated = format.rules().activated(headers);
        if let Some(method) = self.extension_method(&call.method) {
            let extension_call =
                MethodCall { method, version: format.version, params, activated, span: &incoming.span };
            return self.call_extension(caller, incoming, call.id.as_ref(), extension_call, format).await;
        }
        // The extended card tells callers which extensions are required, so it requires none itself.
        let required = match known(format.version, &call.method) {
            Some(Method::GetExtendedAgentCard) => Ok(()),
            _ => self.check_required(activated),
        };
        let request = required.and_then(|()| decode(&self.deployment, format.version, &call.method, params));
        let Some(id) = call.id else {
            return match request {
                Ok(Request::ExtendedCard) => reply::empty(StatusCode::NO_CONTENT),
                Ok(Request::Operation(operation)) => {
                    let operation = operation.traced(&incoming.trace);
                    let notified = self.operations.notify(caller, operation, activated);
                    match with_caller_trace(Some(incoming.trace.clone()), notified).await {
                        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
                        Err(error) => silent(&error),
                    }
                }
                Err(error) => silent(&error),
            };
        };
        let outcome = match request {
            Ok(Request::Operation(operation)) => {
                let operation = operation.traced(&incoming.trace);
                let performed = self.operations.perform(caller, operation, headers, format, &incoming.line);
                with_caller_trace(Some(incoming.trace.clone()), performed).await
            }
            Ok(Request::ExtendedCard) => {
                let request = incoming.document_request(Some(caller), Some(format.version), Dialect::Rpc);
                Ok(Outcome::Json(self.documents.extended_card_json(&request).await))
            }
            Err(error) => Err(error),
        };
        let answered = outcome.and_then(|outcome| {
            Ok(match outcome {
                Outcome::Json(result) => {
                    reply::json(StatusCode::OK, Media::Json, envelope::result(&id, &result))
                }
                Outcome::Events(opened) => {
                    let envelope = Envelope::rpc(format.version, id.clone());
                    reply::events(sse::frames(*opened, envelope, &self.streams, incoming.span.clone())?)
                }
            })
        });
        match answered {
            Ok(response) => response,
            Err(error) if format.rules().refuses_in_stream && is_streaming(format.version, &call.method) => {
                let mut response = reply::events(sse::refused(&Envelope::rpc(format.version, id), &error));
                reply::note_error(&mut response, &error);
                response
            }
            Err(error) => format.refuse(&id, headers, &error),
        }
    }

    /// The extensions that the response names. The extended card declares all extensions, so it names all activated ones.
    fn echoed(&self, version: ProtocolVersion, method: &str, activated: Activated) -> Activated {
        if known(version, method) == Some(Method::GetExtendedAgentCard) {
            return activated;
        }
        let method = methods::find(&self.deployment, method);
        extensions::echoed_for_method(method, activated, self.public_extensions)
    }

    /// The extension method with this name, if this deployment has it.
    fn extension_method(&self, name: &str) -> Option<&'static methods::Method> {
        methods::find(&self.deployment, name).filter(|method| method.is_there(&self.deployment))
    }

    /// Whether a request without an id is a notification. Otherwise the request lacks its id.
    fn may_be_notification(&self, format: ResponseFormat, method: &str) -> bool {
        format.rules().allows_operation_notifications || self.extension_method(method).is_some()
    }

    /// Calls an extension method.
    async fn call_extension(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        id: Option<&Id>,
        call: MethodCall<'_>,
        format: ResponseFormat,
    ) -> Response {
        let trace = Some(incoming.trace.clone());
        let Some(id) = id else {
            return match with_caller_trace(trace, self.operations.notify_call(caller, call)).await {
                Ok(()) => reply::empty(StatusCode::NO_CONTENT),
                Err(error) => silent(&error),
            };
        };
        match with_caller_trace(trace, self.operations.call(caller, call)).await {
            Ok(result) => reply::json(StatusCode::OK, Media::Json, envelope::result(id, &result)),
            Err(error) => format.refuse(id, &incoming.parts.headers, &error),
        }
    }
}

fn is_streaming(version: ProtocolVersion, method: &str) -> bool {
    matches!(known(version, method), Some(Method::SendStreamingMessage | Method::SubscribeToTask))
}

fn decode(deployment: &Deployment, version: ProtocolVersion, method: &str, params: &str) -> Result<Request> {
    let Some(known) = known(version, method) else {
        return Err(contract::unsupported_method(version, method, deployment));
    };
    let decoders = decoders(version);
    let operation = match known {
        Method::SendMessage => Operation::Send((decoders.send)(params)?),
        Method::SendStreamingMessage => Operation::Stream((decoders.send)(params)?),
        Method::GetTask => Operation::Get((decoders.get)(params)?),
        Method::ListTasks => Operation::List((decoders.list)(params)?),
        Method::CancelTask => Operation::Cancel((decoders.cancel)(params)?),
        Method::SubscribeToTask => Operation::Subscribe((decoders.subscribe)(params)?),
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => return Err(operation::push_not_supported()),
        Method::GetExtendedAgentCard => return Ok(Request::ExtendedCard),
    };
    Ok(Request::Operation(operation.into()))
}

/// The operation with this method name in this version.
fn known(version: ProtocolVersion, method: &str) -> Option<Method> {
    (decoders(version).method)(method)
}

/// An unknown name is the caller's text, which the log does not hold.
fn logged_name(known: Option<Method>, extension: Option<&methods::Method>) -> &'static str {
    known.map(Method::as_str).or(extension.map(|method| method.name)).unwrap_or("unknown method")
}

fn decoders(version: ProtocolVersion) -> &'static Decoders {
    match version {
        ProtocolVersion::V1 => &V1,
        ProtocolVersion::V03 => &V03,
    }
}

/// The error names no field, because a field would be one of the parameters.
fn without_id() -> Error {
    let version = ProtocolVersion::V03.as_str();
    Error::new(
        ErrorKind::InvalidParams,
        format!(
            "The request has no id, and A2A {version} has no operations without one; add \"id\" beside \"method\"."
        ),
    )
}

/// The response to a notification that failed. Not even its headers show the error.
fn silent(error: &Error) -> Response {
    reply::log(error, "notification");
    let mut response = reply::empty(StatusCode::NO_CONTENT);
    count::note_error(&mut response, error.kind());
    response
}
