//! Decodes server-sent events: converts the bytes of a stream into the `data` of each event.
//!
//! This is our own decoder for two reasons: OpenCode sends only `data:` lines, and the size limit of an event must apply before the
//! event is complete. Names, ids and retry hints are ignored. By the rules of event streams any other line is ignored too, but here
//! such a line is reported, because it may be a damaged event that matters.

use bytes::Bytes;
use memchr::{memchr, memchr2};

/// The longest event that is kept, in bytes. A longer one is skipped and reported as [`Item::TooLong`], so that the turns read the
/// message list instead. The largest events repeat the files of a prompt, and no turn needs these events.
pub(crate) const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// The data of one event.
    Event(Bytes),
    /// An event was longer than the cap and was dropped.
    TooLong,
    /// A line that is not valid in an event stream. It may be a damaged line of an event.
    Unreadable,
}

/// Splits a byte stream into events, whatever the boundaries of the chunks are.
#[derive(Debug)]
pub(crate) struct Decoder {
    cap: usize,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The data lines of the current event, joined.
    data: Option<Vec<u8>>,
    /// Whether the last byte was a carriage return. A line feed directly after it belongs to the same line end.
    after_cr: bool,
    /// The number of bytes of the current line so far, while an event over the size limit is skipped. `None`: no event is skipped.
    skipping: Option<usize>,
    at_start: bool,
}

impl Decoder {
    pub(crate) fn new(cap: usize) -> Self {
        Self { cap, partial: Vec::new(), data: None, after_cr: false, skipping: None, at_start: true }
    }

    /// Decodes one chunk. Appends every event that the chunk completes to `items`.
    pub(crate) fn push(&mut self, mut chunk: &[u8], items: &mut Vec<Item>) {
        while let Some(&first) = chunk.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', chunk) else {
                self.keep_partial(chunk);
                return;
            };
            let line = &chunk[..end];
            self.after_cr = chunk[end] == b'\r';
            chunk = &chunk[end + 1..];
            if line.is_empty() && self.partial.is_empty() && self.skipping.is_none_or(|line| line == 0) {
                self.end_event(items);
            } else if !self.partial.is_empty() {
                self.keep_partial(line);
                let whole = std::mem::take(&mut self.partial);
                self.end_line(&whole, items);
            } else {
                self.end_line(line, items);
            }
        }
    }

    fn keep_partial(&mut self, bytes: &[u8]) {
        if let Some(line) = &mut self.skipping {
            *line += bytes.len();
        } else if self.partial.len() + self.data_len() + bytes.len() > self.cap {
            self.skip(self.partial.len() + bytes.len());
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn skip(&mut self, line: usize) {
        self.skipping = Some(line);
        // The memory is freed, because the buffers may be large and a stream lives for days.
        self.partial = Vec::new();
        self.data = None;
    }

    fn end_line(&mut self, line: &[u8], items: &mut Vec<Item>) {
        if let Some(line) = &mut self.skipping {
            *line = 0;
            return;
        }
        // The whole line counts, with its field name, as it does when it arrives in pieces. So the limit does not depend on the
        // boundaries of the chunks.
        if self.data_len() + line.len() > self.cap {
            self.skip(0);
            return;
        }
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if self.at_start => rest,
            _ => line,
        };
        self.at_start = false;
        let (name, value) = line.split_at(memchr(b':', line).unwrap_or(line.len()));
        match name {
            b"data" => {}
            // The name is empty for a comment line.
            b"" | b"event" | b"id" | b"retry" => return,
            _ => return items.push(Item::Unreadable),
        }
        let ([b':', b' ', value @ ..] | [b':', value @ ..] | value) = value;
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }

    fn end_event(&mut self, items: &mut Vec<Item>) {
        if self.skipping.take().is_some() {
            items.push(Item::TooLong);
        } else if let Some(data) = self.data.take() {
            items.push(Item::Event(Bytes::from(data)));
        }
    }

    fn data_len(&self) -> usize {
        self.data.as_ref().map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(cap: usize, chunks: &[&[u8]]) -> Vec<Item> {
        let (mut decoder, mut items) = (Decoder::new(cap), Vec::new());
        for chunk in chunks {
            decoder.push(chunk, &mut items);
        }
        items
    }

    fn event(data: &str) -> Item {
        Item::Event(Bytes::copy_from_slice(data.as_bytes()))
    }

    #[test]
    fn events() {
        let cases: [(&str, Vec<Item>); 18] = [
            ("data: a\n\n", vec![event("a")]),
            ("data:a\n\n", vec![event("a")]),
            ("data:  a \n\n", vec![event(" a ")]),
            ("data: a\r\n\r\ndata: b\r\n\r\n", vec![event("a"), event("b")]),
            ("data: a\r\rdata: b\r\r", vec![event("a"), event("b")]),
            ("data: a\ndata: b\ndata\n\n", vec![event("a\nb\n")]),
            (": comment\n\ndata: a\n\n", vec![event("a")]),
            ("event: x\nid: 7\nretry: 1\ndata: a\n\n", vec![event("a")]),
            ("database: x\n\n", vec![Item::Unreadable]),
            // The remains of a line whose first bytes are damaged or missing.
            ("\u{fffd}ata: a\n\n", vec![Item::Unreadable]),
            ("a: a\n\ndata: b\n\n", vec![Item::Unreadable, event("b")]),
            ("data: a\n{}\n\n", vec![Item::Unreadable, event("a")]),
            ("event\nid\nretry\n:\n\n", vec![]),
            ("data\n\n", vec![event("")]),
            ("\u{feff}data: a\n\n", vec![event("a")]),
            ("\n\n\n", vec![]),
            // An event is complete only after its blank line. Otherwise it is dropped when the stream ends.
            ("data: a\n", vec![]),
            ("data: é\u{1f600}\n\n", vec![event("é\u{1f600}")]),
        ];
        for (text, expected) in cases {
            assert_eq!(decode(100, &[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn chunks_may_be_cut_at_every_byte() {
        let text = "\u{feff}: hi\r\n\r\ndata: one\r\ndata: zwei é\r\n\r\ndata: 3\n\n\rdata: 4\r\r".as_bytes();
        let whole = decode(100, &[text]);
        assert_eq!(whole, [event("one\nzwei é"), event("3"), event("4")]);
        for cut in 0..=text.len() {
            let (head, tail) = text.split_at(cut);
            assert_eq!(decode(100, &[head, tail]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(decode(100, &single), whole);
    }

    #[test]
    fn an_event_over_the_cap_is_skipped_and_the_next_is_read() {
        let long = "x".repeat(50);
        let cases = [
            format!("data: {long}\n\ndata: b\n\n"),
            format!("data: {long}\r\n\r\ndata: b\r\n\r\n"),
            "data: 123456\ndata: 123456\ndata: 123456\n\ndata: b\n\n".to_owned(),
            format!("data: 1\ndata: {long}\nid: 4\n\ndata: b\n\n"),
        ];
        for text in cases {
            let expected = [Item::TooLong, event("b")];
            assert_eq!(decode(16, &[text.as_bytes()]), expected, "{text:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(decode(16, &single), expected, "{text:?} byte by byte");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_pass_the_cap(
            bytes in proptest::collection::vec(prop_oneof![
                4 => proptest::sample::select(b"\n\r:data ".to_vec()),
                1 => any::<u8>(),
            ], 0..400),
            size in 1_usize..40,
        ) {
            let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
            let items = decode(20, &chunks);
            for item in &items {
                if let Item::Event(data) = item {
                    prop_assert!(data.len() <= 20);
                }
            }
            prop_assert_eq!(&items, &decode(20, &[&bytes]));
        }
    }
}
