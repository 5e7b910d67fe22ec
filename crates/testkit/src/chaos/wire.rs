//! Requests and streams over connections that break. Nothing here panics, whatever is received.

mod grpc;
mod http;
mod websocket;

use std::time::Duration;

use serde_json::Value;

use super::record::Frame;
use super::speaker::{Answering, ClientProtocol, ClientRequest, Transport};

/// Longer than a proxy stalls and a gateway sends nothing. A stream without data for so long is given up.
const SILENCE: Duration = Duration::from_secs(25);
/// The timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CallError {
    /// The connection broke, or the server is overloaded: the client tries again.
    Temporary,
    /// An error of the protocol, with its reason.
    Refused(String),
    /// An answer that no server may give.
    Malformed(String),
}

/// Makes each request on a new connection, so that each meets a fault of its own.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    base: String,
    token: String,
    speaker: ClientProtocol,
    answering: Answering,
    http: reqwest::Client,
}

impl Wire {
    pub(super) fn new(base: &str, token: &str, speaker: ClientProtocol, answering: Answering) -> Self {
        let (base, token) = (base.to_owned(), token.to_owned());
        Self { base, token, speaker, answering, http: http::client() }
    }

    /// A call with a single answer.
    pub(super) async fn call(&self, spelled: &ClientRequest) -> Result<Value, CallError> {
        let calling = async {
            match self.speaker.transport {
                Transport::WebSocket => websocket::call(self, spelled).await,
                Transport::Grpc if !spelled.is_jsonrpc() => grpc::call(self, spelled).await,
                Transport::Http | Transport::UnixSocket | Transport::Grpc => http::call(self, spelled).await,
            }
        };
        tokio::time::timeout(PATIENCE, calling).await.unwrap_or(Err(CallError::Temporary))
    }

    /// A call whose answer is a stream.
    pub(super) async fn stream(
        &self,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Result<Frames, CallError> {
        let opening = async {
            Ok(match self.speaker.transport {
                Transport::WebSocket => {
                    Frames::WebSocket(Box::new(websocket::stream(self, spelled, cursor).await?))
                }
                Transport::Grpc => Frames::Grpc(grpc::stream(self, spelled, cursor).await?),
                Transport::Http | Transport::UnixSocket => {
                    Frames::Http(http::stream(self, spelled, cursor).await?)
                }
            })
        };
        tokio::time::timeout(PATIENCE, opening).await.unwrap_or(Err(CallError::Temporary))
    }

    /// The headers of a request, or the metadata of a call.
    fn headers(&self, cursor: Option<&str>) -> Vec<(&'static str, String)> {
        let mut headers = self.speaker.headers(self.answering);
        headers.extend(cursor.map(|cursor| ("last-event-id", cursor.to_owned())));
        headers.push(("authorization", format!("Bearer {}", self.token)));
        headers
    }
}

fn error(reason: String, text: &str) -> CallError {
    match reason.as_str() {
        "UNAVAILABLE"
        | "TOO_MANY_REQUESTS"
        | "AGENT_UNAVAILABLE"
        | "UPSTREAM_UNREACHABLE"
        // The gateway has just died, and another world's gateway has its port. If a gateway refuses its own clients, their tasks
        // never end, and the checker finds that.
        | "UNAUTHENTICATED" => CallError::Temporary,
        "an error without a reason" => CallError::Malformed(text.to_owned()),
        _ => CallError::Refused(reason),
    }
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) enum Frames {
    Http(http::Frames),
    /// In a box, because it is larger than the others.
    WebSocket(Box<websocket::Frames>),
    Grpc(grpc::Frames),
}

/// The next item of a stream.
#[derive(Debug)]
pub(super) enum Next {
    Frame(Frame),
    /// The server ended the stream.
    End {
        may_return: bool,
    },
    Failed(CallError),
}

impl Frames {
    pub(super) async fn next(&mut self) -> Next {
        let reading = async {
            match self {
                Self::Http(frames) => frames.next().await,
                Self::WebSocket(frames) => frames.next().await,
                Self::Grpc(frames) => frames.next().await,
            }
        };
        tokio::time::timeout(SILENCE, reading).await.unwrap_or(Next::Failed(CallError::Temporary))
    }
}
