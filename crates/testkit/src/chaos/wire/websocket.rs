//! JSON-RPC in the messages of a WebSocket.

use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::{CallError, Next, Wire, error};
use crate::chaos::record::Frame;
use crate::chaos::speaker::{ClientProtocol, ClientRequest};

/// The cursor, which HTTP has in a header.
const CURSOR: &str = "Last-Event-ID";

pub(super) async fn call(wire: &Wire, spelled: &ClientRequest) -> Result<Value, CallError> {
    let mut frames = send(wire, spelled, None).await?;
    match frames.next().await {
        Next::Frame(frame) => Ok(frame.json),
        Next::End { .. } => Err(CallError::Malformed("a request that ended without a response".to_owned())),
        Next::Failed(error) => Err(error),
    }
}

pub(super) async fn stream(
    wire: &Wire,
    spelled: &ClientRequest,
    cursor: Option<&str>,
) -> Result<Frames, CallError> {
    let mut frames = send(wire, spelled, cursor).await?;
    match frames.next().await {
        Next::Failed(error) => Err(error),
        first => Ok(Frames { first: Some(first), ..frames }),
    }
}

async fn send(wire: &Wire, spelled: &ClientRequest, cursor: Option<&str>) -> Result<Frames, CallError> {
    let mut socket = open(wire).await?;
    let mut body = spelled.body.clone().unwrap_or_default();
    if let Some(cursor) = cursor {
        body["serviceParameters"] = json!({CURSOR: cursor});
    }
    socket.send(Message::text(body.to_string())).await.map_err(|error| of_socket(&error))?;
    Ok(Frames { speaker: wire.speaker, socket, first: None })
}

async fn open(wire: &Wire) -> Result<WebSocketStream<TcpStream>, CallError> {
    let place = wire.base.trim_start_matches("http://");
    let mut handshake =
        format!("ws://{place}/ws").into_client_request().map_err(|error| of_socket(&error))?;
    for (name, value) in wire.headers(None) {
        let value = HeaderValue::try_from(value).map_err(|error| CallError::Malformed(error.to_string()))?;
        handshake.headers_mut().insert(HeaderName::from_static(name), value);
    }
    let stream = TcpStream::connect(place).await.map_err(|_| CallError::Temporary)?;
    match client_async(handshake, stream).await {
        Ok((socket, _)) => Ok(socket),
        // A gateway that starts or that is overloaded; or another world's gateway has the port, see [`error`].
        Err(Error::Http(response)) if matches!(response.status().as_u16(), 401 | 429 | 503) => {
            Err(CallError::Temporary)
        }
        Err(Error::Http(response)) => Err(CallError::Malformed(format!("the handshake: {response:?}"))),
        Err(error) => Err(of_socket(&error)),
    }
}

/// The messages for a request on a WebSocket of its own.
#[derive(Debug)]
pub(in crate::chaos) struct Frames {
    speaker: ClientProtocol,
    socket: WebSocketStream<TcpStream>,
    /// The first item, which has been read already.
    first: Option<Next>,
}

impl Frames {
    pub(super) async fn next(&mut self) -> Next {
        if let Some(first) = self.first.take() {
            return first;
        }
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return self.message(&text),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Away => {
                    return Next::End { may_return: true };
                }
                Some(Ok(other)) => return malformed(&format!("not a message of JSON-RPC: {other:?}")),
                Some(Err(error)) => return Next::Failed(of_socket(&error)),
                None => return Next::Failed(CallError::Temporary),
            }
        }
    }

    fn message(&self, text: &str) -> Next {
        let Ok(json) = serde_json::from_str::<Value>(text) else {
            return malformed(&format!("a message that is not JSON: {text}"));
        };
        if json["method"] == "$/requestEnded" {
            return Next::End { may_return: false };
        }
        match self.speaker.opened(&json) {
            Ok(result) => {
                let id = json["eventId"].as_str().map(str::to_owned);
                Next::Frame(Frame { id, json: result })
            }
            Err(reason) => Next::Failed(error(reason, text)),
        }
    }
}

fn malformed(what: &str) -> Next {
    Next::Failed(CallError::Malformed(what.to_owned()))
}

/// A connection that breaks is no fault of the server. Frames that cannot be read are.
fn of_socket(error: &Error) -> CallError {
    match error {
        // The head of the response to the handshake was cut.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete) => {
            CallError::Temporary
        }
        Error::Protocol(_) | Error::Capacity(_) | Error::Utf8(_) | Error::Url(_) | Error::HttpFormat(_) => {
            CallError::Malformed(format!("a WebSocket: {error}"))
        }
        _ => CallError::Temporary,
    }
}
