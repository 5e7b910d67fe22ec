//! A document that rarely or never changes while the process runs, with its validators.

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

/// Which caches may store a document. They may store it for five minutes, because it rarely changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CacheScope {
    Public,
    /// Public, except that a request with a credential gets another document at the same address.
    PublicWithoutCredential,
    /// Shared caches must not store the document.
    Private,
}

impl CacheScope {
    fn cache_control(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Public | Self::PublicWithoutCredential => "public, max-age=300",
            Self::Private => "private, max-age=300",
        })
    }

    /// The request headers that the response depends on.
    fn vary(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Public => "Accept-Encoding, A2A-Version",
            Self::PublicWithoutCredential | Self::Private => {
                "Accept-Encoding, A2A-Version, Authorization, X-API-Key"
            }
        })
    }
}

/// Builds documents with the settings that all of them share.
#[derive(Debug)]
pub(super) struct DocumentBuilder {
    /// The modification time of the documents.
    pub(super) started: Timestamp,
    /// The size below which a document is not compressed.
    pub(super) gzip_minimum: usize,
}

impl DocumentBuilder {
    pub(super) fn build(&self, plain: Bytes, scope: CacheScope) -> PreparedDocument {
        let tag = format!("W/{}", conditional::tag(&Sha256::digest(&plain)));
        let last_modified = conditional::http_date(self.started);
        let gzip = compress::gzip(&plain, self.gzip_minimum);
        PreparedDocument { plain, gzip, tag, last_modified, scope }
    }
}

#[derive(Debug)]
pub(super) struct PreparedDocument {
    plain: Bytes,
    /// The compressed document. `None`: the document is too short to gain from compression.
    gzip: Option<Bytes>,
    /// The entity tag. It is weak, because the plain and the compressed document share it.
    tag: String,
    last_modified: String,
    scope: CacheScope,
}

impl PreparedDocument {
    pub(super) fn plain(&self) -> Bytes {
        self.plain.clone()
    }

    /// Answers a GET or a HEAD.
    pub(super) fn answer(&self, parts: &Parts) -> Response {
        // Only the tag is compared, and not the date. All documents have the same date, so the date cannot show whether the client
        // has the same form of the document.
        let mut response = if conditional::matches_tag(&parts.headers, &self.tag) {
            reply::empty(StatusCode::NOT_MODIFIED)
        } else {
            self.content(parts)
        };
        let headers = response.headers_mut();
        for (name, text) in [(ETAG, &self.tag), (LAST_MODIFIED, &self.last_modified)] {
            let value = HeaderValue::try_from(text).expect("a header may hold tags and dates");
            headers.insert(name, value);
        }
        headers.insert(CACHE_CONTROL, self.scope.cache_control());
        headers.insert(VARY, self.scope.vary());
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
