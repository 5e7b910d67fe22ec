//! Calls of JSON-RPC as messages: on a WebSocket that is opened for the call, or on the standard input and output.
//!
//! A call is written as a request of HTTP. Its credential goes into the handshake, and its other headers into the message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Request, StatusCode};
use longshore_model::EventId;
use longshore_testkit::websocket::{self, Received, WebSocket};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, WriteHalf};
use tokio::sync::mpsc;

use super::route::{Connection, Route};
use super::{Answer, Frame, PATIENCE};

/// The headers as service parameters, under the names that they have there.
const PARAMETERS: [(&str, &str); 4] = [
    ("a2a-version", "A2A-Version"),
    ("a2a-extensions", "A2A-Extensions"),
    ("last-event-id", "Last-Event-ID"),
    ("traceparent", "traceparent"),
];

/// A call whose request was sent.
pub(crate) enum Messages {
    WebSocket(Box<WebSocket<Box<dyn Connection>>>),
    Stdio(mpsc::Receiver<Value>),
    /// The handshake was refused.
    Refused(Answer),
}

/// The events of a stream. Dropping it closes a WebSocket.
pub(crate) struct MessageEvents(Messages);

/// The other end of the gateway's standard input and output.
#[derive(Clone)]
pub(crate) struct Stdio(Arc<StdioClient>);

struct StdioClient {
    input: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    next_id: AtomicU64,
    /// The calls that wait for messages, by the id of their request.
    waiting: Mutex<HashMap<u64, mpsc::Sender<Value>>>,
}

/// Sends the request of a call, if its route carries messages.
pub(crate) async fn begin(route: &Route, request: &Request<Bytes>) -> Option<Messages> {
    match route {
        Route::WebSocket(_) => Some(open(route, request).await),
        Route::Stdio(stdio) => Some(Messages::Stdio(stdio.send(message(request)).await)),
        _ => None,
    }
}

/// The message that says what a request of HTTP says.
fn message(request: &Request<Bytes>) -> Value {
    let mut message: Value = serde_json::from_slice(request.body()).expect("a call by JSON-RPC");
    for (header, parameter) in PARAMETERS {
        if let Some(value) = request.headers().get(header) {
            message["serviceParameters"][parameter] = json!(value.to_str().unwrap());
        }
    }
    message
}

async fn open(route: &Route, request: &Request<Bytes>) -> Messages {
    let base = request.uri().path().trim_end_matches('/');
    let url = format!("ws://{}{base}/ws", request.uri().authority().unwrap());
    let credential = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap());
    let headers: Vec<_> = credential.map(|value| ("authorization", value)).into_iter().collect();
    let connection = route.connect().await.unwrap();
    match WebSocket::open(connection, websocket::handshake(&url, &headers)).await {
        Ok(mut socket) => {
            socket.send(&message(request)).await;
            Messages::WebSocket(Box::new(socket))
        }
        Err(refused) => {
            let (parts, body) = refused.into_parts();
            let body = body.to_string().into();
            Messages::Refused(Answer { status: parts.status, headers: parts.headers, body })
        }
    }
}

impl Messages {
    async fn receive(&mut self) -> Option<Value> {
        let receiving = async {
            match self {
                Self::WebSocket(socket) => match socket.next().await {
                    Received::Message(message) => Some(message),
                    Received::Closed(_) | Received::Cut => None,
                },
                Self::Stdio(messages) => messages.recv().await,
                Self::Refused(_) => panic!("the handshake was refused"),
            }
        };
        tokio::time::timeout(PATIENCE, receiving).await.expect("a message or the end")
    }

    /// The response, as HTTP would carry it.
    pub(crate) async fn answer(mut self) -> Answer {
        if let Self::Refused(answer) = self {
            return answer;
        }
        let mut body = self.receive().await.expect("a response");
        // Responses have no headers. An error says its version by its format, and a result by its spelling.
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        body["id"] = json!(1);
        Answer { status: StatusCode::OK, headers, body: body.to_string().into() }
    }

    /// The response must be a stream.
    pub(crate) fn events(self) -> MessageEvents {
        MessageEvents(self)
    }
}

impl MessageEvents {
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut data = self.0.receive().await?;
        if data["method"] == "$/requestEnded" {
            return None;
        }
        let raw = data.to_string();
        let message = data.as_object_mut().unwrap();
        let cursor = message.remove("eventId").map(|id| id.as_str().unwrap().to_owned());
        message.insert("id".to_owned(), json!(1));
        let id = cursor.as_deref().map(|id| EventId::parse(id).unwrap().seq.0);
        Some(Frame { id, cursor, event: None, data, raw })
    }
}

impl Stdio {
    /// Talks to a gateway at the other end of this pipe.
    #[expect(clippy::disallowed_methods, reason = "the client is no task of the gateway")]
    pub(crate) fn new(pipe: DuplexStream) -> Self {
        let (output, input) = tokio::io::split(pipe);
        let client = Arc::new(StdioClient {
            input: tokio::sync::Mutex::new(input),
            next_id: AtomicU64::new(1),
            waiting: Mutex::default(),
        });
        let reader = Arc::clone(&client);
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).expect("JSON in each line");
                let id = message.get("id").unwrap_or(&message["params"]["id"]).as_u64();
                let waiting = id.and_then(|id| reader.waiting.lock().unwrap().get(&id).cloned());
                // A call that was dropped waits no more.
                if let Some(waiting) = waiting {
                    let _ = waiting.send(message).await;
                }
            }
            reader.waiting.lock().unwrap().clear();
        });
        Self(client)
    }

    async fn send(&self, mut message: Value) -> mpsc::Receiver<Value> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(1024);
        self.0.waiting.lock().unwrap().insert(id, sender);
        message["id"] = json!(id);
        self.0.input.lock().await.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        receiver
    }
}

impl std::fmt::Debug for Stdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdio").finish_non_exhaustive()
    }
}
