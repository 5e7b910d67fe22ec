//! Answers a gRPC call: decodes its message into a command, and writes the reply.

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::surface::Operation;
use longshore_wire::v03::Dialect;

use super::deadline::{Deadline, Late};
use super::{Protobuf, framed, only_message, response, status};
use crate::auth::Caller;
use crate::binding::Bindings;
use crate::command::Command;
use crate::incoming::Incoming;
use crate::jsonrpc;
use crate::log::Log;
use crate::operation::{EventReader, Reply};
use crate::payload;
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::route::Route;
use crate::sse::{Ending, Envelope, EventStream, Next};
use crate::version::ProtocolVersion;

/// Answers a call of an operation.
pub(crate) async fn answer<B>(
    bindings: &Bindings,
    protobuf: &'static dyn Protobuf,
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
    let deadline = Deadline::from_headers(&incoming.parts.headers)?;
    let call = Call { bindings, protobuf, incoming, version, deadline };
    // After the deadline, a task that the call has created continues, as after a disconnect.
    deadline.limit(call.answer(caller, route, body)).await.unwrap_or_else(|Late| Ok(status::late_response()))
}

struct Call<'a> {
    bindings: &'a Bindings,
    protobuf: &'static dyn Protobuf,
    incoming: &'a Incoming<'a>,
    version: ProtocolVersion,
    deadline: Deadline,
}

impl Call<'_> {
    async fn answer<B>(&self, caller: &Caller, route: &Route, body: B) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let Self { bindings, protobuf, incoming, version, .. } = *self;
        let (headers, format) = (&incoming.parts.headers, ResponseFormat::grpc(version, protobuf));
        let operation = super::served(route.operation(&incoming.parts.method))?;
        if operation.needs_extensions {
            bindings.operations.check_required(format.rules().activated(headers))?;
        }
        bindings.operations.check_served(operation)?;
        let body = bindings.read_body(caller, incoming, body).await?;
        let params = protobuf.request(version, operation.method, &only_message(&body)?)?;
        drop(body);
        payload::log_call(bindings.payload_log, route.logged_path(), params.as_bytes());
        let command = decode(operation, version, &params)?;
        // Freed now, because a send may wait for the agent for hours.
        drop(params);
        let options = incoming.options(format, command.streams())?;
        let json = match bindings.operations.perform(caller, command, &options).await? {
            Reply::Events(reader) => return self.events(*reader, format).await,
            Reply::ExtendedCard(cards) => {
                cards.json(&incoming.document_request(Some(caller), Some(version), Dialect::Rest))
            }
            Reply::Sent(task, view) => format.sent(&task, view),
            Reply::Task(task, view) => format.task(&task, view),
            Reply::Page(listing, view) => format.page(&listing, view),
            Reply::PushConfig(config) => format.push_config(&config),
            Reply::PushConfigs(listing) => format.push_page(&listing),
            Reply::PushConfigDeleted => format.push_config_deleted(),
            Reply::Method(_) => return Err(Error::internal("gRPC has no extension methods")),
        };
        let message = framed(&protobuf.reply(version, operation.method, &json)?);
        Ok(response(stream::iter([Frame::data(message), Frame::trailers(status::complete())])))
    }

    /// Writes the events of a reader as messages. Nothing is read from the log while the client does not read.
    async fn events(&self, reader: EventReader, format: ResponseFormat) -> Result<Response> {
        let opened = reader.open(format).await?;
        let span = self.incoming.span.clone();
        let streaming =
            EventStream::begin(opened, Envelope::framed(self.version), &self.bindings.streams, span)?;
        let (protobuf, deadline) = (self.protobuf, self.deadline);
        Ok(response(stream::unfold(Left::Events(streaming), move |left| left.next(protobuf, deadline))))
    }
}

/// The remaining part of the response to a streaming call.
enum Left {
    Events(Box<EventStream<Log>>),
    Complete,
    Nothing,
}

impl Left {
    async fn next(self, protobuf: &'static dyn Protobuf, deadline: Deadline) -> Option<(Frame<Bytes>, Self)> {
        let mut streaming = match self {
            Self::Events(streaming) => streaming,
            Self::Complete => return Some((Frame::trailers(status::complete()), Self::Nothing)),
            Self::Nothing => return None,
        };
        let trailers = match deadline.limit(streaming.next()).await {
            Ok(Next::More(bytes)) => return Some((Frame::data(bytes), Self::Events(streaming))),
            Ok(Next::Last(bytes)) => return Some((Frame::data(bytes), Self::Complete)),
            Ok(Next::End(Ending::Complete)) => status::complete(),
            Ok(Next::End(Ending::Failed(error))) => {
                streaming.span.in_scope(|| reply::log(&error, "stream"));
                status::failed(protobuf, &error)
            }
            Ok(Next::End(Ending::Closing)) => status::failed(protobuf, &closing()),
            Err(Late) => status::late(),
        };
        Some((Frame::trailers(trailers), Self::Nothing))
    }
}

fn decode(operation: &Operation, version: ProtocolVersion, params: &str) -> Result<Command> {
    let decoders = match version {
        ProtocolVersion::V1 => jsonrpc::V1,
        ProtocolVersion::V03 => jsonrpc::V03_GRPC,
    };
    decoders.command(operation.method, params)
}

fn closing() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "The gateway is shutting down; subscribe again, with the last longshore.cursor as last-event-id.",
    )
}
