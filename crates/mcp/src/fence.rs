//! Marks words of another agent, so that a model can tell them from what the gateway says.

use rand::distr::{Alphanumeric, SampleString as _};

/// The words between two lines that their author cannot foresee, and so cannot imitate.
pub(crate) fn fenced(author: &str, words: &str) -> String {
    let mark = Alphanumeric.sample_string(&mut rand::rng(), 8);
    format!(
        "--- begin of the words of {author}, mark {mark} ---\n{words}\n--- end of the words of {author}, mark {mark} ---"
    )
}

/// A name in a line of the gateway: without characters that could begin a new line or hide something, and not long.
pub(crate) fn one_line(name: &str) -> String {
    const MOST: usize = 200;
    let plain = |c: char| if c.is_control() || c == '`' { ' ' } else { c };
    let mut short: String = name.chars().take(MOST).map(plain).collect();
    if name.chars().nth(MOST).is_some() {
        short.push('…');
    }
    short
}

/// The beginning of a text, with at most `most` bytes.
pub(crate) fn bounded(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
