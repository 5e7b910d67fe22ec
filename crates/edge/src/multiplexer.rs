//! The requests of a connection that carries several of them as messages: a WebSocket, or the standard input and output.
//!
//! Each message is a JSON-RPC request and is handled like a `POST /` (`jsonrpc`), with the same rate limit, slots, metrics and log
//! line. The response is also a message, and so is each event of a stream. Service parameters, which HTTP requests have in headers,
//! come from the handshake or from the message itself (`wire::jsonrpc::multiplex`).
//!
//! The owner of the connection pulls the messages to send. While it does not pull, no event is read from a log. Requests whose
//! response is a value proceed, and the response waits in the multiplexer: at most one for each open request.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures_util::stream::{self, BoxStream, FuturesUnordered, SelectAll, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use longshore_meter::label::Binding;
use longshore_model::{Error, ErrorKind, Result};
use longshore_wire::extension::{HEADER, HEADER_V03};
use longshore_wire::jsonrpc::{self as envelope, Id, multiplex};
use tokio::time::Instant;

use crate::auth::Caller;
use crate::dispatch::Dispatcher;
use crate::reply::{Body, Response};
use crate::version::{ProtocolVersion, VERSION_HEADER};

/// How many refused messages may wait for their (delayed) error. At the limit, no further message is read until one error is sent.
const MAX_REFUSED: usize = 16;

/// The headers of the handshake that apply to every message.
const INHERITED: [&str; 5] = [VERSION_HEADER, HEADER, HEADER_V03, "traceparent", "tracestate"];

/// The facts that all messages of a connection share.
#[derive(Debug)]
pub(crate) struct MessageHead {
    pub(crate) peer: IpAddr,
    pub(crate) caller: Arc<Caller>,
    /// The label of the metrics.
    pub(crate) binding: Binding,
    /// The version whose base path contains the path of the connection.
    pub(crate) base: Option<ProtocolVersion>,
    /// The request head that is used for each message.
    pub(crate) parts: Parts,
}

impl MessageHead {
    /// `handshake`: the request that opened the connection. `None`: the connection had no handshake.
    pub(crate) fn new(
        peer: IpAddr,
        caller: Arc<Caller>,
        binding: Binding,
        base: Option<ProtocolVersion>,
        handshake: Option<&Parts>,
    ) -> Self {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::POST;
        if let Some(handshake) = handshake {
            // The query may contain the version.
            parts.uri = handshake.uri.clone();
            for name in INHERITED.map(header) {
                for value in handshake.headers.get_all(&name) {
                    parts.headers.append(&name, value.clone());
                }
            }
        }
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { peer, caller, binding, base, parts }
    }

    /// The head for a message that has its own service parameters. `None`: the message has none.
    pub(crate) fn with_parameters(&self, call: Option<&envelope::Request<'_>>) -> Result<Option<Parts>> {
        let Some(given) = call.and_then(|call| call.service_parameters) else { return Ok(None) };
        let mut parts = self.parts.clone();
        for (name, value) in multiplex::service_parameters(given)? {
            let field = || format!("serviceParameters.{name}");
            let value = HeaderValue::try_from(&*value)
                .map_err(|_| Error::invalid(field(), "must be the text of a header"))?;
            set(&mut parts.headers, name, value);
        }
        Ok(Some(parts))
    }
}

/// Replaces all values that the handshake set for this parameter. The two names of the extensions count as one parameter.
fn set(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    if [HEADER, HEADER_V03].contains(&name) {
        headers.remove(HEADER);
        headers.remove(HEADER_V03);
    }
    headers.insert(header(name), value);
}

fn header(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("the names of the parameters are names of headers")
}

/// An error for a message, reported before anything else about the message is checked.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: Error,
    /// Whether the response contains the id of the request. If not, the id is null.
    pub(crate) shows_id: bool,
}

/// The open requests of a connection.
pub(crate) struct Multiplexer {
    dispatcher: Arc<Dispatcher>,
    head: Arc<MessageHead>,
    most: usize,
    /// The open requests by the serial number of their message.
    open: HashMap<u64, OpenCall>,
    next_number: u64,
    /// How many refusals are being answered. They are also among the running calls.
    refused: usize,
    calls: FuturesUnordered<BoxFuture<'static, (u64, std::result::Result<Response, Aborted>)>>,
    streams: SelectAll<BoxStream<'static, (u64, Option<Bytes>)>>,
    /// The messages to send next.
    waiting: VecDeque<Bytes>,
}

struct OpenCall {
    /// The id of the request. `None`: a notification, a refusal, or a request with the id null, none of which can be canceled.
    id: Option<Id>,
    is_refusal: bool,
    abort: AbortHandle,
    /// When the stream reaches its maximum duration.
    stream_end: Option<Instant>,
}

impl Multiplexer {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>, head: Arc<MessageHead>) -> Self {
        Self {
            most: dispatcher.requests_per_connection(),
            dispatcher,
            head,
            open: HashMap::new(),
            next_number: 0,
            refused: 0,
            calls: FuturesUnordered::new(),
            streams: SelectAll::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Whether the next message may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.refused < MAX_REFUSED
    }

    /// Whether no request is open and no message waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// When the first of the open streams reaches its maximum duration.
    pub(crate) fn next_stream_end(&self) -> Option<Instant> {
        self.open.values().filter_map(|open| open.stream_end).min()
    }

    /// Starts to answer a message.
    pub(crate) fn receive(&mut self, message: Bytes) {
        let parsed = envelope::parse(&message);
        let id = match &parsed {
            Ok(call) if call.id.is_none() && multiplex::is_connection_method(&call.method) => {
                if call.method == multiplex::CANCEL {
                    let id = multiplex::canceled(call.params);
                    self.cancel(id.as_ref());
                }
                return;
            }
            Ok(call) => call.id.clone().filter(|id| *id != Id::Null),
            Err(_) => None,
        };
        let has_same_id = id.is_some() && self.open.values().any(|open| open.id == id);
        let refusal = if has_same_id {
            // With the id, the client would take the error for the response to the other request.
            Some(Refusal { error: duplicate(id.as_ref()), shows_id: false })
        } else if self.open.len() - self.refused >= self.most {
            Some(Refusal { error: self.dispatcher.too_many_requests(), shows_id: true })
        } else {
            None
        };
        self.begin(message, id, refusal);
    }

    /// Answers a message that cannot be parsed as a request.
    pub(crate) fn refuse(&mut self, error: Error) {
        self.begin(Bytes::new(), None, Some(Refusal { error, shows_id: false }));
    }

    /// Waits for the next message to send. `None`: a request ended without a message. Dropping the future loses no message.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        if let Some(message) = self.waiting.pop_front() {
            return Some(message);
        }
        tokio::select! {
            biased;
            Some((number, answered)) = self.calls.next() => {
                self.answered(number, answered);
                self.waiting.pop_front()
            }
            Some((number, event)) = self.streams.next() => {
                if event.is_none() {
                    self.open.remove(&number);
                }
                event
            }
            else => pending().await,
        }
    }

    /// Lets requests proceed while no message can be sent. Events are not read.
    pub(crate) async fn work(&mut self) -> Infallible {
        loop {
            match self.calls.next().await {
                Some((number, answered)) => self.answered(number, answered),
                None => pending().await,
            }
        }
    }

    /// Ends a request. A task of the request continues.
    fn cancel(&mut self, id: Option<&Id>) {
        let is_meant = |open: &OpenCall| id.is_some() && open.id.as_ref() == id;
        let Some((_, open)) = self.open.iter_mut().find(|(_, open)| is_meant(open)) else { return };
        open.abort.abort();
        // The id can be used again at once.
        if let Some(id) = open.id.take() {
            self.waiting.push_back(multiplex::ended(&id));
        }
    }

    fn begin(&mut self, message: Bytes, id: Option<Id>, refusal: Option<Refusal>) {
        let number = self.next_number;
        self.next_number += 1;
        let (abort, registration) = AbortHandle::new_pair();
        let is_refusal = refusal.is_some();
        self.refused += usize::from(is_refusal);
        let id = id.filter(|_| !is_refusal);
        self.open.insert(number, OpenCall { id, is_refusal, abort, stream_end: None });
        let (dispatcher, head) = (Arc::clone(&self.dispatcher), Arc::clone(&self.head));
        let answering = async move { dispatcher.answer_message(&head, message, refusal).await };
        let answering = Abortable::new(answering, registration);
        self.calls.push(Box::pin(async move { (number, answering.await) }));
    }

    fn answered(&mut self, number: u64, answered: std::result::Result<Response, Aborted>) {
        let body = answered.map(Response::into_body);
        if let Ok(Body::Events(events)) = body {
            let Some(open) = self.open.get_mut(&number) else { return };
            // The stream gets its own abort handle, because the handle of the call ends with the call.
            let (abort, registration) = AbortHandle::new_pair();
            open.abort = abort;
            open.stream_end = self.dispatcher.bindings().streams.end_of_new();
            let events = Abortable::new(events, registration).map(move |event| (number, Some(event)));
            let end = stream::once(async move { (number, None) });
            self.streams.push(events.chain(end).boxed());
            return;
        }
        if let Some(open) = self.open.remove(&number) {
            self.refused -= usize::from(open.is_refusal);
        }
        match body {
            Ok(Body::Full(message)) if !message.is_empty() => self.waiting.push_back(message),
            _ => {}
        }
    }
}

fn duplicate(id: Option<&Id>) -> Error {
    let id = match id {
        Some(Id::String(text)) => text.as_str(),
        Some(Id::Number(digits)) => digits.as_str(),
        Some(Id::Null) | None => "",
    };
    let text = "A request with this id is open on this connection; give each request an id of its own.";
    Error::new(ErrorKind::InvalidRequest, text).detail("id", id)
}
