//! Frames of an HTTP/2 client that controls its window, its streams and the end of its bodies.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::PATIENCE;

/// A frame that the server sent.
#[derive(Debug)]
pub(crate) struct Http2Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
    /// The frame is the last one of its stream.
    pub(crate) ends: bool,
}

impl Http2Frame {
    pub(crate) const DATA: u8 = 0;
    const END_STREAM: u8 = 1;
    const RST_STREAM: u8 = 3;

    pub(crate) async fn read(connection: &mut (impl AsyncRead + Unpin)) -> Self {
        let reading = async {
            let mut head = [0; 9];
            connection.read_exact(&mut head).await.unwrap();
            let [high, middle, low, kind, flags, stream @ ..] = head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            connection.read_exact(&mut payload).await.unwrap();
            // DATA and HEADERS.
            let ends = kind <= 1 && flags & Self::END_STREAM != 0;
            Self { kind, stream: u32::from_be_bytes(stream), payload, ends }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("a frame")
    }

    /// The code with which the server resets a stream.
    pub(crate) fn reset(&self) -> Option<u32> {
        (self.kind == Self::RST_STREAM).then(|| u32::from_be_bytes(self.payload[..].try_into().unwrap()))
    }
}

/// The preface and the settings: each stream may send this many bytes.
pub(crate) fn http2_start(window: u32) -> Vec<u8> {
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4];
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &window.to_be_bytes()].concat()
}

/// The head of a request, which has a body unless it ends the stream.
pub(crate) fn http2_headers(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal field without indexing, with a literal name.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    // END_HEADERS, and END_STREAM.
    frame(1, if ends { 5 } else { 4 }, stream, &block)
}

/// A part of a body, which goes on.
pub(crate) fn http2_data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(0, 0, stream, bytes)
}

/// The last part of a body.
pub(crate) fn http2_last_data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(0, Http2Frame::END_STREAM, stream, bytes)
}

/// Cancels a request.
pub(crate) fn http2_cancel(stream: u32) -> Vec<u8> {
    const CANCEL: u32 = 8;
    frame(Http2Frame::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
