//! Characters that a terminal only shows.

/// Whether a terminal only shows the character. Others change what a person sees of the rest of a text.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
}
