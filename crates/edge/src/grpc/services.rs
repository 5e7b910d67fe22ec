//! Services of gRPC beside those of A2A, such as reflection. They pass the same gate, and their streams take slots, too.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::Request;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, LengthLimitError, Limited, StreamBody};
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::surface::Access;

use super::deadline::{Deadline, Late};
use super::{Protobuf, response, status};
use crate::auth::Caller;
use crate::binding::Bindings;
use crate::body::BodyLimits;
use crate::incoming::Incoming;
use crate::limits::OpenedFor;
use crate::reply::Response;

/// The body of a request or of a response.
pub type GrpcBody = UnsyncBoxBody<Bytes, BoxError>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest body of a call without a credential, which asks only for the health of a service.
const MAX_QUESTION: usize = 4 * 1024;

const LATE: &str = "The body of the request did not arrive in time.";

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
    let deadline = Deadline::from_headers(&incoming.parts.headers)?;
    let opening = open(bindings, protobuf, services, caller, incoming, body, deadline);
    deadline.limit(opening).await.unwrap_or_else(|Late| Ok(status::late_response()))
}

async fn open<B>(
    bindings: &Bindings,
    protobuf: &'static dyn Protobuf,
    services: &dyn GrpcServices,
    caller: Option<&Caller>,
    incoming: &Incoming<'_>,
    body: B,
    deadline: Deadline,
) -> Result<Response>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    // A call without a credential is a single question, which needs no slot.
    let slot = caller
        .map(|caller| bindings.operations.slots.take(&caller.principal, OpenedFor::Subscription))
        .transpose()?;
    let body = match caller {
        Some(_) => limited(body, bindings.limits),
        None => question(body, bindings.limits.timeout).await?,
    };
    let (head, body) = services.call(Request::from_parts(incoming.parts.clone(), body)).await.into_parts();
    let frames = BodyStream::new(body).map(move |frame| {
        frame.unwrap_or_else(|error: BoxError| {
            let error = Error::new(ErrorKind::Internal, "The service failed.").caused_by(error);
            Frame::trailers(status::failed(protobuf, &error))
        })
    });
    let closed = Box::pin(bindings.streams.closing.child_token().cancelled_owned());
    let frames = stream::unfold(Some((frames, closed, slot)), move |open| async move {
        let (mut frames, mut closed, slot) = open?;
        tokio::select! {
            biased;
            frame = deadline.limit(frames.next()) => match frame {
                Ok(frame) => Some((frame?, Some((frames, closed, slot)))),
                Err(Late) => Some((Frame::trailers(status::late()), None)),
            },
            () = closed.as_mut() => {
                let text = "The gateway is shutting down; call again.";
                let closing = Error::new(ErrorKind::Unavailable, text);
                Some((Frame::trailers(status::failed(protobuf, &closing)), None))
            }
        }
    });
    let mut response = response(frames);
    response.headers_mut().extend(head.headers);
    Ok(response)
}

/// The whole body of a call without a credential. Nothing waits for the rest of it later.
async fn question<B>(body: B, timeout: Duration) -> Result<GrpcBody>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let collected = tokio::time::timeout(timeout, Limited::new(body, MAX_QUESTION).collect()).await;
    let collected = collected.map_err(|_| Error::new(ErrorKind::InvalidRequest, LATE))?;
    let collected = collected.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let text = format!(
                "A call without a credential has at most {MAX_QUESTION} bytes; send a shorter one, or a credential."
            );
            return Error::new(ErrorKind::BodyTooLarge, text).detail("maxBytes", MAX_QUESTION.to_string());
        }
        Error::new(ErrorKind::InvalidRequest, "The body of the request ended too early.").caused_by(error)
    })?;
    Ok(Full::new(collected.to_bytes()).map_err(|never| match never {}).boxed_unsync())
}

/// The body of a call that may be a conversation: only the begin of its first message must come in time.
fn limited<B>(body: B, limits: BodyLimits) -> GrpcBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let most = if limits.max_bytes == 0 { usize::MAX } else { limits.max_bytes };
    let frames = Box::pin(BodyStream::new(Limited::new(body, most)));
    let frames = stream::unfold((frames, Some(limits.timeout)), |(mut frames, timeout)| async move {
        let next = match timeout {
            Some(timeout) => {
                tokio::time::timeout(timeout, frames.next()).await.unwrap_or_else(|_| Some(Err(LATE.into())))
            }
            None => frames.next().await,
        };
        Some((next?, (frames, None)))
    });
    StreamBody::new(frames).boxed_unsync()
}
