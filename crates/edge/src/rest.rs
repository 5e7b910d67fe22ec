//! The REST binding: decodes the path, query and body of a request into an operation.
//!
//! An id in a path is percent-decoded and then checked. An id with a character or length that is not allowed is `InvalidParams` for
//! the field `id`. An allowed id that names no task, such as `..`, is `TaskNotFound`.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use longshore_engine::port::with_caller_trace;
use longshore_model::{
    CancelTask, Error, ErrorKind, GetTask, ListTasks, Result, SendMessage, SubscribeToTask,
};
use longshore_wire::v03::Dialect;
use longshore_wire::{jsonrpc, v1, v03};

use crate::auth::Caller;
use crate::dispatch::{Dispatcher, Incoming};
use crate::operation::{self, Operation, Outcome};
use crate::payload;
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::route::Route;
use crate::sse::{self, Envelope};
use crate::version::ProtocolVersion;
use crate::{body, media, query};

type Pairs = [(String, String)];

/// How one version decodes a request.
struct Decoders {
    send: fn(&Pairs, &str) -> Result<SendMessage>,
    list: fn(&Pairs) -> Result<ListTasks>,
    get: fn(&str, &Pairs) -> Result<GetTask>,
    cancel: fn(&str, &Pairs, &str) -> Result<CancelTask>,
    subscribe: fn(&str, &Pairs, &str) -> Result<SubscribeToTask>,
}

const V1: Decoders = Decoders {
    send: v1::decode::send_message_query,
    list: v1::decode::list_tasks_query,
    get: v1::decode::get_task_query,
    cancel: v1::decode::cancel_task_query,
    subscribe: v1::decode::subscribe_query,
};

const V03: Decoders = Decoders {
    send: |_, body| v03::decode::send_message(Dialect::Rest, body),
    list: v03::decode::list_tasks_query,
    get: v03::decode::get_task_query,
    cancel: v03::decode::cancel_task_query,
    subscribe: v03::decode::subscribe_query,
};

impl Dispatcher {
    pub(crate) async fn rest<B>(
        &self,
        caller: &Caller,
        route: &Route,
        incoming: &Incoming<'_>,
        version: ProtocolVersion,
        body: B,
    ) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (parts, format) = (incoming.parts, ResponseFormat::rest(version));
        let text = self.text(caller, parts, body).await?;
        payload::log_request(self.payload_log, route.operation(), &parts.headers, text.as_bytes());
        let operation = decode(route, parts, version, &text)?.traced(&incoming.trace);
        let performed = self.operations.perform(caller, operation, &parts.headers, format, &incoming.line);
        Ok(match with_caller_trace(Some(incoming.trace.clone()), performed).await? {
            Outcome::Json(body) => reply::json(StatusCode::OK, (format.rules().media)(&parts.headers), body),
            Outcome::Events(opened) => {
                let envelope = Envelope::bare(version);
                reply::events(sse::frames(*opened, envelope, &self.streams, incoming.span.clone())?)
            }
        })
    }

    /// The body of a POST as text. The body of any other verb is ignored.
    async fn text<B>(&self, caller: &Caller, parts: &Parts, body: B) -> Result<String>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        if parts.method != Method::POST {
            return Ok(String::new());
        }
        media::check_content_type(&parts.headers, false)?;
        let bytes =
            body::read(&parts.headers, body, self.limits, self.bodies.begin(&caller.principal)).await?;
        media::check_content_type(&parts.headers, !bytes.is_empty())?;
        String::from_utf8(bytes.into()).map_err(|_| {
            Error::new(ErrorKind::Parse, "The body of the request is not UTF-8 text; send JSON.")
        })
    }
}

fn decode(route: &Route, parts: &Parts, version: ProtocolVersion, text: &str) -> Result<Operation> {
    let query = query::pairs(parts.uri.query());
    let decoders = match version {
        ProtocolVersion::V1 => V1,
        ProtocolVersion::V03 => V03,
    };
    let send = || (decoders.send)(&query, text).map_err(|error| wrong_binding(parts, text).unwrap_or(error));
    // These operations need no body, so a JSON-RPC request would otherwise be accepted as an empty one.
    let no_envelope = || wrong_binding(parts, text).map_or(Ok(()), Err);
    Ok(match route {
        Route::SendMessage => Operation::Send(send()?),
        Route::StreamMessage => Operation::Stream(send()?),
        Route::Tasks => Operation::List((decoders.list)(&query)?),
        Route::Task(id) => Operation::Get((decoders.get)(id, &query)?),
        Route::CancelTask(id) => {
            no_envelope()?;
            Operation::Cancel((decoders.cancel)(id, &query, text)?)
        }
        Route::SubscribeToTask(id) => {
            no_envelope()?;
            Operation::Subscribe((decoders.subscribe)(id, &query, text)?)
        }
        Route::PushConfigs | Route::PushConfig => return Err(operation::push_not_supported()),
        // The dispatcher has answered these routes already.
        Route::Rpc
        | Route::Card
        | Route::ExtendedCard(_)
        | Route::OpenApi
        | Route::Health
        | Route::Metrics
        | Route::Livez
        | Route::File(_) => return Err(Error::internal("a route without a REST operation")),
    })
}

/// The error for a body that is a JSON-RPC request.
fn wrong_binding(parts: &Parts, text: &str) -> Option<Error> {
    let path = parts.uri.path();
    jsonrpc::is_request(text).then(|| {
        Error::new(
            ErrorKind::WrongBinding,
            "The body is a JSON-RPC request, but this path takes HTTP+JSON; send the value of \"params\" here, or send the \
             whole request to the URL of the JSON-RPC interface.",
        )
        .detail("path", path)
    })
}
