//! Marks words of another agent, so that a model can tell them from what the gateway says.

use rand::distr::{Alphanumeric, SampleString as _};

/// The words between two lines that their author cannot foresee, and so cannot imitate.
pub(crate) fn fenced(author: &str, words: &str) -> String {
    let mark = Alphanumeric.sample_string(&mut rand::rng(), 8);
    format!(
        "--- begin of the words of {author}, mark {mark} ---\n{words}\n--- end of the words of {author}, mark {mark} ---"
    )
}

/// The beginning of a text, with at most `most` bytes.
pub(crate) fn bounded(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
