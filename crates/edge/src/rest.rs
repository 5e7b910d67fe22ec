//! The REST binding.
//!
//! An id in a path is held to the id rule after decoding: one that breaks it is `InvalidParams` naming `id`, one
//! that keeps it (`..` does) but names nothing is `TaskNotFound`.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use longshore_engine::port::on_behalf_of;
use longshore_model::{
    CancelTask, Error, ErrorKind, GetTask, ListTasks, Result, SendMessage, SubscribeToTask,
};
use longshore_wire::v03::Dialect;
use longshore_wire::{jsonrpc, v1, v03};

use crate::auth::Caller;
use crate::dispatch::{Dispatcher, Incoming};
use crate::line::ProtocolVersion;
use crate::operation::{self, Operation, Outcome};
use crate::payload::{self, Called};
use crate::reply::{self, Response};
use crate::route::Route;
use crate::shape::Shape;
use crate::sse::{self, Envelope};
use crate::{body, media, query};

type Pairs = [(String, String)];

/// How one line reads a request.
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
        line: ProtocolVersion,
        body: B,
    ) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (parts, shape) = (incoming.parts, Shape::rest(line));
        let text = self.text(parts, body).await?;
        let path = Called::Path(parts.uri.path());
        payload::log_request(self.payload_log, path, &parts.headers, text.as_bytes());
        let operation = named_operation(route, parts, line, &text)?.traced(&incoming.trace);
        let performed = self.operations.perform(caller, operation, &parts.headers, shape);
        Ok(match on_behalf_of(Some(incoming.trace.clone()), performed).await? {
            Outcome::Json(body) => reply::json(StatusCode::OK, (shape.rules().media)(&parts.headers), body),
            Outcome::Events(opened) => {
                let envelope = Envelope::bare(line);
                reply::events(sse::frames(*opened, envelope, &self.streams, incoming.span.clone())?)
            }
        })
    }

    /// The body of a POST as text; of other verbs it is not looked at.
    async fn text<B>(&self, parts: &Parts, body: B) -> Result<String>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        if parts.method != Method::POST {
            return Ok(String::new());
        }
        media::check_content_type(&parts.headers, false)?;
        let bytes = body::read(&parts.headers, body, self.limits).await?;
        media::check_content_type(&parts.headers, !bytes.is_empty())?;
        String::from_utf8(bytes.into()).map_err(|_| {
            Error::new(ErrorKind::Parse, "The body of the request is not UTF-8 text; send JSON.")
        })
    }
}

fn named_operation(route: &Route, parts: &Parts, line: ProtocolVersion, text: &str) -> Result<Operation> {
    let query = query::pairs(parts.uri.query());
    let decoders = match line {
        ProtocolVersion::V1 => V1,
        ProtocolVersion::V03 => V03,
    };
    let send = || (decoders.send)(&query, text).map_err(|error| wrong_binding(parts, text).unwrap_or(error));
    // Where nothing has to be in a body, one of the other binding could pass for a good one.
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
        // The dispatcher has answered these.
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

/// What to say of a body that is a request of the other binding.
fn wrong_binding(parts: &Parts, text: &str) -> Option<Error> {
    let path = parts.uri.path();
    jsonrpc::is_request(text).then(|| {
        Error::new(
            ErrorKind::WrongBinding,
            "The body is a JSON-RPC request, and this path is of HTTP+JSON; send here what it has in \"params\", or send \
             all of it to the URL of the JSON-RPC interface.",
        )
        .detail("path", path)
    })
}
