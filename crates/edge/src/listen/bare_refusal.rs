//! Adds a readable body to the refusals that hyper writes by itself.
//!
//! If hyper cannot parse a request head, it answers with a status and without a body.

use bytes::Bytes;
use serde_json::json;

use super::BUFFER_BYTES;

/// The same refusal with a body, if `written` is a refusal by hyper. The gateway itself never writes such a response at the start
/// of a connection, so `written` is unambiguous.
pub(super) fn explained(written: &[u8]) -> Option<Bytes> {
    let head = written.strip_prefix(b"HTTP/1.1 ").filter(|head| head.starts_with(b"4"))?;
    let head = str::from_utf8(head).ok()?;
    let (status, _) = head.split_once("\r\n")?;
    if !head.contains("\r\ncontent-length: 0\r\n") || !head.ends_with("\r\n\r\n") {
        return None;
    }
    let code = status.get(..3)?;
    let message = match code {
        "400" => "The request is not valid HTTP.".to_owned(),
        "414" | "431" => format!(
            "The request line and the headers together are larger than {} KB; send fewer or shorter ones.",
            BUFFER_BYTES / 1024
        ),
        _ => return None,
    };
    let error = json!({"error": {"code": code.parse::<u16>().ok()?, "status": "INVALID_ARGUMENT", "message": message}});
    let body = error.to_string();
    let length = body.len();
    Some(Bytes::from(format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )))
}
