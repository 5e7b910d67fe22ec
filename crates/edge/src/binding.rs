//! Functions with which every HTTP binding decodes requests and encodes replies. A binding calls [`Operations::perform`], and no
//! other function that has an effect.

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
    /// The facts about this gateway from which its documents are built, such as the enabled methods.
    pub(crate) deployment: Arc<Deployment>,
    /// The extensions that the public card declares.
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

    /// Turns a reader of events into a response that streams them.
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
    /// The options in the headers of the request. `streams`: whether the reply is a stream; only a stream can resume after an
    /// event.
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
