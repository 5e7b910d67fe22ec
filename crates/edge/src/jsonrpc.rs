//! The JSON-RPC binding: `POST /`.
//!
//! In order: media type, body, envelope, required extensions, protocol line, method, parameters. A request without an id is a
//! notification: sends and cancels are done, reads are not, and the answer is 204 whatever came of it.

use http::StatusCode;
use http::request::Parts;
use longshore_model::Result;
use longshore_wire::extension::Activated;
use longshore_wire::jsonrpc::{self as envelope, Id};
use longshore_wire::v1::method::Method;
use longshore_wire::v1::{decode, extension};

use crate::auth::Caller;
use crate::dispatch::Dispatcher;
use crate::media::{self, Media};
use crate::operation::{self, Operation, Outcome};
use crate::reply::{self, Response};
use crate::sse::{self, Envelope};
use crate::{body, extensions, line, query};

impl Dispatcher {
    pub(crate) async fn rpc<B>(&self, caller: &Caller, parts: &Parts, body: B) -> Response
    where
        B: http_body::Body<Data = bytes::Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let read = async {
            media::check_content_type(&parts.headers, true)?;
            body::read(&parts.headers, body, self.limits).await
        };
        let body = match read.await {
            Ok(body) => body,
            Err(error) => return refuse(&Id::Null, &error),
        };
        let call = match envelope::parse(&body) {
            Ok(call) => call,
            Err(rejected) => return refuse(&rejected.id, &rejected.error),
        };
        let activated = extensions::activated(&parts.headers);
        let named = extensions::of_method(&call.method, activated);
        let mut response = self.called(caller, parts, call, activated).await;
        extensions::echo(&mut response, named);
        response
    }

    async fn called(
        &self,
        caller: &Caller,
        parts: &Parts,
        call: envelope::Request<'_>,
        activated: Activated,
    ) -> Response {
        let params = call.params.map_or("{}", |params| params.get());
        let operation = self
            .check_required(activated)
            .and_then(|()| named_operation(parts, &call.method, params, activated));
        let Some(id) = call.id else {
            let done = match operation {
                Ok(operation) => self.operations.notify(caller, operation, activated).await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                reply::log(&error, "notification");
            }
            return reply::empty(StatusCode::NO_CONTENT);
        };
        let outcome = match operation {
            Ok(operation) => self.operations.perform(caller, operation, &parts.headers).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Outcome::Json(result)) => {
                reply::json(StatusCode::OK, Media::Json, envelope::result(&id, &result))
            }
            Ok(Outcome::Events(opened)) => {
                reply::events(sse::frames(*opened, Envelope::rpc(id), self.streams.clone()))
            }
            Err(error) => refuse(&id, &error),
        }
    }
}

fn refuse(id: &Id, error: &longshore_model::Error) -> Response {
    reply::log(error, "JSON-RPC");
    reply::rpc_error(id, error)
}

fn named_operation(parts: &Parts, method: &str, params: &str, activated: Activated) -> Result<Operation> {
    line::named(&parts.headers, &query::pairs(parts.uri.query()))?;
    if let Some(method) = extension::Method::find(method) {
        return method.read(params, activated).map(Operation::Extension);
    }
    Ok(match line::method(method)? {
        Method::SendMessage => Operation::Send(decode::send_message(params)?),
        Method::SendStreamingMessage => Operation::Stream(decode::send_message(params)?),
        Method::GetTask => Operation::Get(decode::get_task(params)?),
        Method::ListTasks => Operation::List(decode::list_tasks(params)?),
        Method::CancelTask => Operation::Cancel(decode::cancel_task(params)?),
        Method::SubscribeToTask => Operation::Subscribe(decode::subscribe(params)?),
        Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig => return Err(operation::push_not_supported()),
        Method::GetExtendedAgentCard => return Err(operation::no_extended_card()),
    })
}
