//! Sockets: listening, connections, faults, and the body of `/event`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use longshore_opencode_shapes::WEB_PAGE;
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, failure};
use super::fault::Fault;
use super::global;
use super::prompting;
use super::request_log::LoggedRequest;
use super::routes;
use super::state::Shared;
use super::streams::{Chunk, Connection, heartbeat};

/// An error of the service, on which hyper closes the connection without an answer.
#[derive(Debug)]
struct ConnectionCut;

impl fmt::Display for ConnectionCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fault cuts this connection")
    }
}

impl std::error::Error for ConnectionCut {}

/// Serves until the server is killed.
pub(super) fn serve(shared: &Arc<Shared>, listener: TcpListener) {
    let accepting = Arc::clone(shared);
    let life = shared.change(|state| {
        state.listening = true;
        state.life.clone()
    });
    shared.tasks.spawn("fake opencode", async move {
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((socket, _)) = accepted else { continue };
                    let (shared, life) = (Arc::clone(&accepting), life.clone());
                    accepting.tasks.spawn("fake opencode connection", converse(shared, socket, life));
                }
                () = life.cancelled() => break,
            }
        }
        drop(listener);
        accepting.change(|state| state.listening = false);
    });
}

/// Binds the address. `SO_REUSEADDR` allows the port of a killed server, which its closed connections keep for a moment, and a second
/// socket with the port, unless both listen.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn converse(shared: Arc<Shared>, socket: TcpStream, life: CancellationToken) {
    let service = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    tokio::select! {
        // Tests break connections on purpose.
        _ = connection => {}
        () = life.cancelled() => {}
    }
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, ConnectionCut> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(|_| ConnectionCut)?;
    let target = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    shared.lock().log.arrive(head.method.as_str(), &target);
    let path = head.uri.path().to_owned();
    let query = read_query(head.uri.query().unwrap_or_default());
    let logged = LoggedRequest {
        method: head.method.to_string(),
        directory: directory(&shared, &query, &head.headers),
        body: read_body(&body),
        traceparent: head.headers.get("traceparent").and_then(|value| Some(value.to_str().ok()?.to_owned())),
        while_busy: false,
        is_typed: false,
        target,
        path,
        query,
    };
    let fault = shared.fault(&logged.method, &logged.path);
    match &fault {
        Some(Fault::CutBefore) => return Err(ConnectionCut),
        Some(Fault::Status(status)) => return Ok(json_response(&failure(*status))),
        Some(Fault::Html) => return Ok(page()),
        Some(Fault::Body(body)) => return Ok(with_body(StatusCode::OK, "application/json", (*body).into())),
        Some(Fault::Answer(status, body)) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(with_body(status, "application/json", (*body).into()));
        }
        Some(Fault::Hang) => std::future::pending::<()>().await,
        Some(Fault::Hold(gate)) => gate.pass().await,
        Some(Fault::Delay(duration)) => tokio::time::sleep(*duration).await,
        Some(Fault::CutAfter) | None => {}
    }
    if let Some(expected) = &shared.authorization
        && head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) != Some(expected)
    {
        let mut response = json_response(&failure(401));
        let challenge = http::HeaderValue::from_static("Basic realm=\"Secure Area\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        return Ok(response);
    }
    let more = link_before(&head.headers, &logged);
    let answer = routes::answer(&shared, logged).await;
    if matches!(fault, Some(Fault::CutAfter)) && !matches!(answer, Answer::Events(_)) {
        if let Answer::Json { stored: Some((session, message)), .. } = &answer {
            prompting::until_stored(&shared, session, message).await;
        }
        return Err(ConnectionCut);
    }
    Ok(match answer {
        Answer::Events(connection) => events(shared, connection),
        Answer::Page => page(),
        Answer::Messages { page, cursor } => {
            let mut response = with_body(StatusCode::OK, "application/json", Value::Array(page).to_string());
            if let Some(cursor) = cursor {
                let link = format!("<{more}&before={cursor}>; rel=\"next\"");
                for (name, value) in [("x-next-cursor", cursor), ("link", link)] {
                    if let Ok(value) = http::HeaderValue::from_str(&value) {
                        response.headers_mut().insert(name, value);
                    }
                }
            }
            response
        }
        Answer::Raw { status, kind, body } => {
            with_body(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), kind, body)
        }
        answer @ Answer::Json { .. } => json_response(&answer),
    })
}

/// The address of the page before this one, without its cursor.
fn link_before(headers: &HeaderMap, request: &LoggedRequest) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let query = request.target.split_once('?').map_or("", |(_, query)| query).split('&');
    let query: Vec<&str> = query.filter(|pair| !pair.starts_with("before=")).collect();
    format!("http://{host}{}?{}", request.path, query.join("&"))
}

/// The directory of a request: the query wins over the header. OpenCode decodes the value in the query twice.
fn directory(shared: &Shared, query: &[(String, String)], headers: &HeaderMap) -> String {
    let in_query = query.iter().find(|(key, _)| key == "directory").map(|(_, value)| value.as_str());
    let in_header = headers.get("x-opencode-directory").and_then(|value| value.to_str().ok());
    let Some(named) = in_query.or(in_header) else { return shared.directory.clone() };
    let decoded = percent_decode_str(named).decode_utf8_lossy().into_owned();
    std::fs::canonicalize(&decoded).map_or(decoded, |path| path.to_string_lossy().into_owned())
}

fn read_query(query: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://fake/?{query}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

fn read_body(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into())
}

fn json_response(answer: &Answer) -> Response<Body> {
    let Answer::Json { status, body, .. } = answer else { return page() };
    let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match body {
        Value::Null => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        }
        body => with_body(status, "application/json", body.to_string()),
    }
}

fn page() -> Response<Body> {
    with_body(StatusCode::OK, "text/html;charset=UTF-8", WEB_PAGE.to_owned())
}

fn with_body(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// The body of `/event`: events, and heartbeats in between.
fn events(shared: Arc<Shared>, connection: Connection) -> Response<Body> {
    let chunks = stream::unfold(Some((shared, connection)), |state| async move {
        let (shared, mut connection) = state?;
        loop {
            tokio::select! {
                biased;
                chunk = connection.chunks.recv() => return match chunk {
                    Some(Chunk::Data(data)) => Some((Ok(data), Some((shared, connection)))),
                    Some(Chunk::Reset) => {
                        // Hyper flushes when the body is pending; the earlier chunks are to arrive.
                        tokio::task::yield_now().await;
                        Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), None))
                    }
                    None => None,
                },
                () = tokio::time::sleep(shared.heartbeat) => {
                    if !connection.muted.load(Ordering::Relaxed) {
                        let beat = if connection.is_global { global::heartbeat() } else { heartbeat() };
                        return Some((Ok::<Bytes, io::Error>(beat), Some((shared, connection))));
                    }
                }
            }
        }
    });
    let mut response = with_body(StatusCode::OK, "text/event-stream", String::new());
    *response.body_mut() = Body::from_stream(chunks);
    response
}
