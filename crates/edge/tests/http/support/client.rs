//! A client that uses one connection for each request and adds nothing to it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore_model::EventId;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::PATIENCE;
use super::grpc::{Asked, GrpcEvents};
use super::messages::{self, MessageEvents};
use super::route::{Connection, Route};

#[derive(Clone)]
pub(crate) struct Call {
    route: Route,
    request: Request<Bytes>,
    http2: bool,
    /// The operation, for a route without paths.
    asked: Option<Asked>,
}

impl Call {
    pub(crate) fn new(address: SocketAddr, verb: &str, path: &str) -> Self {
        let builder = Request::builder().method(verb).uri(format!("http://{address}{path}"));
        Self {
            route: Route::Tcp(address),
            request: builder.body(Bytes::new()).unwrap(),
            http2: false,
            asked: None,
        }
    }

    /// Uses another way to the gateway than TCP.
    pub(crate) fn over(self, route: &Route) -> Self {
        Self { route: route.clone(), ..self }
    }

    pub(crate) fn asking(self, asked: Asked) -> Self {
        Self { asked: Some(asked), ..self }
    }

    /// Sets a header. An empty value removes it.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().remove(name);
        if !value.is_empty() {
            self.request.headers_mut().insert(name, value.parse().unwrap());
        }
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Uses another host name than the gateway's address.
    pub(crate) fn under(mut self, authority: &str) -> Self {
        let path = self.request.uri().path_and_query().unwrap();
        *self.request.uri_mut() = format!("http://{authority}{path}").parse().unwrap();
        self
    }

    pub(crate) fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    pub(crate) async fn send(self) -> Answer {
        if let (Route::Grpc(service), Some(asked)) = (&self.route, &self.asked) {
            return service.answer(asked, &self.request).await;
        }
        if let Some(messages) = messages::begin(&self.route, &self.request).await {
            return messages.answer().await;
        }
        let response = self.open().await;
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.expect("the answer ends").unwrap();
        Answer { status: parts.status, headers: parts.headers, body: body.to_bytes() }
    }

    /// The head of the response, and its body to be read in pieces.
    pub(crate) async fn pieces(self) -> (http::response::Parts, Pieces) {
        let (parts, body) = self.open().await.into_parts();
        (parts, Pieces(body))
    }

    /// The response must be a stream.
    pub(crate) async fn stream(self) -> Events {
        if let (Route::Grpc(service), Some(asked)) = (&self.route, &self.asked) {
            let source = Source::Grpc(service.events(asked, &self.request).await);
            return Events { source, text: String::new() };
        }
        if let Some(messages) = messages::begin(&self.route, &self.request).await {
            return Events { source: Source::Messages(messages.events()), text: String::new() };
        }
        Events::of(self.open().await)
    }

    async fn open(self) -> http::Response<Incoming> {
        tokio::time::timeout(PATIENCE, self.exchange()).await.expect("an answer begins")
    }

    async fn exchange(self) -> http::Response<Incoming> {
        let connection = self.route.connect().await.unwrap();
        self.exchange_on(connection).await
    }

    /// Sends the request on this connection, and waits until the response begins.
    #[expect(clippy::disallowed_methods, reason = "the client's connection is no task of the gateway")]
    pub(crate) async fn exchange_on(self, connection: Box<dyn Connection>) -> http::Response<Incoming> {
        let io = TokioIo::new(connection);
        let mut request = self.request.map(Full::new);
        if self.http2 {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let host = request.uri().authority().unwrap().as_str().parse().unwrap();
            request.headers_mut().insert("host", host);
            let path = request.uri().path_and_query().unwrap().clone();
            *request.uri_mut() = path.into();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    }
}

/// A connection that stays open until the server closes it.
pub(crate) struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Http2 {
    #[expect(clippy::disallowed_methods, reason = "the client's connection is no task of the gateway")]
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // A small window, so that the gateway notices soon that a response is not read.
        builder.initial_stream_window_size(64 * 1024);
        let (sender, connection) = builder.handshake(io).await.unwrap();
        Self { sender, connection: tokio::spawn(connection) }
    }

    /// Sends a request and waits until the response begins.
    pub(crate) async fn open(&mut self, call: Call) -> http::Response<Incoming> {
        let sent = self.sender.send_request(call.request.map(Full::new));
        tokio::time::timeout(PATIENCE, sent).await.expect("an answer begins").unwrap()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_finished()
    }

    /// Waits until the server has closed the connection.
    pub(crate) async fn closed(self) {
        // A client without a sender closes by itself.
        let Self { sender, connection } = self;
        let ended = tokio::time::timeout(PATIENCE, connection).await.expect("the server closes");
        // A reset shows as clearly as an end of file that the server has closed.
        let _ = ended.unwrap();
        drop(sender);
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A body that is read in pieces.
pub(crate) struct Pieces(Incoming);

impl Pieces {
    /// The next piece. `None` at the end, an error if the response was cut.
    pub(crate) async fn next(&mut self) -> Option<hyper::Result<Bytes>> {
        let frame = tokio::time::timeout(PATIENCE, self.0.frame()).await.expect("a piece or the end")?;
        Some(frame.map(|frame| frame.into_data().unwrap()))
    }
}

/// A stream of events. Dropping it closes the connection.
pub(crate) struct Events {
    source: Source,
    text: String,
}

enum Source {
    Http(Incoming),
    Messages(MessageEvents),
    Grpc(GrpcEvents),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Frame {
    /// The number of the event.
    pub(crate) id: Option<u64>,
    /// The whole id, as `Last-Event-ID` takes it.
    pub(crate) cursor: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: Value,
    /// The frame as received, without the blank line.
    pub(crate) raw: String,
}

impl Events {
    /// The response must be a stream.
    pub(crate) fn of(answer: http::Response<Incoming>) -> Self {
        let (parts, body) = answer.into_parts();
        assert_eq!(parts.status, StatusCode::OK);
        assert_eq!(parts.headers["content-type"], "text/event-stream");
        assert_eq!(parts.headers["cache-control"], "no-store");
        assert_eq!(parts.headers["x-accel-buffering"], "no");
        Self { source: Source::Http(body), text: String::new() }
    }

    /// The next frame with data, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        match &mut self.source {
            Source::Http(_) => {}
            Source::Messages(events) => return events.next().await,
            Source::Grpc(events) => return events.next().await,
        }
        loop {
            let raw = self.next_raw().await?;
            if let Some(frame) = parse(&raw) {
                return Some(frame);
            }
        }
    }

    /// The frames that arrived before the stream was cut. Only a stream of gRPC tells a cut from an end.
    pub(crate) async fn until_cut(&mut self) -> Vec<Frame> {
        let Source::Grpc(events) = &mut self.source else { panic!("not a stream of gRPC") };
        let mut frames = Vec::new();
        while let Ok(frame) = events.try_next().await.expect("the stream does not look complete") {
            frames.push(frame);
        }
        frames
    }

    /// The next block of lines, including comments.
    pub(crate) async fn next_raw(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let Source::Http(body) = &mut self.source else { panic!("messages are no lines") };
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("an event or the end");
            let Some(frame) = frame else {
                assert_eq!(self.text, "", "a stream ends at the end of a frame");
                return None;
            };
            let data = frame.expect("the stream is not cut").into_data().unwrap();
            self.text.push_str(str::from_utf8(&data).unwrap());
        }
    }

    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn parse(raw: &str) -> Option<Frame> {
    let field = |name: &str| raw.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let data = serde_json::from_str(&field("data: ")?).expect("one line of JSON");
    let cursor = field("id: ");
    let id = cursor.as_deref().map(|id| EventId::parse(id).unwrap().seq.0);
    Some(Frame { id, cursor, event: field("event: "), data, raw: raw.to_owned() })
}
