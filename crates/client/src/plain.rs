//! Characters that a terminal only shows.

/// Whether a terminal only shows the character. Others change what a person sees of the rest of a text.
pub fn is_plain(c: char) -> bool {
    !c.is_control() && !changes_order(c) && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// Whether the character changes the order in which a text is shown: what runs would not be what a person reads.
fn changes_order(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
