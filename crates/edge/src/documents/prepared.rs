//! A document that is the same for long, mostly for the whole life of the process, with its validators.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, LAST_MODIFIED, VARY};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use longshore_model::Timestamp;
use sha2::{Digest, Sha256};

use crate::compress;
use crate::conditional;
use crate::media::Media;
use crate::reply::{self, Response};

/// Who may see a document, and so who may keep it: for five minutes, since it rarely changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Readers {
    Anybody,
    /// Anybody, but whoever shows a credential gets another one under the same address.
    WhoeverHasNoCredential,
    /// No cache that others use may keep it.
    Callers,
}

impl Readers {
    fn cache_control(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Anybody | Self::WhoeverHasNoCredential => "public, max-age=300",
            Self::Callers => "private, max-age=300",
        })
    }

    /// What else in a request the answer depends on.
    fn vary(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Anybody => "Accept-Encoding, A2A-Version",
            Self::WhoeverHasNoCredential | Self::Callers => {
                "Accept-Encoding, A2A-Version, Authorization, X-API-Key"
            }
        })
    }
}

/// What all documents of a moment have in common.
#[derive(Debug)]
pub(super) struct Preparing {
    /// Since when the documents are what they are.
    pub(super) started: Timestamp,
    /// A shorter document is not compressed.
    pub(super) gzip_minimum: usize,
}

impl Preparing {
    pub(super) fn document(&self, plain: Bytes, readers: Readers) -> Prepared {
        let tag = format!("W/{}", conditional::tag(&Sha256::digest(&plain)));
        let last_modified = conditional::http_date(self.started);
        Prepared { gzip: compress::gzip_of(&plain, self.gzip_minimum), plain, tag, last_modified, readers }
    }
}

#[derive(Debug)]
pub(super) struct Prepared {
    plain: Bytes,
    /// `None`: it is too short to gain from it.
    gzip: Option<Bytes>,
    /// Weak, since it stands for both encodings.
    tag: String,
    last_modified: String,
    readers: Readers,
}

impl Prepared {
    pub(super) fn plain(&self) -> Bytes {
        self.plain.clone()
    }

    /// Answers a GET or a HEAD.
    pub(super) fn answer(&self, parts: &Parts) -> Response {
        // Only the tag counts. All documents are of one date, so it cannot tell the form that a client has from the one that
        // it would get.
        let mut response = if conditional::is_known(&parts.headers, &self.tag) {
            reply::empty(StatusCode::NOT_MODIFIED)
        } else {
            self.content(parts)
        };
        let headers = response.headers_mut();
        for (name, text) in [(ETAG, &self.tag), (LAST_MODIFIED, &self.last_modified)] {
            let value = HeaderValue::try_from(text).expect("made of characters that a header may hold");
            headers.insert(name, value);
        }
        headers.insert(CACHE_CONTROL, self.readers.cache_control());
        headers.insert(VARY, self.readers.vary());
        response
    }

    fn content(&self, parts: &Parts) -> Response {
        let compressed = self.gzip.as_ref().filter(|_| compress::is_accepted(&parts.headers));
        let body = compressed.unwrap_or(&self.plain);
        let mut response = reply::json(StatusCode::OK, Media::Json, body.clone());
        if compressed.is_some() {
            response.headers_mut().insert(CONTENT_ENCODING, compress::GZIP);
        }
        response
    }
}
