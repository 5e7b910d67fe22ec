//! The REST binding: decodes the path, query and body of a request into a command, and encodes the reply.
//!
//! An id in a path is percent-decoded and then checked. An id with a forbidden character or length is `InvalidParams` for the field
//! `id`. A valid id that names no task, such as `..`, is `TaskNotFound`.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use longshore_model::{
    CancelTask, CreatePushConfig, DeletePushConfig, Error, ErrorKind, GetPushConfig, GetTask,
    ListPushConfigs, ListTasks, Result, SendMessage, SubscribeToTask,
};
use longshore_wire::surface::Operation;
use longshore_wire::v1::method::Method as Name;
use longshore_wire::v03::Dialect;
use longshore_wire::{jsonrpc, v1, v03};

use crate::auth::Caller;
use crate::binding::Bindings;
use crate::command::Command;
use crate::incoming::Incoming;
use crate::operation::Reply;
use crate::payload;
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::route::Route;
use crate::sse::Envelope;
use crate::version::ProtocolVersion;
use crate::{media, query};

type Pairs = [(String, String)];

/// The functions that decode a request for one version.
struct Decoders {
    send: fn(&Pairs, &str) -> Result<SendMessage>,
    list: fn(&Pairs) -> Result<ListTasks>,
    get: fn(&str, &Pairs) -> Result<GetTask>,
    cancel: fn(&str, &Pairs, &str) -> Result<CancelTask>,
    subscribe: fn(&str, &Pairs, &str) -> Result<SubscribeToTask>,
    create_push_config: fn(&str, &Pairs, &str) -> Result<CreatePushConfig>,
    get_push_config: fn(&str, &str, &Pairs) -> Result<GetPushConfig>,
    list_push_configs: fn(&str, &Pairs) -> Result<ListPushConfigs>,
    delete_push_config: fn(&str, &str, &Pairs) -> Result<DeletePushConfig>,
}

const V1: Decoders = Decoders {
    send: v1::decode::send_message_query,
    list: v1::decode::list_tasks_query,
    get: v1::decode::get_task_query,
    cancel: v1::decode::cancel_task_query,
    subscribe: v1::decode::subscribe_query,
    create_push_config: v1::decode::create_push_config_query,
    get_push_config: v1::decode::get_push_config_query,
    list_push_configs: v1::decode::list_push_configs_query,
    delete_push_config: v1::decode::delete_push_config_query,
};

const V03: Decoders = Decoders {
    send: |_, body| v03::decode::send_message(Dialect::Rest, body),
    list: v03::decode::list_tasks_query,
    get: v03::decode::get_task_query,
    cancel: v03::decode::cancel_task_query,
    subscribe: v03::decode::subscribe_query,
    create_push_config: v03::decode::create_push_config_query,
    get_push_config: v03::decode::get_push_config_query,
    list_push_configs: v03::decode::list_push_configs_query,
    delete_push_config: v03::decode::delete_push_config_query,
};

/// Answers a request for an operation.
pub(crate) async fn answer<B>(
    bindings: &Bindings,
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
    let operation = route.operation(&parts.method);
    let operation = operation.ok_or_else(|| Error::internal("a route without a REST operation"))?;
    if operation.needs_extensions {
        bindings.operations.check_required(format.rules().activated(&parts.headers))?;
    }
    bindings.operations.check_served(operation)?;
    let body = read_body(bindings, caller, incoming, body).await?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| Error::new(ErrorKind::Parse, "The body of the request is not UTF-8 text; send JSON."))?;
    payload::log_request(bindings.payload_log, route.logged_path(), &parts.headers, text.as_bytes());
    let command = decode(operation, [&route.id, &route.sub_id], parts, version, text)?;
    // Freed now, because a send may wait for the agent for hours.
    drop(body);
    let options = incoming.options(format, command.streams())?;
    let reply = bindings.operations.perform(caller, command, &options).await?;
    let json = |body| reply::json(StatusCode::OK, (format.rules().media)(&parts.headers), body);
    Ok(match reply {
        Reply::Events(reader) => {
            let envelope = Envelope::bare(version);
            bindings.events(*reader, format, envelope, incoming.span.clone()).await?
        }
        Reply::ExtendedCard(cards) => {
            // The oldest 0.3 clients use this path and expect the JSON-RPC dialect.
            let is_old = route.path().starts_with("/agent/");
            let dialect = if is_old { Dialect::Rpc } else { Dialect::Rest };
            cards.answer(&incoming.document_request(Some(caller), Some(version), dialect))
        }
        Reply::Sent(task, view) => json(format.sent(&task, view)),
        Reply::Task(task, view) => json(format.task(&task, view)),
        Reply::Page(listing, view) => json(format.page(&listing, view)),
        Reply::PushConfig(config) => json(format.push_config(&config)),
        Reply::PushConfigs(listing) => json(format.push_page(&listing)),
        Reply::PushConfigDeleted => json(format.push_config_deleted()),
        Reply::Method(_) => return Err(Error::internal("REST has no extension methods")),
    })
}

/// The body of a POST. The body of any other verb is ignored.
async fn read_body<B>(bindings: &Bindings, caller: &Caller, incoming: &Incoming<'_>, body: B) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let parts = incoming.parts;
    if parts.method != Method::POST {
        return Ok(Bytes::new());
    }
    media::check_content_type(&parts.headers, false)?;
    let bytes = bindings.read_body(caller, incoming, body).await?;
    media::check_content_type(&parts.headers, !bytes.is_empty())?;
    Ok(bytes)
}

/// Decodes a request into a command. `id` and `sub_id`: the ids in the path.
fn decode(
    operation: &Operation,
    [id, sub_id]: [&str; 2],
    parts: &Parts,
    version: ProtocolVersion,
    text: &str,
) -> Result<Command> {
    let query = query::pairs(parts.uri.query());
    let decoders = match version {
        ProtocolVersion::V1 => V1,
        ProtocolVersion::V03 => V03,
    };
    let send = || (decoders.send)(&query, text).map_err(|error| wrong_binding(parts, text).unwrap_or(error));
    // These operations ignore their body, so a JSON-RPC request would otherwise be accepted as a request with an empty body.
    let no_envelope = || wrong_binding(parts, text).map_or(Ok(()), Err);
    Ok(match operation.method {
        Name::SendMessage => Command::Send(send()?),
        Name::SendStreamingMessage => Command::Stream(send()?),
        Name::ListTasks => Command::List((decoders.list)(&query)?),
        Name::GetTask => Command::Get((decoders.get)(id, &query)?),
        Name::CancelTask => {
            no_envelope()?;
            Command::Cancel((decoders.cancel)(id, &query, text)?)
        }
        Name::SubscribeToTask => {
            no_envelope()?;
            Command::Subscribe((decoders.subscribe)(id, &query, text)?)
        }
        Name::GetExtendedAgentCard => Command::ExtendedCard,
        Name::CreateTaskPushNotificationConfig => {
            let created = (decoders.create_push_config)(id, &query, text);
            Command::CreatePushConfig(created.map_err(|error| wrong_binding(parts, text).unwrap_or(error))?)
        }
        Name::GetTaskPushNotificationConfig => {
            Command::GetPushConfig((decoders.get_push_config)(id, sub_id, &query)?)
        }
        Name::ListTaskPushNotificationConfigs => {
            Command::ListPushConfigs((decoders.list_push_configs)(id, &query)?)
        }
        Name::DeleteTaskPushNotificationConfig => {
            Command::DeletePushConfig((decoders.delete_push_config)(id, sub_id, &query)?)
        }
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
