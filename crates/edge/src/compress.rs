//! Compresses whole responses with gzip, if they are long enough and the client accepts it.
//!
//! Streams and files are not compressed: events would be delayed in the encoder, and ranges refer to the bytes of the plain file.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue};

use crate::reply::{Body, Response};

pub(crate) const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// How many bytes are compressed before other tasks of the thread may run. This takes less than a millisecond.
const STEP_BYTES: usize = 32 * 1024;

/// Compresses the response to a request with these headers, if its body has at least `minimum` bytes. 0: any non-empty body.
pub(crate) async fn compress(mut response: Response, headers: &HeaderMap, minimum: usize) -> Response {
    let Body::Full(plain) = response.body() else { return response };
    if !is_long_enough(plain, minimum) || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let plain = plain.clone();
    add_vary(response.headers_mut());
    if !is_accepted(headers) {
        return response;
    }
    // The fast level has the best ratio of saved bytes to time, because the responses are repetitive JSON.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for step in plain.chunks(STEP_BYTES) {
        if encoder.write_all(step).is_err() {
            return response;
        }
        tokio::task::yield_now().await;
    }
    let Some(compressed) = shorter(encoder, &plain) else { return response };
    *response.body_mut() = Body::Full(compressed);
    response.headers_mut().remove(CONTENT_LENGTH);
    response.headers_mut().insert(CONTENT_ENCODING, GZIP);
    response
}

/// The compressed form of a prepared document. `None`: the document is too short, or compression does not shorten it.
pub(crate) fn gzip(plain: &Bytes, minimum: usize) -> Option<Bytes> {
    if !is_long_enough(plain, minimum) {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).ok()?;
    shorter(encoder, plain)
}

/// Whether the client accepts gzip and does not prefer an uncompressed response.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let (mut gzip, mut any, mut identity) = (None, None, None);
    for value in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for choice in value.split(',') {
            let (coding, weight) = choice.split_once(';').unwrap_or((choice, ""));
            match coding.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => gzip = Some(quality(weight)),
                "identity" => identity = Some(quality(weight)),
                "*" => any = Some(quality(weight)),
                _ => {}
            }
        }
    }
    let gzip = gzip.or(any).unwrap_or_default();
    gzip > 0 && gzip >= identity.unwrap_or_default()
}

/// The weight in thousandths. An unreadable weight counts as 0.
fn quality(parameter: &str) -> u32 {
    let parameter = parameter.trim();
    if parameter.is_empty() {
        return 1000;
    }
    let Some((name, value)) = parameter.split_once('=') else { return 0 };
    let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let is_weight = name.trim().eq_ignore_ascii_case("q")
        && matches!(whole, "0" | "1")
        && part.len() <= 3
        && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_weight {
        return 0;
    }
    let thousandths = format!("{part:0<3}").parse().unwrap_or(0);
    if whole == "1" { 1000 } else { thousandths }
}

fn is_long_enough(plain: &Bytes, minimum: usize) -> bool {
    !plain.is_empty() && plain.len() >= minimum
}

fn shorter(encoder: GzEncoder<Vec<u8>>, plain: &Bytes) -> Option<Bytes> {
    let compressed = encoder.finish().ok()?;
    (compressed.len() < plain.len()).then(|| compressed.into())
}

/// Tells caches that the response has two forms. Needed even if this response is not compressed.
fn add_vary(headers: &mut HeaderMap) {
    let mut present = headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    if !present.any(|value| value.to_ascii_lowercase().contains("accept-encoding")) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use futures_util::stream::{self, StreamExt};
    use http::StatusCode;
    use http_body_util::BodyExt;

    use super::*;
    use crate::media::Media;
    use crate::reply;

    fn accepting(encodings: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in encodings {
            headers.append(ACCEPT_ENCODING, value.parse().unwrap());
        }
        headers
    }

    fn unzip(compressed: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut plain).unwrap();
        plain
    }

    #[test]
    fn accept_encoding_decides_whether_gzip_is_used() {
        let cases: [(&[&str], bool); 21] = [
            (&[], false),
            (&[""], false),
            (&["gzip"], true),
            (&["GZIP"], true),
            (&["x-gzip"], true),
            (&["gzip, deflate, br"], true),
            (&["deflate", "br, gzip ; q = 0.5"], true),
            (&["deflate, br, zstd"], false),
            (&["identity"], false),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.000"], false),
            (&["gzip;q=0.001"], true),
            (&["gzip;q=0, *"], false),
            (&["gzip, *;q=0"], true),
            (&["identity, gzip"], true),
            (&["identity;q=1, gzip;q=0.5"], false),
            (&["identity;q=0.5, gzip;q=1.0"], true),
            (&["gzip;q=x"], false),
            (&["gzip;q=2"], false),
        ];
        for (encodings, expected) in cases {
            assert_eq!(is_accepted(&accepting(encodings)), expected, "{encodings:?}");
        }
    }

    async fn body_of(response: Response) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn whole_responses_that_are_long_enough_are_compressed() {
        let text = Bytes::from("{\"word\":\"harbour\"},".repeat(1000));
        let short = Bytes::from_static(b"{\"ok\":true}");
        let cases = [
            (&text, "gzip", 8192, true, true),
            (&text, "gzip", text.len(), true, true),
            (&text, "gzip", text.len() + 1, false, false),
            (&text, "identity", 8192, false, true),
            (&text, "gzip", 0, true, true),
            // The compressed form would be longer.
            (&short, "gzip", 0, false, true),
            (&short, "gzip", 8192, false, false),
        ];
        for (body, encoding, minimum, is_compressed, varies) in cases {
            let plain = reply::json(StatusCode::OK, Media::Json, body.clone());
            let response = compress(plain, &accepting(&[encoding]), minimum).await;
            let case = (body.len(), encoding, minimum);
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), is_compressed, "{case:?}");
            assert_eq!(response.headers().contains_key(VARY), varies, "{case:?}");
            let sent = body_of(response).await;
            if is_compressed {
                assert!(sent.len() < body.len() / 10, "{case:?}: {}", sent.len());
                assert_eq!(&unzip(&sent), body, "{case:?}");
            } else {
                assert_eq!(sent, body, "{case:?}");
            }
        }
    }

    #[tokio::test]
    async fn streams_files_and_compressed_responses_are_not_compressed() {
        let long = || Bytes::from("x".repeat(10_000));
        let mut compressed = reply::json(StatusCode::OK, Media::Json, long());
        compressed.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        let cases = [
            reply::events(stream::iter([long()]).boxed()),
            reply::file(StatusCode::PARTIAL_CONTENT, stream::iter([Ok(long())]).boxed(), 10_000),
            reply::empty(StatusCode::NOT_MODIFIED),
            compressed,
        ];
        for response in cases {
            let before = response.headers().clone();
            let status = response.status();
            let after = compress(response, &accepting(&["gzip"]), 0).await;
            assert_eq!(after.headers(), &before, "{status}");
            let sent = body_of(after).await;
            assert!(sent.is_empty() || sent == long());
        }
    }

    #[tokio::test]
    async fn an_existing_vary_header_is_kept() {
        for (given, expected) in [
            ("Authorization", vec!["Authorization", "Accept-Encoding"]),
            ("accept-encoding, Authorization", vec!["accept-encoding, Authorization"]),
        ] {
            let mut response = reply::json(StatusCode::OK, Media::Json, Bytes::from("x".repeat(10_000)));
            response.headers_mut().insert(VARY, given.parse().unwrap());
            let response = compress(response, &accepting(&["gzip"]), 8192).await;
            let vary: Vec<_> = response.headers().get_all(VARY).iter().collect();
            assert_eq!(vary, expected);
        }
    }
}
