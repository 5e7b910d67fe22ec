//! Reads lines with a bound.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Reads lines. [`Self::next`] is cancel safe: dropping its future loses nothing.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// How many bytes at the start of the buffer contain no line end.
    searched: usize,
    longest: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Makes a reader for which a line of more than `longest` bytes is an error.
    pub(crate) fn new(reader: R, longest: usize) -> Self {
        Self { reader, buffer: Vec::new(), searched: 0, longest }
    }

    /// The next line, without its line end. `None`: the input has ended. A last line without a line end is dropped.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            let rest = &self.buffer[self.searched..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            self.searched += end.unwrap_or(rest.len());
            if self.is_too_long() {
                return Err(io::Error::other(format!("a line has more than {} bytes", self.longest)));
            }
            if end.is_some() {
                let mut line: Vec<u8> = self.buffer.drain(..=self.searched).collect();
                line.pop();
                self.searched = 0;
                return String::from_utf8(line).map(Some).map_err(io::Error::other);
            }
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Whether the current line is longer than allowed.
    pub(crate) fn is_too_long(&self) -> bool {
        self.searched > self.longest
    }

    /// The part of the current line that was read so far.
    pub(crate) fn beginning(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the reader. Fails if bytes after the last line were already read, because they would be lost.
    pub(crate) fn into_reader(self) -> io::Result<R> {
        if self.buffer.is_empty() {
            Ok(self.reader)
        } else {
            Err(io::Error::other("more came than was expected"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_split_and_bounded() {
        let mut lines = Lines::new(&b"one\n\nthree, which is long\nfour"[..], 100);
        for expected in ["one", "", "three, which is long"] {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(expected));
        }
        assert_eq!(lines.next().await.unwrap(), None);
        for long in ["a".repeat(200), format!("{}\n", "a".repeat(101))] {
            let mut lines = Lines::new(long.as_bytes(), 100);
            assert!(lines.next().await.is_err() && lines.is_too_long());
        }
        assert!(Lines::new(&b"\xff\n"[..], 100).next().await.is_err());
    }
}
