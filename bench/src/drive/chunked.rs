//! The body of a response that comes in chunks.

/// Takes the frame of chunks off, however the bytes were cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    place: Place,
    /// Digits of a size so far.
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    Size,
    /// The rest of the line with the size.
    Extension,
    Data(usize),
    /// The end of the line behind the data.
    DataEnd,
    /// Behind the last chunk: the start of a line, or in one.
    Trailer {
        empty: bool,
    },
    Over,
}

impl Chunks {
    /// Adds what is body among the bytes to `body`, and gives how many bytes were looked at: all, but for what comes
    /// behind the last chunk.
    pub(super) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Over {
            if let Place::Data(left) = self.place {
                let length = left.min(bytes.len() - at);
                body.extend_from_slice(&bytes[at..at + length]);
                at += length;
                self.place = if length == left { Place::DataEnd } else { Place::Data(left - length) };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.place = match (self.place, byte) {
                (Place::Size | Place::Extension, b'\n') if self.size == 0 => Place::Trailer { empty: true },
                (Place::Size | Place::Extension, b'\n') => Place::Data(std::mem::take(&mut self.size)),
                (Place::Size, byte) => match char::from(byte).to_digit(16) {
                    Some(digit) => {
                        self.size = self.size.saturating_mul(16) + usize::try_from(digit).unwrap_or_default();
                        Place::Size
                    }
                    None => Place::Extension,
                },
                (Place::DataEnd, b'\n') => Place::Size,
                (Place::Trailer { empty: true }, b'\n') => Place::Over,
                (Place::Trailer { .. }, b'\n') => Place::Trailer { empty: true },
                (Place::Trailer { empty }, byte) => Place::Trailer { empty: empty && byte == b'\r' },
                (place, _) => place,
            };
        }
        at
    }

    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_the_same_however_they_are_cut() {
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
    fn a_body_that_breaks_off_is_not_over() {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        chunks.take(b"a\r\nhello", &mut body);
        assert!(!chunks.is_over() && body == b"hello");
    }
}
