//! One HTTP/1.1 connection. It has no background task, so it makes progress only while a request waits for it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::BoxFuture;

/// The most bytes of a response body that are read so that the connection can be reused. After a longer body, the connection is
/// closed.
const MAX_DRAINED_BYTES: usize = 64 * 1024;

/// The largest head of a response, in bytes. A longer one is an error.
const MAX_HEAD_BYTES: usize = 64 * 1024;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// The I/O of the connection. `None`: the connection has ended.
    driver: Option<Driver>,
}

/// The connection's I/O. It reads and writes only while it is polled.
type Driver = BoxFuture<'static, hyper::Result<()>>;

pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// Why there is no response.
pub(crate) enum Failure {
    /// The connection had already ended, so the request was not sent. The value is the request.
    Unsent(Box<Request<Full<Bytes>>>),
    Timeout,
    Broken(hyper::Error),
}

impl Connection {
    pub(crate) async fn open(stream: Box<dyn Stream>) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEAD_BYTES);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(connection)) })
    }

    /// Sends a request and reads the response. Only the status counts as the answer: if the body is slow, too long or cut off, the
    /// call still succeeds, but the connection is not reused.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        response_timeout: Duration,
        body_timeout: Duration,
    ) -> Result<Head, Failure> {
        let Self { sender, driver } = self;
        let sending = sender.try_send_request(request);
        let answered = tokio::time::timeout(response_timeout, driven(sending, driver)).await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(mut error)) => {
                *driver = None;
                return Err(match error.take_message() {
                    Some(request) => Failure::Unsent(Box::new(request)),
                    None => Failure::Broken(error.into_error()),
                });
            }
            Err(_) => {
                *driver = None;
                return Err(Failure::Timeout);
            }
        };
        let (parts, mut body) = response.into_parts();
        let drain = async {
            let mut left = MAX_DRAINED_BYTES;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                left = left.checked_sub(length).ok_or(())?;
            }
            // Wait until hyper has decided after the end of the body whether the connection stays open.
            sender.ready().await.map_err(drop)
        };
        let drained = tokio::time::timeout(body_timeout, driven(drain, driver)).await;
        if !matches!(drained, Ok(Ok(()))) {
            *driver = None;
        }
        Ok(Head { status: parts.status, headers: parts.headers })
    }

    /// Whether the connection can take another request. Detects that the receiver has closed it in the meantime.
    pub(crate) fn is_open(&mut self) -> bool {
        self.driver.take_if(|driver| driver.now_or_never().is_some());
        self.driver.is_some()
    }
}

/// Waits for `work`, and drives the connection meanwhile.
async fn driven<T>(work: impl Future<Output = T>, driver: &mut Option<Driver>) -> T {
    let mut work = std::pin::pin!(work);
    if let Some(open) = driver {
        tokio::select! {
            // Poll the response first, because a receiver may answer and close at once.
            biased;
            done = &mut work => return done,
            _ = open => *driver = None,
        }
    }
    // The connection has ended, but `work` can still get what was read before.
    work.await
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.driver.is_some()).finish_non_exhaustive()
    }
}
