//! Writes a reply at its pace, and breaks it off where the script says so.
//!
//! All pauses are inside of the response body. When the client leaves, hyper drops the body, and the pause with it: nothing
//! sleeps for a client that has left.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::anthropic_sse::Events;
use super::connection::ConnectionEnd;
use super::sse::{self, Chunks};
use super::{Body, BrokenOff, json_response};
use crate::journal::ActiveReply;
use crate::reply::{Delta, End, Reply, StreamedReply, Usage};
use crate::request::ParsedRequest;

/// A reply that is not streamed ends after so many deltas, with the finish reason `length`.
const MAX_WHOLE: usize = 100_000;

/// The API of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Api {
    OpenAi,
    Anthropic,
}

/// Writes the pieces of a reply for its API.
#[derive(Debug)]
enum Pieces {
    OpenAi(Chunks),
    Anthropic(Events),
}

impl Pieces {
    fn opening(&self) -> Bytes {
        match self {
            Self::OpenAi(chunks) => chunks.opening(),
            Self::Anthropic(events) => events.opening(),
        }
    }

    fn delta(&mut self, delta: Delta) -> Bytes {
        match self {
            Self::OpenAi(chunks) => chunks.delta(delta),
            Self::Anthropic(events) => events.delta(delta),
        }
    }

    /// The proper end.
    fn finish(&mut self, reason: &str, usage: Usage) -> VecDeque<Bytes> {
        match self {
            Self::OpenAi(chunks) => {
                [chunks.finish(reason.to_owned()), chunks.usage(usage), sse::event(sse::DONE)].into()
            }
            Self::Anthropic(events) => [events.finish(reason, usage)].into(),
        }
    }

    fn whole(&self, deltas: impl Iterator<Item = Delta>, reason: &str, usage: Usage) -> serde_json::Value {
        match self {
            Self::OpenAi(chunks) => chunks.whole(deltas, reason, usage),
            Self::Anthropic(events) => events.whole(deltas, reason, usage),
        }
    }
}

/// One reply, and how its client wants it.
#[derive(Debug)]
pub(super) struct ReplyWriter {
    reply: Reply,
    chunks: Pieces,
    stream: bool,
    active: ActiveReply,
    ending: ConnectionEnd,
}

/// A reply that is being streamed.
struct Stream {
    speech: StreamedReply,
    chunks: Pieces,
    ending: ConnectionEnd,
    /// Written before anything else.
    ready: VecDeque<Bytes>,
    /// The pause before the next delta.
    pause: Duration,
    over: bool,
    _active: ActiveReply,
}

impl ReplyWriter {
    pub(super) fn new(
        api: Api,
        asked: &ParsedRequest,
        reply: Reply,
        active: ActiveReply,
        ending: ConnectionEnd,
    ) -> Self {
        let (id, model) = (asked.fingerprint(), asked.model.clone());
        let chunks = match api {
            Api::OpenAi => Pieces::OpenAi(Chunks { id: format!("chatcmpl-{id}"), model }),
            Api::Anthropic => Pieces::Anthropic(Events::new(format!("msg_{id}"), model)),
        };
        Self { reply, chunks, stream: asked.stream, active, ending }
    }

    pub(super) async fn respond(self) -> Response<Body> {
        match self.reply {
            Reply::Refusal(refusal) => {
                tokio::time::sleep(refusal.wait).await;
                let status =
                    StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut response = json_response(status, &refusal.body);
                for (name, value) in refusal.headers {
                    // A value that no header can have is left out.
                    if let Ok(value) = HeaderValue::from_str(&value) {
                        response.headers_mut().insert(name, value);
                    }
                }
                response
            }
            Reply::Streamed(speech) => {
                tokio::time::sleep(speech.wait).await;
                if self.stream {
                    streamed(speech, self.chunks, self.active, self.ending)
                } else {
                    whole(speech, &self.chunks, &self.ending).await
                }
            }
        }
    }
}

fn streamed(
    speech: StreamedReply,
    chunks: Pieces,
    active: ActiveReply,
    ending: ConnectionEnd,
) -> Response<Body> {
    let ready = VecDeque::from([chunks.opening()]);
    let stream =
        Stream { speech, chunks, ending, ready, pause: Duration::ZERO, over: false, _active: active };
    let frames = stream::unfold(stream, |mut stream| async {
        let frame = stream.next().await?;
        Some((frame.map(Frame::data), stream))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The same reply as one object. An end that a single object cannot express fails in the nearest way.
async fn whole(mut speech: StreamedReply, chunks: &Pieces, ending: &ConnectionEnd) -> Response<Body> {
    let deltas: Vec<_> = speech.deltas.by_ref().take(MAX_WHOLE).collect();
    let is_cut = deltas.len() == MAX_WHOLE;
    let pause = speech.pace.saturating_mul(u32::try_from(deltas.len()).unwrap_or(u32::MAX));
    tokio::time::sleep(pause).await;
    match speech.end {
        End::Finish(reason) => {
            let reason = if is_cut { "length" } else { reason.as_str() };
            json_response(StatusCode::OK, &chunks.whole(deltas.into_iter(), reason, speech.usage))
        }
        End::Unfinished | End::Event(_) => json_response(
            StatusCode::INTERNAL_SERVER_ERROR,
            &serde_json::json!({
                "error": {"message": "The reply broke off.", "type": "server_error"}
            }),
        ),
        End::Close => broken(),
        End::Reset => {
            ending.reset();
            broken()
        }
        End::Silence => std::future::pending().await,
    }
}

/// A body that breaks off at once.
fn broken() -> Response<Body> {
    Response::new(StreamBody::new(stream::iter([Err(BrokenOff)])).boxed_unsync())
}

impl Stream {
    async fn next(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Some(Ok(bytes));
        }
        if self.over {
            return None;
        }
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
        if let Some(delta) = self.speech.deltas.next() {
            self.pause = self.speech.pace;
            return Some(Ok(self.chunks.delta(delta)));
        }
        self.over = true;
        self.end().await
    }

    async fn end(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        match &self.speech.end {
            End::Finish(reason) => {
                self.ready = self.chunks.finish(reason, self.speech.usage);
                self.ready.pop_front().map(Ok)
            }
            End::Event(data) => {
                self.ready.push_back(sse::event(sse::DONE));
                Some(Ok(sse::event(data)))
            }
            End::Unfinished => None,
            End::Close => {
                flushed().await;
                Some(Err(BrokenOff))
            }
            End::Reset => {
                flushed().await;
                self.ending.reset();
                Some(Err(BrokenOff))
            }
            End::Silence => std::future::pending().await,
        }
    }
}

/// Lets hyper write the earlier chunks to the socket.
async fn flushed() {
    tokio::task::yield_now().await;
}
