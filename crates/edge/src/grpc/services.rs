//! gRPC services other than those of A2A, such as reflection. Their calls pass the same gate, and their streams take slots too.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
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
use tokio::time::{Instant, sleep_until};

use super::deadline::{Deadline, Late};
use super::{PREFIX, Protobuf, response, status};
use crate::auth::Caller;
use crate::binding::Bindings;
use crate::body::BodyLimits;
use crate::incoming::Incoming;
use crate::limits::{HeldBody, OpenedFor};
use crate::reply::Response;

/// The body of a request or of a response.
pub type GrpcBody = UnsyncBoxBody<Bytes, BoxError>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest body of a call without a credential. Such a call can only ask for the health of a service.
const MAX_QUESTION: usize = 4 * 1024;

/// How long the caller of a streaming call may pause before its next message or the end of the body. After that, the body fails,
/// and the service ends the call.
const MAX_PAUSE: Duration = Duration::from_mins(5);

const LATE: &str = "The body of the request did not arrive in time.";

/// Services that another crate implements.
pub trait GrpcServices: fmt::Debug + Send + Sync {
    /// The callers that may use this path. `None`: no service has the path.
    fn access(&self, path: &str) -> Option<Access>;

    fn call(&self, request: Request<GrpcBody>) -> BoxFuture<'static, http::Response<GrpcBody>>;
}

/// Answers a call of such a service. `caller`: `None` if the call needs no credential and has none.
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
    // A call without a credential has a single request message, and needs no slot.
    let slot = caller
        .map(|caller| bindings.operations.slots.take(&caller.principal, OpenedFor::Subscription))
        .transpose()?;
    let body = match caller {
        Some(caller) => limited(body, bindings.limits, bindings.bodies.begin(&caller.principal)),
        None => question(body, bindings.limits.timeout).await?,
    };
    let (head, body) = services.call(Request::from_parts(incoming.parts.clone(), body)).await.into_parts();
    let frames = BodyStream::new(body).map(move |frame| {
        frame.unwrap_or_else(|error: BoxError| {
            let error = Error::new(ErrorKind::Internal, "The service failed.").caused_by(error);
            Frame::trailers(status::failed(protobuf, &error))
        })
    });
    let (streams, end) = (Arc::clone(&bindings.streams), bindings.streams.end_of_new());
    let ended = Box::pin(async move {
        tokio::select! {
            () = streams.closing.cancelled() => {
                Error::new(ErrorKind::Unavailable, "The gateway is shutting down; call again.")
            }
            () = at(end) => streams.over("Call again."),
        }
    });
    let frames = stream::unfold(Some((frames, ended, slot)), move |open| async move {
        let (mut frames, mut ended, slot) = open?;
        tokio::select! {
            biased;
            frame = deadline.limit(frames.next()) => match frame {
                Ok(frame) => Some((frame?, Some((frames, ended, slot)))),
                Err(Late) => Some((Frame::trailers(status::late()), None)),
            },
            error = ended.as_mut() => Some((Frame::trailers(status::failed(protobuf, &error)), None)),
        }
    });
    let mut response = response(frames);
    response.headers_mut().extend(head.headers);
    Ok(response)
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => pending().await,
    }
}

/// Reads the whole body of a call without a credential, so that the service never waits for the rest.
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

/// The body of a call that may stream. Each message must begin and be complete in time, and the body must end in time after the
/// last message. `held` counts the bytes of an incomplete message.
fn limited<B>(body: B, limits: BodyLimits, held: HeldBody) -> GrpcBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let most = if limits.max_bytes == 0 { usize::MAX } else { limits.max_bytes };
    let body = Box::pin(BodyStream::new(Limited::new(body, most)));
    let (timeout, message) = (limits.timeout, Unfinished::default());
    let reading = Conversation { body, held, message, timeout, until: Instant::now() + timeout };
    StreamBody::new(stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        let next = reading.next().await?;
        let is_over = next.is_err();
        Some((next, (!is_over).then_some(reading)))
    }))
    .boxed_unsync()
}

/// The body of a call that is being read.
struct Conversation<B> {
    body: Pin<Box<BodyStream<Limited<B>>>>,
    held: HeldBody,
    message: Unfinished,
    /// How long a message may take to arrive, from its first byte on.
    timeout: Duration,
    /// The time by which the message must be complete, the next one must begin, or the body must end.
    until: Instant,
}

impl<B> Conversation<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    async fn next(&mut self) -> Option<std::result::Result<Frame<Bytes>, BoxError>> {
        let Ok(frame) = tokio::time::timeout_at(self.until, self.body.next()).await else {
            return Some(Err(LATE.into()));
        };
        let frame = match frame? {
            Ok(frame) => frame,
            Err(error) => return Some(Err(error)),
        };
        if let Some(data) = frame.data_ref() {
            let was_whole = self.message.arrived == 0;
            let has_ended = self.message.take(data);
            if self.message.arrived == 0 {
                self.held.free();
                self.until = Instant::now() + MAX_PAUSE;
            } else {
                if was_whole || has_ended {
                    self.until = Instant::now() + self.timeout;
                }
                if let Err(error) = self.held.grow_to(self.message.arrived) {
                    return Some(Err(error.into()));
                }
            }
        }
        Some(Ok(frame))
    }
}

/// A message that has not arrived completely.
#[derive(Default)]
struct Unfinished {
    /// The bytes of the prefix that have arrived so far.
    prefix: [u8; PREFIX],
    /// How many bytes have arrived, including the prefix. 0: no message has begun.
    arrived: usize,
}

impl Unfinished {
    /// Counts the next bytes. Returns whether a message ended in them.
    fn take(&mut self, mut data: &[u8]) -> bool {
        let mut has_ended = false;
        while !data.is_empty() {
            let missing = match PREFIX.checked_sub(self.arrived) {
                Some(of_prefix @ 1..) => {
                    let part = of_prefix.min(data.len());
                    self.prefix[self.arrived..][..part].copy_from_slice(&data[..part]);
                    part
                }
                _ => (self.length() - self.arrived).min(data.len()),
            };
            self.arrived += missing;
            data = &data[missing..];
            if self.arrived >= PREFIX && self.arrived == self.length() {
                (self.arrived, has_ended) = (0, true);
            }
        }
        has_ended
    }

    /// The length of the message with its prefix. The prefix must have arrived completely.
    fn length(&self) -> usize {
        let [_, length @ ..] = self.prefix;
        (u32::from_be_bytes(length) as usize).saturating_add(PREFIX)
    }
}

#[cfg(test)]
mod tests;
