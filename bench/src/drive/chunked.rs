//! Decodes chunked transfer coding.

/// Decodes the chunks, however the bytes are split.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    state: State,
    /// The size of the chunk, as far as its digits are read.
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Size,
    /// The rest of the line with the size.
    Extension,
    Data(usize),
    /// The end of line after the data.
    DataEnd,
    /// After the last chunk. `empty`: at the start of a line.
    Trailer {
        empty: bool,
    },
    Over,
}

impl Chunks {
    /// Appends the content to `body`, and returns how many bytes were used: all, except those after the last chunk.
    pub(super) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Over {
            if let State::Data(left) = self.state {
                let length = left.min(bytes.len() - at);
                body.extend_from_slice(&bytes[at..at + length]);
                at += length;
                self.state = if length == left { State::DataEnd } else { State::Data(left - length) };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.state = match (self.state, byte) {
                (State::Size | State::Extension, b'\n') if self.size == 0 => State::Trailer { empty: true },
                (State::Size | State::Extension, b'\n') => State::Data(std::mem::take(&mut self.size)),
                (State::Size, byte) => match char::from(byte).to_digit(16) {
                    Some(digit) => {
                        self.size = self.size.saturating_mul(16) + usize::try_from(digit).unwrap_or_default();
                        State::Size
                    }
                    None => State::Extension,
                },
                (State::DataEnd, b'\n') => State::Size,
                (State::Trailer { empty: true }, b'\n') => State::Over,
                (State::Trailer { .. }, b'\n') => State::Trailer { empty: true },
                (State::Trailer { empty }, byte) => State::Trailer { empty: empty && byte == b'\r' },
                (state, _) => state,
            };
        }
        at
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_does_not_depend_on_how_the_bytes_are_split() {
        let sent = b"5\r\nhello\r\nb;x=y\r\n, to worlds\r\n0\r\nx-trailer: 1\r\n\r\nHTTP/1.1";
        for cut in 1..sent.len() {
            let (mut chunks, mut body, mut used) = (Chunks::default(), Vec::new(), 0);
            for piece in sent.chunks(cut) {
                used += chunks.take(piece, &mut body);
            }
            assert!(chunks.is_over(), "cut into pieces of {cut}");
            assert_eq!(String::from_utf8_lossy(&body), "hello, to worlds");
            assert_eq!(used, sent.len() - "HTTP/1.1".len());
        }
    }

    #[test]
    fn an_incomplete_body_is_not_over() {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        chunks.take(b"a\r\nhello", &mut body);
        assert!(!chunks.is_over() && body == b"hello");
    }
}
