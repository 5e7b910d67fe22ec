//! What was reported of a text, without keeping the text.
//!
//! A snapshot of the text shows what is missing of it, so it must be known whether it begins with what was reported. For that
//! the start of a text is kept, and a fingerprint of a longer one: the engine has the text itself.

use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};
use std::sync::LazyLock;

/// So much of a text is kept.
const HEAD: usize = 256;

/// One for the process, with a key that nobody knows who writes texts.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[derive(Debug, Default)]
pub(super) struct Sent {
    /// All of it, or the first part of one that is longer. Empty once it is sealed.
    head: String,
    /// Of all of it, when that is not kept.
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
        // Byte by byte the same, however it is cut: a test holds that.
        self.hasher.write(text.as_bytes());
    }
}

impl Sent {
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

    /// What a text has behind what was reported. `None`: it does not begin with that.
    pub(super) fn rest_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let Some(fingerprint) = &self.fingerprint else { return text.strip_prefix(self.head.as_str()) };
        let (mine, rest) = text.split_at_checked(fingerprint.len)?;
        (Fingerprint::of(mine).hasher.finish() == fingerprint.hasher.finish()).then_some(rest)
    }

    /// Whether it begins with a text that is shorter, as far as is known: of one that is longer than what is kept only the
    /// beginning is compared.
    pub(super) fn begins_with(&self, text: &str) -> bool {
        let is_shorter = text.len() < self.len();
        is_shorter
            && (self.head.starts_with(text) || (text.len() > self.head.len() && text.starts_with(&self.head)))
    }

    /// Nothing more is reported, unless it becomes another: only whether it is the same is of interest.
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

    /// As it was when the whole text was kept.
    fn check(pieces: &[String], text: &str) {
        let whole: String = pieces.concat();
        let mut sent = Sent::default();
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
        fn it_is_known_what_is_missing_however_the_text_came(
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
        let mut sent = Sent::default();
        let piece = "twenty-four bytes long. ";
        for _ in 0..100_000 {
            sent.push(piece);
        }
        assert!(sent.head.capacity() <= 2 * HEAD, "{}", sent.head.capacity());
        assert!(size_of::<Sent>() <= 32 && size_of::<Fingerprint>() <= 96);
        let whole = piece.repeat(100_000);
        assert_eq!(sent.rest_of(&(whole.clone() + "more")), Some("more"));
        assert_eq!(sent.rest_of(&whole.replacen("four", "five", 1)), None);
        assert!(sent.begins_with(&whole[..5_000]) && !sent.begins_with("other"));
    }
}
