//! The HTTP/1.1 server on loopback.

mod anthropic_sse;
mod connection;
mod reply_writer;
mod sse;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longshore_engine::Tasks;
use serde::Serialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::connection::{Connection, ConnectionEnd};
use self::reply_writer::{Api, ReplyWriter};
use crate::anthropic::MessagesRequest;
use crate::journal::Journal;
use crate::reply;
use crate::request::{ChatRequest, ParsedRequest, Session};

/// A larger body is answered with 413. OpenCode takes prompts of 30 MB.
const MAX_BODY: usize = 64 << 20;

/// Further connections are accepted when one ends.
const MAX_CONNECTIONS: usize = 1_024;

/// The models that `/v1/models` lists. They behave alike.
pub const MODELS: [&str; 3] = ["demo", "demo-small", "demo-tiny"];

type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// A demo model that runs in the background until this is dropped.
#[derive(Debug)]
pub struct DemoModel {
    address: SocketAddr,
    journal: Arc<Journal>,
    _stop: DropGuard,
}

/// Ends a reply on purpose, together with its connection.
#[derive(Debug)]
struct BrokenOff;

impl DemoModel {
    /// Listens on `address` (port 0 chooses one), which must be on loopback: the model has no authentication.
    pub async fn start(address: SocketAddr, tasks: &Tasks) -> io::Result<Self> {
        let listener = TcpListener::bind(loopback(address)?).await?;
        let address = listener.local_addr()?;
        let journal = Arc::new(Journal::default());
        let stop = tasks.stopping().child_token();
        tasks.spawn("demo-model", serve(listener, Arc::clone(&journal), tasks.clone(), stop.clone()));
        Ok(Self { address, journal, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for an OpenAI-compatible client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The log of the requests.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }
}

/// Serves until `stop`, which also ends open replies.
pub async fn serve(listener: TcpListener, journal: Arc<Journal>, tasks: Tasks, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accept = async {
            let permit = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (journal, stop) = (Arc::clone(&journal), stop.clone());
                tasks.spawn("demo-model-connection", async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = converse(stream, &journal) => {}
                    }
                    drop(permit);
                });
            }
            // The peer may have left, or the process may be out of file descriptors: neither lasts.
            Err(error) => {
                tracing::debug!(%error, "the demo model could not accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the script breaks the reply off")
    }
}

impl std::error::Error for BrokenOff {}

fn loopback(address: SocketAddr) -> io::Result<SocketAddr> {
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the demo model listens on loopback only, and {} is not: use 127.0.0.1", address.ip()),
    ))
}

/// Answers the requests of one connection until either side ends it.
async fn converse(stream: TcpStream, journal: &Arc<Journal>) {
    // Deltas are small and must be sent one by one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the demo model cannot switch off Nagle's algorithm");
    }
    let ending = ConnectionEnd::default();
    let service = service_fn(|request| {
        let (journal, ending) = (Arc::clone(journal), ending.clone());
        async move { Ok::<_, Infallible>(answer(request, journal, ending).await) }
    });
    let result = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(Connection::new(stream, ending.clone())), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(%error, "a connection to the demo model ended early");
    }
}

async fn answer(request: Request<Incoming>, journal: Arc<Journal>, ending: ConnectionEnd) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/_health") => {
            let counts = journal.counts();
            json_response(
                StatusCode::OK,
                &json!({"ok": true, "requests": counts.requests, "active": counts.active}),
            )
        }
        (&Method::GET, "/_log") => json_response(StatusCode::OK, &journal.copy()),
        (&Method::POST, "/_reset") => {
            journal.reset();
            json_response(StatusCode::OK, &json!({"ok": true}))
        }
        (&Method::GET, "/v1/models") => {
            let models = MODELS.map(
                |id| json!({"id": id, "object": "model", "created": sse::CREATED, "owned_by": "longshore"}),
            );
            json_response(StatusCode::OK, &json!({"object": "list", "data": models}))
        }
        (&Method::POST, "/v1/chat/completions") => chat(Api::OpenAi, request, &journal, ending).await,
        (&Method::POST, "/v1/messages") => chat(Api::Anthropic, request, &journal, ending).await,
        (&Method::POST, "/v1/messages/count_tokens") => {
            json_response(StatusCode::OK, &json!({"input_tokens": 100}))
        }
        (method, path) => {
            error_response(StatusCode::NOT_FOUND, &format!("The demo model has no {method} {path}."))
        }
    }
}

async fn chat(
    api: Api,
    request: Request<Incoming>,
    journal: &Arc<Journal>,
    ending: ConnectionEnd,
) -> Response<Body> {
    let active = journal.begin();
    let session = session(request.headers());
    let too_large = || error_response(StatusCode::PAYLOAD_TOO_LARGE, "The request is larger than 64 MiB.");
    if request.body().size_hint().lower() > MAX_BODY as u64 {
        return too_large();
    }
    let body = match Limited::new(request.into_body(), MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return too_large(),
        Err(error) => {
            return error_response(StatusCode::BAD_REQUEST, &format!("The request broke off: {error}."));
        }
    };
    let request: serde_json::Result<ChatRequest> = match api {
        Api::OpenAi => serde_json::from_slice(&body),
        Api::Anthropic => {
            serde_json::from_slice(&body).and_then(|request: MessagesRequest| request.into_chat())
        }
    };
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            return error_response(StatusCode::BAD_REQUEST, &format!("No chat request: {error}."));
        }
    };
    let asked = ParsedRequest::new(&request, session);
    let attempt = journal.record(&asked);
    ReplyWriter::new(api, &asked, reply::choose(&asked, attempt), active, ending).respond().await
}

/// OpenCode's session id, which is in one of two headers.
fn session(headers: &http::HeaderMap) -> Session {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Session {
        id: text("x-session-affinity").or_else(|| text("x-session-id")).unwrap_or_default(),
        parent: text("x-parent-session-id"),
    }
}

fn error_response(status: StatusCode, message: &str) -> Response<Body> {
    json_response(status, &json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(body).expect("a value of strings, numbers and lists has a JSON form");
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests;
