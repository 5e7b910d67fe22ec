//! Finds characters that are safe to print on a terminal.

/// Whether a terminal just displays the character. Other characters change how the rest of a text appears.
pub fn is_plain(c: char) -> bool {
    !c.is_control() && !changes_order(c) && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether the character changes the order in which text is displayed. A person would then read something else than the program
/// gets.
fn changes_order(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
