//! Services of gRPC beside those of A2A, such as reflection. They pass the same gate, and their streams take slots, too.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt;
use http::Request;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream};
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::surface::Access;

use super::{Protobuf, response, status};
use crate::auth::Caller;
use crate::binding::Bindings;
use crate::incoming::Incoming;
use crate::limits::OpenedFor;
use crate::reply::Response;

/// The body of a request or of a response.
pub type GrpcBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Services that another crate implements.
pub trait GrpcServices: fmt::Debug + Send + Sync {
    /// Who may call at a path. `None`: no service has the path.
    fn access(&self, path: &str) -> Option<Access>;

    fn call(&self, request: Request<GrpcBody>) -> BoxFuture<'static, http::Response<GrpcBody>>;
}

/// Answers a call of such a service. `caller`: `None` if the call needs no credential.
pub(crate) async fn answer<B>(
    bindings: &Bindings,
    protobuf: &'static dyn Protobuf,
    services: &dyn GrpcServices,
    caller: Option<&Caller>,
    incoming: &Incoming<'_>,
    body: B,
) -> Result<Response>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    // A call without a credential is a single question, which needs no slot.
    let slot = caller
        .map(|caller| bindings.operations.slots.take(&caller.principal, OpenedFor::Subscription))
        .transpose()?;
    let body = body.map_err(|error| Box::new(error).into()).boxed_unsync();
    let (head, body) = services.call(Request::from_parts(incoming.parts.clone(), body)).await.into_parts();
    let frames = BodyStream::new(body).map(move |frame| {
        frame.unwrap_or_else(|error: Box<dyn std::error::Error + Send + Sync>| {
            let error = Error::new(ErrorKind::Internal, "The service failed.").caused_by(error);
            Frame::trailers(status::failed(protobuf, &error))
        })
    });
    let closing = bindings.streams.closing.child_token().cancelled_owned();
    let frames = frames.take_until(closing).map(move |frame| {
        let _held = &slot;
        frame
    });
    let mut response = response(frames);
    response.headers_mut().extend(head.headers);
    Ok(response)
}
