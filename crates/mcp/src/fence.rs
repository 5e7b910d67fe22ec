//! Marks words of another agent, so that a model can tell them from what the gateway says.

use rand::distr::{Alphanumeric, SampleString as _};

/// Two lines that the author of the words between them cannot foresee, and so cannot imitate.
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
