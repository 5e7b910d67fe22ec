//! Makes the text to stream: readable filler, which is always the same, or the text of a scenario, split into pieces.

use super::Delta;

const WORDS: [&str; 24] = [
    "anchor", "ballast", "buoy", "capstan", "cargo", "chart", "compass", "davit", "fathom", "galley",
    "halyard", "harbour", "keel", "lantern", "mooring", "pilot", "quay", "rudder", "sextant", "tide",
    "tiller", "wharf", "winch", "windlass",
];

/// `chunks` deltas of exactly `size` characters each. The n-th is always the same, and ends with a space.
pub(super) fn filler(chunks: u64, size: usize) -> Box<dyn Iterator<Item = Delta> + Send> {
    Box::new((0..chunks).map(move |chunk| Delta::Text(filler_chunk(chunk, size))))
}

/// `text` in at most `chunks` deltas of about the same length.
pub(super) fn split(text: &str, chunks: u64) -> Box<dyn Iterator<Item = Delta> + Send> {
    Box::new(pieces(text, chunks).into_iter().map(Delta::Text))
}

/// `text` in at most `count` pieces. No piece is empty or splits a character.
pub(super) fn pieces(text: &str, count: u64) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let count = usize::try_from(count).unwrap_or(usize::MAX).clamp(1, characters.len().max(1));
    let length = characters.len().div_ceil(count).max(1);
    characters.chunks(length).map(|piece| piece.iter().collect()).collect()
}

fn filler_chunk(chunk: u64, size: usize) -> String {
    let start = usize::try_from(chunk % WORDS.len() as u64).unwrap_or_default();
    let mut text = String::with_capacity(size + 10);
    for word in WORDS.iter().cycle().skip(start) {
        if text.len() + 1 >= size {
            break;
        }
        text.push_str(word);
        text.push(' ');
    }
    // The words are ASCII, so that bytes are characters.
    text.truncate(size - 1);
    text.push(' ');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filler_has_exactly_the_requested_size() {
        for size in [1, 2, 3, 7, 8, 9, 100, 10_000] {
            for chunk in [0, 1, 23, 24, u64::MAX] {
                assert_eq!(filler_chunk(chunk, size).len(), size, "chunk {chunk} of size {size}");
            }
        }
        assert_eq!(filler_chunk(2, 8), "buoy ca ");
    }

    #[test]
    fn pieces_join_to_the_text() {
        for (text, count, expected) in
            [("", 3, 0), ("a", 3, 1), ("abc", 3, 3), ("abcd", 3, 2), ("größe 🚢 ahoi", 4, 4), ("abc", 0, 1)]
        {
            let pieces = pieces(text, count);
            assert_eq!(pieces.concat(), text);
            assert_eq!(pieces.len(), expected, "{text:?} in {count}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
