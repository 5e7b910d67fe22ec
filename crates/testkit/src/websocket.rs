//! A client of the WebSocket binding that hides nothing: the messages are as received.

use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderName, HeaderValue, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// An open WebSocket.
#[derive(Debug)]
pub struct WebSocket<S> {
    pub socket: WebSocketStream<S>,
    /// The head of the response to the handshake.
    pub response: http::Response<()>,
}

/// A refused handshake: the status, the headers and the body.
pub type Refused = http::Response<Value>;

/// The close frame of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    pub code: u16,
    pub reason: String,
}

/// What a client gets next.
#[derive(Clone, PartialEq, Debug)]
pub enum Received {
    Message(Value),
    Closed(Closed),
    /// The connection ended without a close frame.
    Cut,
}

impl Received {
    /// The message. Panics if the socket has ended.
    pub fn message(self) -> Value {
        match self {
            Self::Message(message) => message,
            ended => panic!("no message: {ended:?}"),
        }
    }

    /// The close frame. Panics if there is none.
    pub fn closed(self) -> (u16, String) {
        match self {
            Self::Closed(Closed { code, reason }) => (code, reason),
            other => panic!("not closed: {other:?}"),
        }
    }
}

/// A request for a handshake at `url`, to which headers can be added.
pub fn handshake(url: &str, headers: &[(&'static str, &str)]) -> Request<()> {
    let mut request = url.into_client_request().expect("a URL of a WebSocket");
    for (name, value) in headers {
        let value = HeaderValue::from_str(value).expect("the value of a header");
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
    request
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Opens a WebSocket on a connection. The error is the response of a server that refuses it.
    pub async fn open(stream: S, handshake: Request<()>) -> Result<Self, Box<Refused>> {
        match client_async(handshake, stream).await {
            Ok((socket, response)) => Ok(Self { socket, response: response.map(|_| ()) }),
            Err(tungstenite::Error::Http(response)) => Err(Box::new(response.map(|body| {
                let text = body.unwrap_or_default();
                serde_json::from_slice(&text).unwrap_or_else(|_| String::from_utf8_lossy(&text).into())
            }))),
            Err(error) => panic!("the handshake failed: {error}"),
        }
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.expect("the server takes the message");
    }

    /// Sends a request.
    pub async fn request(&mut self, id: &Value, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    /// Ends a request.
    pub async fn cancel(&mut self, id: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": id}})).await;
    }

    /// What the server sends next, apart from pings.
    pub async fn next(&mut self) -> Received {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    return Received::Message(serde_json::from_str(&text).expect("JSON in each message"));
                }
                Some(Ok(Message::Close(frame))) => {
                    let frame = frame.expect("the server says why it closes");
                    let reason = frame.reason.as_str().to_owned();
                    return Received::Closed(Closed { code: frame.code.into(), reason });
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("not text: {other:?}"),
                Some(Err(_)) | None => return Received::Cut,
            }
        }
    }
}
