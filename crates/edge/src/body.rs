//! Reads the body of a request, with limits on size and time.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use longshore_model::{Error, ErrorKind, Result};

use crate::limits::HeldBody;

/// The limits for reading a request body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// A longer body is refused with 413. 0: no limit.
    pub(crate) max_bytes: usize,
    /// A body that has not arrived completely after this time is refused, so that a slow sender cannot hold a connection forever.
    pub(crate) timeout: Duration,
}

/// After a body is refused, at most this many further bytes are read and discarded. So a client that is still sending can read the
/// response instead of seeing a connection reset. Then the connection is closed.
const DRAINED_BYTES: usize = 1024 * 1024;

/// How long the rest of a refused body is read at most.
const DRAINED_FOR: Duration = Duration::from_secs(1);

/// Reads a body. `held` counts the bytes of a body that does not arrive in one piece.
pub(crate) async fn read<B>(headers: &HeaderMap, body: B, limits: BodyLimits, held: HeldBody) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut body = pin!(body);
    let max = if limits.max_bytes == 0 { usize::MAX } else { limits.max_bytes };
    // If the declared length exceeds the limit, the body is refused before any byte is read.
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let collected = if declared > max {
        Err(too_large(max, declared))
    } else {
        match tokio::time::timeout(limits.timeout, collect(&mut body, max, declared, held)).await {
            Ok(collected) => collected,
            Err(_) => {
                Err(Error::new(ErrorKind::InvalidRequest, "The body of the request did not arrive in time."))
            }
        }
    };
    let is_beyond_limit =
        |error: &Error| matches!(error.kind(), ErrorKind::BodyTooLarge | ErrorKind::TooManyRequests);
    if collected.as_ref().is_err_and(is_beyond_limit) {
        // A client that sent `Expect: 100-continue` has not sent its body yet. Reading would make hyper ask for the body.
        if !headers.contains_key(EXPECT) {
            let _ = tokio::time::timeout(DRAINED_FOR, drain(&mut body)).await;
        }
    }
    collected
}

async fn collect<B>(
    body: &mut std::pin::Pin<&mut B>,
    max: usize,
    declared: usize,
    mut held: HeldBody,
) -> Result<Bytes>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, "The body of the request ended too early.").caused_by(error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > max {
            return Err(too_large(max, length.max(declared)));
        }
        if !body.is_end_stream() {
            held.grow_to(length)?;
        }
        // A body in one piece, the usual case, is not copied.
        match first.take() {
            None if joined.is_empty() => first = Some(data),
            before => {
                joined.extend_from_slice(&before.unwrap_or_default());
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| joined.freeze()))
}

async fn drain<B: http_body::Body<Data = Bytes>>(body: &mut std::pin::Pin<&mut B>) {
    let mut drained = 0;
    while let Some(Ok(frame)) = body.frame().await {
        drained += frame.into_data().map_or(0, |data| data.len());
        if drained > DRAINED_BYTES {
            return;
        }
    }
}

fn too_large(max: usize, actual: usize) -> Error {
    let text = format!(
        "The body of the request is larger than {max} bytes; send a smaller one. The operator of this gateway can raise the \
         limit with A2A_MAX_REQUEST_BODY_BYTES."
    );
    Error::new(ErrorKind::BodyTooLarge, text)
        .detail("maxBytes", max.to_string())
        .detail("actualSize", actual.to_string())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use longshore_model::Principal;

    use super::*;
    use crate::Limits;
    use crate::limits::Bodies;

    /// Reads a body without the limit that all callers share.
    async fn read<B>(headers: &HeaderMap, body: B, limits: BodyLimits) -> Result<Bytes>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let bodies = Bodies::new(&Limits::default(), Arc::default());
        super::read(headers, body, limits, bodies.begin(&Principal::new("ada"))).await
    }

    const LIMITS: BodyLimits = BodyLimits { max_bytes: 5, timeout: Duration::from_secs(30) };

    fn chunks(texts: &'static [&'static str]) -> impl http_body::Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::iter(
            texts.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))),
        ))
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole() {
        let none = HeaderMap::new();
        assert_eq!(read(&none, chunks(&[]), LIMITS).await.unwrap(), "");
        assert_eq!(read(&none, chunks(&["", "ab", "", "cde"]), LIMITS).await.unwrap(), "abcde");
        assert_eq!(read(&none, Full::new(Bytes::from_static(b"abcde")), LIMITS).await.unwrap(), "abcde");
        let off = BodyLimits { max_bytes: 0, ..LIMITS };
        assert_eq!(read(&none, chunks(&["abc", "def"]), off).await.unwrap(), "abcdef");
    }

    #[tokio::test]
    async fn a_longer_body_is_refused_declared_or_not() {
        let none = HeaderMap::new();
        let declared = read(&none, Full::new(Bytes::from_static(b"abcdefgh")), LIMITS).await.unwrap_err();
        let streamed = read(&none, chunks(&["abc", "def"]), LIMITS).await.unwrap_err();
        for (error, actual) in [(declared, "8"), (streamed, "6")] {
            assert_eq!(error.kind(), ErrorKind::BodyTooLarge);
            assert!(
                error.message().starts_with("The body of the request is larger than 5 bytes; "),
                "{error}"
            );
            let expected =
                [("maxBytes".to_owned(), "5".to_owned()), ("actualSize".to_owned(), actual.to_owned())];
            assert_eq!(error.details(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_refused() {
        let silent = StreamBody::new(stream::pending::<std::result::Result<Frame<Bytes>, Infallible>>());
        let error = read(&HeaderMap::new(), silent, LIMITS).await.unwrap_err();
        assert_eq!(error.message(), "The body of the request did not arrive in time.");
    }
}
