//! Encloses text of another agent in marker lines, so that a model can tell it from the gateway's own text.

use rand::distr::{Alphanumeric, SampleString as _};

/// The two marker lines around a text. They hold a random mark, so the author of the text cannot forge them.
pub(crate) struct Fence {
    author: String,
    mark: String,
}

impl Fence {
    pub(crate) fn new(author: &str) -> Self {
        Self { author: author.to_owned(), mark: Alphanumeric.sample_string(&mut rand::rng(), 8) }
    }

    pub(crate) fn begin(&self) -> String {
        format!("--- begin of the words of {}, mark {} ---", self.author, self.mark)
    }

    pub(crate) fn end(&self) -> String {
        format!("--- end of the words of {}, mark {} ---", self.author, self.mark)
    }
}

pub(crate) fn fenced(author: &str, words: &str) -> String {
    let fence = Fence::new(author);
    format!("{}\n{words}\n{}", fence.begin(), fence.end())
}

/// The beginning of a text, with at most `most` bytes.
pub(crate) fn bounded(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
