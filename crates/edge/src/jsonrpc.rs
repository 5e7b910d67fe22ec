//! The JSON-RPC binding: `POST /`.
//!
//! In order: media type, body, envelope, protocol line, required extensions, method, parameters. A request without an id is
//! a notification: what changes something is done, what only asks is not, and the answer is 204 whatever came of it. On the
//! line whose operations want an id, nothing is done for an operation without one.

use http::StatusCode;
use longshore_engine::port::on_behalf_of;
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
use crate::line::{self, ProtocolVersion};
use crate::media::{self, Media};
use crate::operation::{self, Asked, Operation, Outcome};
use crate::payload::{self, Called};
use crate::reply::{self, Response};
use crate::shape::Shape;
use crate::sse::{self, Envelope};
use crate::{body, count, extensions};

/// What a method asks for.
enum Wanted {
    Operation(Box<Operation>),
    ExtendedCard,
}

/// How one line reads the parameters of the operations.
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
            body::read(headers, body, self.limits).await
        };
        let body = match read.await {
            Ok(body) => body,
            Err(error) => return incoming.refuse(&error),
        };
        let call = match envelope::parse(&body) {
            Ok(call) => call,
            Err(rejected) => {
                let own = rejected.method.and_then(|method| line::of_method(&method, headers));
                let shape = Shape::rpc(incoming.head.shape(own));
                let mut response = shape.refuse(&rejected.id, headers, &rejected.error);
                reply::of_line(&mut response, shape.line);
                return response;
            }
        };
        let own = line::of_method(&call.method, headers);
        let shape = Shape::rpc(incoming.head.shape(own));
        let named = echoed(shape.line, &call.method, extensions::activated(headers));
        let method = call.method.clone();
        let logged = if known(shape.line, &method).is_some() {
            Called::Operation(&method)
        } else {
            Called::Extension(&method)
        };
        payload::log_request(self.payload_log, logged, headers, &body);
        let mut response = match incoming.head.line(own) {
            Ok(_) => self.called(caller, incoming, call, shape).await,
            // Before anything is looked at. A notification is not answered, whatever is wrong with it.
            Err(error) => match &call.id {
                Some(id) => shape.refuse(id, headers, &error),
                None => silent(&error),
            },
        };
        payload::log_answer(self.payload_log, logged, &response);
        extensions::echo(&mut response, headers, named);
        reply::of_line(&mut response, shape.line);
        response
    }

    async fn called(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        call: envelope::Request<'_>,
        shape: Shape,
    ) -> Response {
        let headers = &incoming.parts.headers;
        if call.id.is_none()
            && !shape.rules().notifies_operations
            && known(shape.line, &call.method).is_some()
        {
            return shape.refuse(&Id::Null, headers, &without_id());
        }
        let params = call.params.map_or("{}", |params| params.get());
        let activated = shape.rules().activated(headers);
        let of_table = methods::find(&call.method).filter(|method| method.is_there(&self.deployment));
        if let Some(method) = of_table {
            let asked = Asked { method, line: shape.line, params, activated, span: &incoming.span };
            return self.called_extension(caller, incoming, call.id.as_ref(), asked, shape).await;
        }
        // The extended card is where callers learn what they must know.
        let required = match known(shape.line, &call.method) {
            Some(Method::GetExtendedAgentCard) => Ok(()),
            _ => self.check_required(activated),
        };
        let wanted = required.and_then(|()| wanted(&self.deployment, shape.line, &call.method, params));
        let Some(id) = call.id else {
            return match wanted {
                Ok(Wanted::ExtendedCard) => reply::empty(StatusCode::NO_CONTENT),
                Ok(Wanted::Operation(operation)) => {
                    let operation = operation.traced(&incoming.trace);
                    let notified = self.operations.notify(caller, operation, activated);
                    match on_behalf_of(Some(incoming.trace.clone()), notified).await {
                        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
                        Err(error) => silent(&error),
                    }
                }
                Err(error) => silent(&error),
            };
        };
        let outcome = match wanted {
            Ok(Wanted::Operation(operation)) => {
                let operation = operation.traced(&incoming.trace);
                let performed = self.operations.perform(caller, operation, headers, shape);
                on_behalf_of(Some(incoming.trace.clone()), performed).await
            }
            Ok(Wanted::ExtendedCard) => {
                let asked = incoming.asked(Some(caller), Some(shape.line), Dialect::Rpc);
                Ok(Outcome::Json(self.documents.extended_card_json(&asked).await))
            }
            Err(error) => Err(error),
        };
        let answered = outcome.and_then(|outcome| {
            Ok(match outcome {
                Outcome::Json(result) => {
                    reply::json(StatusCode::OK, Media::Json, envelope::result(&id, &result))
                }
                Outcome::Events(opened) => {
                    let envelope = Envelope::rpc(shape.line, id.clone());
                    reply::events(sse::frames(*opened, envelope, &self.streams, incoming.span.clone())?)
                }
            })
        });
        match answered {
            Ok(response) => response,
            Err(error) if shape.rules().refuses_in_stream && streams(shape.line, &call.method) => {
                let mut response = reply::events(sse::refused(&Envelope::rpc(shape.line, id), &error));
                reply::of_error(&mut response, &error);
                response
            }
            Err(error) => shape.refuse(&id, headers, &error),
        }
    }

    /// A method of the table, which is not of the protocol itself.
    async fn called_extension(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        id: Option<&Id>,
        asked: Asked<'_>,
        shape: Shape,
    ) -> Response {
        let trace = Some(incoming.trace.clone());
        let Some(id) = id else {
            return match on_behalf_of(trace, self.operations.notify_call(caller, asked)).await {
                Ok(()) => reply::empty(StatusCode::NO_CONTENT),
                Err(error) => silent(&error),
            };
        };
        match on_behalf_of(trace, self.operations.call(caller, asked)).await {
            Ok(result) => reply::json(StatusCode::OK, Media::Json, envelope::result(id, &result)),
            Err(error) => shape.refuse(id, &incoming.parts.headers, &error),
        }
    }
}

fn streams(line: ProtocolVersion, method: &str) -> bool {
    matches!(known(line, method), Some(Method::SendStreamingMessage | Method::SubscribeToTask))
}

fn wanted(deployment: &Deployment, line: ProtocolVersion, method: &str, params: &str) -> Result<Wanted> {
    let Some(known) = known(line, method) else {
        return Err(contract::unsupported_method(line, method, deployment));
    };
    let decoders = decoders(line);
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
        Method::GetExtendedAgentCard => return Ok(Wanted::ExtendedCard),
    };
    Ok(Wanted::Operation(operation.into()))
}

/// The operation that a line calls so.
fn known(line: ProtocolVersion, method: &str) -> Option<Method> {
    (decoders(line).method)(method)
}

fn decoders(line: ProtocolVersion) -> &'static Decoders {
    match line {
        ProtocolVersion::V1 => &V1,
        ProtocolVersion::V03 => &V03,
    }
}

/// What the answer names: for the extended card, which declares all extensions, all that were asked for.
fn echoed(line: ProtocolVersion, method: &str, activated: Activated) -> Activated {
    match known(line, method) {
        Some(Method::GetExtendedAgentCard) => activated,
        _ => extensions::of_method(method, activated),
    }
}

/// Names no field: that would be one of the parameters.
fn without_id() -> Error {
    let version = ProtocolVersion::V03.version();
    Error::new(
        ErrorKind::InvalidParams,
        format!(
            "The request has no id, and A2A {version} has no operations without one; add \"id\" beside \"method\"."
        ),
    )
}

/// Nothing of it is told, not even in the head.
fn silent(error: &Error) -> Response {
    reply::log(error, "notification");
    let mut response = reply::empty(StatusCode::NO_CONTENT);
    count::tells(&mut response, error.kind());
    response
}
