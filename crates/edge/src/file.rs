//! Serves the files of tasks at `GET /artifacts/{id}` to the owner of the task.
//!
//! The content of an agent's file is not trusted. The headers tell a browser to save the file, not to guess its type, and not to
//! execute any of its content.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use longshore_engine::Engine;
use longshore_engine::port::FileFacts;
use longshore_model::{Error, ErrorKind, FileId, Principal, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::auth::Caller;
use crate::conditional::{self, Selection, Validators};
use crate::reply::{self, Response};

/// The size of one chunk. The next chunk is read when the socket has accepted the previous one.
const CHUNK_BYTES: usize = 64 * 1024;

/// Only the owner's own cache may store a file, and may keep it for ever, because a file never changes under its id.
const CACHE: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");

/// The characters that an extended header parameter may hold unescaped (RFC 8187).
const ATTRIBUTE: AsciiSet = NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Answers a GET or a HEAD. For a file of another owner and for an invalid id, the response is the same as for a file that does
/// not exist.
pub(crate) async fn answer(engine: &Engine, caller: &Caller, id: &str, parts: &Parts) -> Result<Response> {
    let id = FileId::parse(id).map_err(|_| not_found())?;
    let facts = engine.file(&caller.principal, &id).await;
    let facts =
        facts.map_err(|error| if error.kind() == ErrorKind::RouteNotFound { not_found() } else { error })?;
    let (tag, last_modified) = (conditional::tag(&facts.sha256), conditional::http_date(facts.at));
    let validators = Validators { tag: &tag, last_modified: &last_modified };
    let selected = conditional::select(&parts.method, &parts.headers, validators, facts.size);
    let (status, range) = match selected {
        Selection::Whole => (StatusCode::OK, 0..facts.size),
        Selection::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Selection::Unchanged => {
            let mut response = reply::empty(StatusCode::NOT_MODIFIED);
            describe_version(response.headers_mut(), validators);
            return Ok(response);
        }
        Selection::Unsatisfiable => {
            let mut response = reply::empty(StatusCode::RANGE_NOT_SATISFIABLE);
            put(response.headers_mut(), CONTENT_RANGE, format!("bytes */{}", facts.size));
            return Ok(response);
        }
    };
    let (size, length) = (facts.size, range.end - range.start);
    let content_range = (status == StatusCode::PARTIAL_CONTENT)
        .then(|| format!("bytes {}-{}/{size}", range.start, range.end - 1));
    let mut response = if parts.method == Method::HEAD || length == 0 {
        reply::empty(status)
    } else {
        let file = File { engine: engine.clone(), caller: caller.principal.clone(), id: id.clone() };
        reply::file(status, file.chunks(range).await?, length)
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(range) = content_range {
        put(headers, CONTENT_RANGE, range);
    }
    describe_version(headers, validators);
    describe_content(headers, &facts, &id);
    Ok(response)
}

fn not_found() -> Error {
    Error::new(ErrorKind::RouteNotFound, "There is no file of this id that you may see.")
}

fn describe_version(headers: &mut HeaderMap, validators: Validators<'_>) {
    put(headers, ETAG, validators.tag.to_owned());
    put(headers, LAST_MODIFIED, validators.last_modified.to_owned());
    headers.insert(CACHE_CONTROL, CACHE);
    headers.insert(VARY, HeaderValue::from_static("Authorization, X-API-Key"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

fn describe_content(headers: &mut HeaderMap, facts: &FileFacts, id: &FileId) {
    let media_type = HeaderValue::try_from(&facts.media_type).ok().filter(|value| !value.is_empty());
    let unknown = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, media_type.unwrap_or(unknown));
    put(headers, CONTENT_DISPOSITION, disposition(facts.name.as_deref(), id));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
}

/// The header with the name under which a client saves the file: the last segment of the agent's name for it, or its id.
fn disposition(name: Option<&str>, id: &FileId) -> String {
    let name = name.and_then(|name| name.rsplit(['/', '\\']).next()).map(str::trim);
    let name = name.filter(|name| !matches!(*name, "" | "." | "..")).unwrap_or(id.as_str());
    format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, &ATTRIBUTE))
}

/// Inserts a header. All characters of the value must be allowed in a header.
fn put(headers: &mut HeaderMap, name: HeaderName, value: String) {
    headers.insert(name, HeaderValue::try_from(value).expect("the value holds header characters only"));
}

struct File {
    engine: Engine,
    caller: Principal,
    id: FileId,
}

impl File {
    /// The bytes of the range, in chunks. The first chunk is read before the response begins, so that most failures can be reported
    /// as an error. After a later failure the response ends early, so that no client takes the part for the whole.
    async fn chunks(self, range: Range<u64>) -> Result<BoxStream<'static, io::Result<Bytes>>> {
        let first = self.chunk(&range).await?;
        let rest = range.start + first.len() as u64..range.end;
        let rest = stream::try_unfold((self, rest), |(file, left)| async move {
            if left.is_empty() {
                return Ok(None);
            }
            let bytes = file.chunk(&left).await.map_err(|error| {
                reply::log(&error, "file");
                io::Error::other("a file could not be read to its end")
            })?;
            let left = left.start + bytes.len() as u64..left.end;
            Ok(Some((bytes, (file, left))))
        });
        Ok(stream::once(async { Ok(first) }).chain(rest).boxed())
    }

    /// The next chunk. It must be complete, because the length of the response has already been sent.
    async fn chunk(&self, left: &Range<u64>) -> Result<Bytes> {
        let length = usize::try_from(left.end - left.start).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let bytes = self.engine.read_file(&self.caller, &self.id, left.start, length).await?;
        if bytes.len() != length {
            return Err(Error::internal("a file is shorter than its record says"));
        }
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use longshore_model::Timestamp;

    use super::*;

    #[test]
    fn a_file_is_saved_under_its_name_without_directories() {
        let cases = [
            (Some("report.pdf"), "report.pdf"),
            (Some("a b.txt"), "a%20b.txt"),
            (Some("Übersicht €.csv"), "%C3%9Cbersicht%20%E2%82%AC.csv"),
            (Some("x\"; filename=\"y.exe"), "x%22%3B%20filename%3D%22y.exe"),
            (Some("a\r\nSet-Cookie: b"), "a%0D%0ASet-Cookie%3A%20b"),
            (Some("it's (1) *.txt"), "it%27s%20%281%29%20%2A.txt"),
            (Some("../../etc/passwd"), "passwd"),
            (Some("C:\\temp\\x.txt"), "x.txt"),
            (Some("100%"), "100%25"),
            (Some(".."), "f1"),
            (Some("dir/"), "f1"),
            (Some(" "), "f1"),
            (None, "f1"),
        ];
        let id = FileId::parse("f1").unwrap();
        for (name, expected) in cases {
            assert_eq!(
                disposition(name, &id),
                format!("attachment; filename*=UTF-8''{expected}"),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_media_type_that_no_header_can_hold_is_replaced() {
        let facts = |media_type: &str| FileFacts {
            name: None,
            media_type: media_type.to_owned(),
            size: 0,
            sha256: [0; 32],
            at: Timestamp(0),
        };
        for (media_type, expected) in [
            ("text/html", "text/html"),
            ("image/svg+xml", "image/svg+xml"),
            ("text/plain\r\nx: y", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            let mut headers = HeaderMap::new();
            describe_content(&mut headers, &facts(media_type), &FileId::parse("f1").unwrap());
            assert_eq!(headers[CONTENT_TYPE], expected);
            assert_eq!(headers[CONTENT_SECURITY_POLICY], "sandbox");
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }
}
