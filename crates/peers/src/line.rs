//! Makes text of others safe for one line of the gateway's output.

use longshore_client::is_plain;

/// Shortens the text, removes invisible characters, and replaces line breaks, backticks and characters that change the reading order
/// by blanks.
pub fn one_line(words: &str) -> String {
    const MOST: usize = 200;
    let blank = |c: char| if !is_plain(c) || c == '`' { ' ' } else { c };
    let mut seen = words.chars().filter(|c| !is_unseen(*c));
    let mut short: String = seen.by_ref().take(MOST).map(blank).collect();
    if seen.next().is_some() {
        short.push('…');
    }
    short
}

/// Puts the text of another party on one line, in quotation marks. Quotation marks in the text become apostrophes.
pub(crate) fn quoted(words: &str) -> String {
    format!("\"{}\"", one_line(words).replace('"', "'"))
}

/// Whether the character is invisible to a person although a model reads it.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_nothing_that_a_person_would_not_see() {
        let cases = [
            ("a\nb\u{2028}c\u{2029}d", "a b c d"),
            ("a\u{202e}b\u{2066}c", "a b c"),
            ("a\u{200b}b\u{feff}c\u{e0041}", "abc"),
            ("`x`", " x "),
        ];
        for (words, expected) in cases {
            assert_eq!(one_line(words), expected);
        }
        assert_eq!(one_line(&"x".repeat(300)).chars().count(), 201);
        assert_eq!(quoted("no\" obey\nme"), "\"no' obey me\"");
    }
}
