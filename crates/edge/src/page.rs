//! The page for a person who opens the gateway in a browser.

use bytes::Bytes;
use http::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::compress;
use crate::reply::{self, Response};

const PAGE: &str = include_str!("page.html");

/// Whether the request is a browser's request for the root. Programs that send JSON-RPC to the root use POST.
pub(crate) fn is_wanted(parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD)
        && parts.uri.path() == "/"
        && accepts_html(&parts.headers)
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
    let mut types = listed.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|media_type| media_type.trim().eq_ignore_ascii_case("text/html"))
}

/// The page, which is the same for every visitor. It needs no credential, so it contains nothing about this gateway.
#[derive(Debug)]
pub(crate) struct Page {
    plain: Bytes,
    /// The compressed page. `None`: the page is too short to be compressed.
    gzip: Option<Bytes>,
}

impl Page {
    pub(crate) fn new(gzip_minimum: usize) -> Self {
        let plain = Bytes::from_static(PAGE.as_bytes());
        Self { gzip: compress::gzip(&plain, gzip_minimum), plain }
    }

    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        let compressed = self.gzip.as_ref().filter(|_| compress::is_accepted(headers));
        let mut response = reply::full(StatusCode::OK, compressed.unwrap_or(&self.plain).clone());
        if compressed.is_some() {
            response.headers_mut().insert(CONTENT_ENCODING, compress::GZIP);
        }
        set_headers(response.headers_mut());
        response
    }
}

fn set_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
}
