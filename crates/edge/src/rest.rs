//! The REST binding.
//!
//! An id in a path is held to the id rule after decoding: one that breaks it is `InvalidParams` naming `id`, one
//! that keeps it (`..` does) but names nothing is `TaskNotFound`.

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode};
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::v1::decode;

use crate::auth::Caller;
use crate::dispatch::Dispatcher;
use crate::media::{self, Media};
use crate::operation::{self, Operation, Outcome};
use crate::reply::{self, Response};
use crate::route::Route;
use crate::sse::{self, Envelope};
use crate::{body, query};

impl Dispatcher {
    pub(crate) async fn rest<B>(
        &self,
        caller: &Caller,
        route: &Route,
        parts: &Parts,
        body: B,
    ) -> Result<Response>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let text = self.text(parts, body).await?;
        let operation = named_operation(route, parts, &text)?;
        Ok(match self.operations.perform(caller, operation, &parts.headers).await? {
            Outcome::Json(body) => reply::json(StatusCode::OK, Media::of_answer(&parts.headers), body),
            Outcome::Events(opened) => {
                reply::events(sse::frames(*opened, Envelope::Bare, self.streams.clone()))
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

fn named_operation(route: &Route, parts: &Parts, text: &str) -> Result<Operation> {
    let query = query::pairs(parts.uri.query());
    Ok(match route {
        Route::SendMessage => Operation::Send(decode::send_message_query(&query, text)?),
        Route::StreamMessage => Operation::Stream(decode::send_message_query(&query, text)?),
        Route::Tasks => Operation::List(decode::list_tasks_query(&query)?),
        Route::Task(id) => Operation::Get(decode::get_task_query(id, &query)?),
        Route::CancelTask(id) => Operation::Cancel(decode::cancel_task_query(id, &query, text)?),
        Route::SubscribeToTask(id) => Operation::Subscribe(decode::subscribe_query(id, &query, text)?),
        Route::PushConfigs | Route::PushConfig => return Err(operation::push_not_supported()),
        Route::ExtendedCard => return Err(operation::no_extended_card()),
        // The dispatcher has answered these.
        Route::Rpc | Route::Card | Route::Livez | Route::File(_) => {
            return Err(Error::internal("a route without a REST operation"));
        }
    })
}
