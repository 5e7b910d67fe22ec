//! The public agent card, made once and served with validators.

use std::fmt::Write;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use longshore_model::card::Card;
use longshore_wire::v1;
use sha2::{Digest, Sha256};

use crate::conditional;
use crate::media::Media;
use crate::reply::{self, Response};

/// Clients may keep the card for five minutes: it changes only when the gateway is started anew.
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=300");

#[derive(Debug)]
pub(crate) struct CardAnswer {
    body: Bytes,
    etag: HeaderValue,
}

impl CardAnswer {
    pub(crate) fn new(card: &Card) -> Self {
        let body = v1::card::encode(card);
        let digest = Sha256::digest(&body);
        let mut tag = String::from("W/\"");
        for byte in &digest[..8] {
            write!(tag, "{byte:02x}").expect("a string takes every text");
        }
        tag.push('"');
        let etag = HeaderValue::try_from(tag).expect("hexadecimal digits and quotes may stand in a header");
        Self { body, etag }
    }

    pub(crate) fn answer(&self, verb: &Method, headers: &HeaderMap) -> Response {
        let mut response = if conditional::is_known(headers, self.etag.to_str().unwrap_or_default()) {
            reply::empty(StatusCode::NOT_MODIFIED)
        } else if verb == Method::HEAD {
            let mut response = reply::json(StatusCode::OK, Media::Json, Bytes::new());
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(self.body.len()));
            response
        } else {
            reply::json(StatusCode::OK, Media::Json, self.body.clone())
        };
        response.headers_mut().insert(ETAG, self.etag.clone());
        response.headers_mut().insert(CACHE_CONTROL, CACHE);
        response
    }
}
