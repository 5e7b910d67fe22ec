//! Frames of an HTTP/2 client that controls its window and the end of its bodies.

/// The preface and the settings: each stream may send this many bytes.
pub(crate) fn http2_start(window: u32) -> Vec<u8> {
    let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4];
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &window.to_be_bytes()].concat()
}

/// The head of a request, which has a body unless it ends the stream.
pub(crate) fn http2_headers(stream: u8, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
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
pub(crate) fn http2_data(stream: u8, bytes: &[u8]) -> Vec<u8> {
    frame(0, 0, stream, bytes)
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}
