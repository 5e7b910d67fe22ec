//! Remembers the reported text without keeping all of it.
//!
//! A snapshot of a text is compared with the reported text, to find the part that is missing. A short text is kept whole for that.
//! Of a longer text, only the beginning and a fingerprint are kept. The engine has the text itself.

use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};
use std::sync::LazyLock;

/// How many bytes from the beginning of a text are kept.
const HEAD: usize = 256;

/// One random key per process, so that the author of a text cannot construct a collision.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[derive(Debug, Default)]
pub(super) struct SentText {
    /// The whole text, or the first [`HEAD`] bytes of a longer text. Empty once the text is sealed.
    head: String,
    /// The fingerprint of the whole text. `None`: `head` contains all of it.
    fingerprint: Option<Box<Fingerprint>>,
}

#[derive(Debug)]
struct Fingerprint {
    len: usize,
    hasher: DefaultHasher,
}

impl Fingerprint {
    fn of(text: &str) -> Self {
        let mut fingerprint = Self { len: 0, hasher: KEY.build_hasher() };
        fingerprint.push(text);
        fingerprint
    }

    fn push(&mut self, text: &str) {
        self.len += text.len();
        // The hash does not depend on how the text is split into pieces. A test checks that.
        self.hasher.write(text.as_bytes());
    }
}

impl SentText {
    pub(super) fn push(&mut self, text: &str) {
        match &mut self.fingerprint {
            Some(fingerprint) => fingerprint.push(text),
            None if self.head.len() + text.len() <= HEAD => self.head.push_str(text),
            None => {
                let mut fingerprint = Fingerprint::of(&self.head);
                fingerprint.push(text);
                self.fingerprint = Some(Box::new(fingerprint));
                let room = text.floor_char_boundary(HEAD - self.head.len());
                self.head.push_str(&text[..room]);
                self.head.shrink_to_fit();
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.fingerprint.as_ref().map_or(self.head.len(), |fingerprint| fingerprint.len)
    }

    /// The part of `text` after the reported text. `None`: `text` does not start with the reported text.
    pub(super) fn rest_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let Some(fingerprint) = &self.fingerprint else { return text.strip_prefix(self.head.as_str()) };
        let (start, rest) = text.split_at_checked(fingerprint.len)?;
        (Fingerprint::of(start).hasher.finish() == fingerprint.hasher.finish()).then_some(rest)
    }

    /// Whether the reported text starts with `text`, which is shorter. Only the kept head can be compared.
    pub(super) fn begins_with(&self, text: &str) -> bool {
        let is_shorter = text.len() < self.len();
        is_shorter
            && (self.head.starts_with(text) || (text.len() > self.head.len() && text.starts_with(&self.head)))
    }

    /// Called when the text is final. From then on only equality matters, so the kept beginning is dropped.
    pub(super) fn seal(&mut self) {
        if self.fingerprint.is_none() && !self.head.is_empty() {
            self.fingerprint = Some(Box::new(Fingerprint::of(&self.head)));
        }
        self.head = String::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares the results with those of a `String` that keeps the whole text.
    fn check(pieces: &[String], text: &str) {
        let whole: String = pieces.concat();
        let mut sent = SentText::default();
        for piece in pieces {
            sent.push(piece);
        }
        assert_eq!(sent.is_empty(), whole.is_empty());
        assert_eq!(sent.rest_of(text), text.strip_prefix(whole.as_str()));
        if text.len() <= HEAD / 2 || whole.starts_with(text) {
            assert_eq!(sent.begins_with(text), text.len() < whole.len() && whole.starts_with(text));
        }
        assert!(sent.head.len() <= HEAD && sent.head.capacity() <= 2 * HEAD);
        sent.seal();
        assert_eq!(sent.head.capacity(), 0);
        assert_eq!(sent.is_empty(), whole.is_empty());
        assert_eq!(sent.rest_of(text), text.strip_prefix(whole.as_str()));
    }

    proptest! {
        #[test]
        fn the_missing_text_is_found_however_the_text_was_cut(
            pieces in proptest::collection::vec("[a-cé\u{1f600}]{0,300}", 0..8),
            cut in any::<prop::sample::Index>(),
            more in "[a-c]{0,20}",
        ) {
            let whole = pieces.concat();
            let shorter = &whole[..whole.floor_char_boundary(cut.index(whole.len() + 1))];
            for text in [whole.clone(), whole.clone() + &more, shorter.to_owned(), shorter.to_owned() + &more, more] {
                check(&pieces, &text);
            }
        }
    }

    #[test]
    fn a_long_text_is_not_kept() {
        let mut sent = SentText::default();
        let piece = "twenty-four bytes long. ";
        for _ in 0..100_000 {
            sent.push(piece);
        }
        assert!(sent.head.capacity() <= 2 * HEAD, "{}", sent.head.capacity());
        assert!(size_of::<SentText>() <= 32 && size_of::<Fingerprint>() <= 96);
        let whole = piece.repeat(100_000);
        assert_eq!(sent.rest_of(&(whole.clone() + "more")), Some("more"));
        assert_eq!(sent.rest_of(&whole.replacen("four", "five", 1)), None);
        assert!(sent.begins_with(&whole[..5_000]) && !sent.begins_with("other"));
    }
}
