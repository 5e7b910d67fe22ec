//! The kept output of a command: its last bytes.

use std::collections::VecDeque;

/// The most bytes that are kept of a command's output, even if the agent asks for more.
pub(super) const MAX_KEPT: usize = 1024 * 1024;

/// The largest output that callers see while the command runs. A larger output is shown only at the end of the command, because
/// each further piece may remove its beginning.
const MAX_LIVE: usize = 64 * 1024;

/// How many bytes from the end of the output callers see.
const MAX_SHOWN: usize = 256 * 1024;

const LEFT_OUT: &str = "[the output before this is left out]\n";

/// The output of a command: see the module.
#[derive(Debug)]
pub(super) struct Output {
    most: usize,
    kept: VecDeque<u8>,
    is_cut: bool,
    /// Whether there is output that callers have not seen.
    is_news: bool,
}

impl Output {
    /// `most`: the number of bytes that the agent wants to be kept.
    pub(super) fn new(most: Option<u64>) -> Self {
        let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_KEPT).min(MAX_KEPT);
        Self { most, kept: VecDeque::new(), is_cut: false, is_news: false }
    }

    pub(super) fn push(&mut self, more: &[u8]) {
        self.is_news = true;
        // Never holds more than `most` bytes, not even for a moment.
        let last = &more[more.len().saturating_sub(self.most)..];
        let over = (self.kept.len() + last.len()).saturating_sub(self.most);
        self.is_cut |= over > 0 || last.len() < more.len();
        self.kept.drain(..over);
        self.kept.extend(last);
    }

    /// The kept text, and whether its beginning is missing.
    pub(super) fn text(&self) -> (String, bool) {
        (text_of(&self.kept, self.is_cut, self.most), self.is_cut)
    }

    /// The output for callers while the command runs. `None`: there is nothing new, or too much.
    pub(super) fn live(&mut self) -> Option<String> {
        let is_due = std::mem::take(&mut self.is_news) && !self.is_cut && self.kept.len() <= MAX_LIVE;
        is_due.then(|| self.text().0)
    }

    /// The output for callers after the command has ended.
    pub(super) fn shown(&self) -> String {
        let (text, is_cut) = self.text();
        let over = text.len().saturating_sub(MAX_SHOWN);
        let end = &text[text.ceil_char_boundary(over)..];
        if is_cut || over > 0 { format!("{LEFT_OUT}{end}") } else { text }
    }
}

/// Decodes the bytes. Leaves out a character at the start or the end of which only a part is there.
fn text_of(bytes: &VecDeque<u8>, is_cut: bool, most: usize) -> String {
    let bytes: Vec<u8> = bytes.iter().copied().collect();
    let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let broken = if is_cut { bytes.iter().take(3).take_while(is_continuation).count() } else { 0 };
    let mut bytes = &bytes[broken..];
    if let Some(chunk) = bytes.utf8_chunks().last() {
        let is_unfinished = std::str::from_utf8(chunk.invalid())
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none());
        if is_unfinished {
            bytes = &bytes[..bytes.len() - chunk.invalid().len()];
        }
    }
    let text = String::from_utf8_lossy(bytes);
    // An invalid byte becomes a replacement character of three bytes, so the text may be longer than the bytes.
    let over = text.len().saturating_sub(most);
    text[text.ceil_char_boundary(over)..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_and_cut_at_a_character() {
        for (most, pieces, expected) in [
            (100, &["ab", "cd"] as &[&str], ("abcd", false)),
            (3, &["ab", "cd"], ("bcd", true)),
            (3, &["abcdef"], ("def", true)),
            // Each character has two bytes, so five bytes hold two whole ones.
            (5, &["äöü"], ("öü", true)),
            (4, &["€€"], ("€", true)),
            (0, &["a"], ("", true)),
        ] {
            let mut output = Output::new(Some(most));
            for piece in pieces {
                output.push(piece.as_bytes());
            }
            assert_eq!(output.text(), (expected.0.to_owned(), expected.1), "{most} {pieces:?}");
        }
    }

    #[test]
    fn a_character_that_is_not_complete_yet_is_held_back() {
        let mut output = Output::new(None);
        output.push(b"a\xe2\x82");
        assert_eq!(output.live().as_deref(), Some("a"));
        output.push(b"\xac");
        assert_eq!(output.live().as_deref(), Some("a€"));
        assert_eq!(output.live(), None, "nothing new");
    }

    #[test]
    fn bytes_that_are_no_text_do_not_grow_over_the_limit() {
        let mut output = Output::new(Some(10));
        output.push(&[0xff; 1000]);
        let (text, is_cut) = output.text();
        assert!(text == "\u{fffd}".repeat(3) && is_cut, "{text:?}");
    }

    #[test]
    fn a_flood_is_bounded_for_the_agent_and_for_callers() {
        let mut output = Output::new(Some(u64::MAX));
        for _ in 0..100 {
            output.push("flood ".repeat(10_000).as_bytes());
        }
        assert_eq!(output.live(), None);
        assert_eq!(output.text().0.len(), MAX_KEPT);
        let shown = output.shown();
        assert!(shown.starts_with(LEFT_OUT) && shown.len() == LEFT_OUT.len() + MAX_SHOWN, "{}", shown.len());
    }
}
