//! What every HTTP binding uses to decode requests and to encode replies. A binding calls [`Operations::perform`], and nothing else
//! that has an effect.

use std::sync::Arc;

use bytes::Bytes;
use longshore_model::{Result, TraceContext};
use longshore_wire::contract::Deployment;
use longshore_wire::extension::Activated;
use tracing::Span;

use crate::PayloadLog;
use crate::auth::Caller;
use crate::body::{self, BodyLimits};
use crate::command::RequestOptions;
use crate::cursor;
use crate::incoming::Incoming;
use crate::limits::Bodies;
use crate::operation::{EventReader, Operations};
use crate::reply::{self, Response};
use crate::response_format::ResponseFormat;
use crate::sse::{self, Envelope, StreamSettings};

/// The parts of a gateway that its bindings share.
#[derive(Debug)]
pub(crate) struct Bindings {
    pub(crate) operations: Arc<Operations>,
    /// The facts about this gateway from which its documents are built, such as the methods that are switched on.
    pub(crate) deployment: Arc<Deployment>,
    /// The extensions of the public card.
    pub(crate) public_extensions: Activated,
    pub(crate) limits: BodyLimits,
    pub(crate) bodies: Arc<Bodies>,
    pub(crate) streams: Arc<StreamSettings>,
    pub(crate) payload_log: PayloadLog,
}

impl Bindings {
    /// Reads the whole body of a request.
    pub(crate) async fn read_body<B>(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        body: B,
    ) -> Result<Bytes>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        body::read(&incoming.parts.headers, body, self.limits, self.bodies.begin(&caller.principal)).await
    }

    /// Writes a reader of events in frames.
    pub(crate) async fn events(
        &self,
        reader: EventReader,
        format: ResponseFormat,
        envelope: Envelope,
        span: Span,
    ) -> Result<Response> {
        let opened = reader.open(format).await?;
        Ok(reply::events(sse::frames(opened, envelope, &self.streams, span)?))
    }
}

impl Incoming<'_> {
    /// The options that the headers of the request name. `streams`: only a stream resumes after an event.
    pub(crate) fn options(&self, format: ResponseFormat, streams: bool) -> Result<RequestOptions> {
        let headers = &self.parts.headers;
        Ok(RequestOptions {
            version: format.version,
            activated: format.rules().activated(headers),
            resume_after: if streams { cursor::last_event_id(headers)? } else { None },
            trace: TraceContext::clone(&self.trace),
            line: self.line.clone(),
            span: self.span.clone(),
        })
    }
}
