//! Where values end: strings, brackets, lines, and what a shell puts together from them.

use std::ops::Range;

/// A quote with so many escapes before it. More than a few are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quote {
    sign: char,
    escapes: usize,
}

impl Quote {
    pub(super) fn new(sign: char, escapes: usize) -> Option<Self> {
        const MOST_ESCAPES: usize = 15;
        is_quote(sign).then(|| Self { sign, escapes: escapes.min(MOST_ESCAPES) })
    }
}

/// What is between the quotes that begin here, if one does. They may be escaped themselves.
pub(super) fn quoted(text: &str, start: usize) -> Option<Range<usize>> {
    let escapes = text[start..].len() - text[start..].trim_start_matches('\\').len();
    let quote = text[start + escapes..].chars().next().filter(|c| is_quote(*c))?;
    let inner = start + escapes + quote.len_utf8();
    let mut run = 0;
    for (at, c) in text[inner..].char_indices() {
        // More escapes than the first quote has: it is within another text.
        if c == quote && run <= escapes {
            return Some(inner..inner + at - run);
        }
        run = if c == '\\' { run + 1 } else { 0 };
    }
    Some(inner..text.len())
}

/// Where the brackets that begin here are closed, or the text ends, or what ends them anyway. Those in strings do not count.
pub(super) fn end_of_brackets(text: &str, start: usize, ends: impl Fn(char) -> bool) -> usize {
    let (mut at, mut depth, mut escapes) = (start, 0_usize, 0);
    let opening = text[start..].chars().next();
    let closing = opening.map(|c| match c {
        '{' => '}',
        '[' => ']',
        _ => ')',
    });
    while let Some(c) = text[at..].chars().next() {
        if ends(c) {
            return at;
        }
        if is_quote(c) {
            at = end_of_string(text, at - escapes);
            escapes = 0;
            continue;
        }
        at += c.len_utf8();
        escapes = if c == '\\' { escapes + 1 } else { 0 };
        if Some(c) == opening {
            depth += 1;
        } else if Some(c) == closing {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    text.len()
}

pub(super) fn end_of_line(text: &str, start: usize) -> usize {
    text[start..].find(['\n', '\r']).map_or(text.len(), |end| start + end)
}

/// Where a line ends that began in quotes: with them, unless something is written together with them.
pub(super) fn end_in_quotes(text: &str, start: usize, quote: Quote) -> usize {
    let mut escapes = 0;
    for (at, c) in text[start..].char_indices() {
        let at = start + at;
        if c == '\n' || c == '\r' {
            return at;
        }
        if c == quote.sign && escapes <= quote.escapes {
            return if ends_here(text, at + c.len_utf8()) { at } else { end_of_line(text, at) };
        }
        escapes = if c == '\\' { escapes + 1 } else { 0 };
    }
    text.len()
}

fn ends_here(text: &str, at: usize) -> bool {
    text[at..].chars().next().is_none_or(char::is_whitespace)
}

/// A value as a shell has it. If it is one string, what is in its quotes.
pub(super) fn one_value(text: &str, start: usize, open: &[Quote]) -> Range<usize> {
    let end = end_of_value(text, start, open);
    quoted(text, start)
        .filter(|quoted| quoted.end <= end && text[quoted.end..end].trim_start_matches('\\').len() <= 1)
        .unwrap_or(start..end)
}

/// Where a value ends that may be put together from words, strings and what is in brackets. A secret may have any sign in it
/// but those that end a word everywhere. `open`: the quotes that it stands in.
pub(super) fn end_of_value(text: &str, start: usize, open: &[Quote]) -> usize {
    let (mut at, mut escapes, mut before) = (start, 0, None);
    while let Some(c) = text[at..].chars().next() {
        let behind = at + c.len_utf8();
        if c == '&' || (c.is_whitespace() && escapes % 2 == 0) {
            return at;
        }
        let is_open = Quote::new(c, escapes).is_some_and(|quote| open.contains(&quote));
        if is_open && ends_here(text, behind) {
            return at;
        }
        at = if is_quote(c) && !is_open {
            end_of_string(text, at - escapes)
        } else if "([{".contains(c) {
            let is_command = before == Some('$');
            end_of_brackets(text, at, |c| c == '\n' && !is_command)
        } else {
            behind
        };
        escapes = if c == '\\' { escapes + 1 } else { 0 };
        before = Some(c);
    }
    at
}

/// Where a string ends, with its quotes.
fn end_of_string(text: &str, start: usize) -> usize {
    let inner_end = quoted(text, start).map_or(text.len(), |quoted| quoted.end);
    let behind = text[inner_end..].trim_start_matches('\\');
    text.len() - behind.strip_prefix(is_quote).unwrap_or(behind).len()
}

pub(super) fn is_quote(c: char) -> bool {
    "\"'`".contains(c)
}
