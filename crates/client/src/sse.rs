//! Decodes server-sent events from the bytes of a stream.

use std::collections::VecDeque;

/// One server-sent event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) data: String,
    /// The last event id of the stream so far. With it, a client can resume after this event.
    pub(crate) id: Option<String>,
}

/// Why a stream cannot be decoded: an event is longer than the limit, or is not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    TooLong,
    NotText,
}

/// Decodes a byte stream into events, however the bytes are split into chunks.
#[derive(Debug)]
pub(crate) struct Decoder {
    limit: usize,
    line: Vec<u8>,
    data: Option<String>,
    id: Option<String>,
    /// Whether the last byte was a carriage return. A line feed after it belongs to the same line end.
    after_cr: bool,
    is_first_line: bool,
}

impl Decoder {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: None, id: None, after_cr: false, is_first_line: true }
    }

    /// Appends each event that the chunk completes. An incomplete event at the end of the stream is dropped.
    pub(crate) fn push(&mut self, chunk: &[u8], frames: &mut VecDeque<Frame>) -> Result<(), Broken> {
        for piece in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match piece {
                [text @ .., end @ (b'\n' | b'\r')] => (text, Some(*end)),
                text => (text, None),
            };
            let is_rest_of_crlf = std::mem::take(&mut self.after_cr) && text.is_empty() && end == Some(b'\n');
            if is_rest_of_crlf {
                continue;
            }
            if self.line.len() + text.len() + self.data.as_ref().map_or(0, String::len) > self.limit {
                return Err(Broken::TooLong);
            }
            self.line.extend_from_slice(text);
            if let Some(end) = end {
                self.after_cr = end == b'\r';
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, frames)?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], frames: &mut VecDeque<Frame>) -> Result<(), Broken> {
        let line = str::from_utf8(line).map_err(|_| Broken::NotText)?;
        let line = match line.strip_prefix('\u{feff}') {
            Some(rest) if self.is_first_line => rest,
            _ => line,
        };
        self.is_first_line = false;
        if line.is_empty() {
            if let Some(data) = self.data.take() {
                frames.push_back(Frame { data, id: self.id.clone() });
            }
            return Ok(());
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (name, &mut self.data) {
            ("data", Some(data)) => {
                data.push('\n');
                data.push_str(value);
            }
            ("data", data @ None) => *data = Some(value.to_owned()),
            ("id", _) if !value.contains('\0') => {
                self.id = Some(value.to_owned()).filter(|id| !id.is_empty());
            }
            // Ignore comments, event names and reconnection times.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(chunks: &[&[u8]], limit: usize) -> Result<Vec<(String, Option<String>)>, Broken> {
        let (mut decoder, mut frames) = (Decoder::new(limit), VecDeque::new());
        for chunk in chunks {
            decoder.push(chunk, &mut frames)?;
        }
        Ok(frames.into_iter().map(|frame| (frame.data, frame.id)).collect())
    }

    fn frame(data: &str, id: Option<&str>) -> (String, Option<String>) {
        (data.to_owned(), id.map(str::to_owned))
    }

    #[test]
    fn events_are_complete_wherever_the_stream_is_cut() {
        let stream = "\u{feff}: hello\r\nid: 1.7\r\ndata: {\"a\":\r\ndata: \"é\"}\r\n\r\nretry: 5\n\ndata:x\rdata\r\rid\ndata: last\n\ndata: never ended\n";
        let expected =
            [frame("{\"a\":\n\"é\"}", Some("1.7")), frame("x\n", Some("1.7")), frame("last", None)];
        let bytes = stream.as_bytes();
        assert_eq!(frames(&[bytes], 100).unwrap(), expected);
        for cut in 0..bytes.len() {
            assert_eq!(frames(&[&bytes[..cut], &bytes[cut..]], 100).unwrap(), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(frames(&single, 100).unwrap(), expected);
    }

    #[test]
    fn an_event_that_never_ends_is_refused_at_the_limit() {
        let long = b"data: aaaaaaaaaaaaaaa".repeat(10);
        assert_eq!(frames(&[&long], 100), Err(Broken::TooLong));
        let lines = b"data: aaaaaaaaaaaaaaa\n".repeat(10);
        assert_eq!(frames(&[&lines], 100), Err(Broken::TooLong));
        assert_eq!(frames(&[b"data: \xff\n\n"], 100), Err(Broken::NotText));
        // Comments do not count towards the limit.
        assert_eq!(frames(&[&b": ping\n\n".repeat(100)], 20).unwrap(), []);
    }
}
