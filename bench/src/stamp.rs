//! The text of a delta: a mark, its number, the time at which it was written, and filler.
//!
//! The text contains no character that JSON escapes and no space. So the clients find it in the bytes of any server's stream, even
//! when several deltas were merged into one event.

use std::fmt::Write as _;

use memchr::memchr;

use crate::clock;

/// The shortest delta: the mark, six digits of number, sixteen of time.
pub const MINIMUM: usize = 1 + NUMBER + TIME;
const MARK: u8 = b'~';
const NUMBER: usize = 6;
const TIME: usize = 16;
const FILLER: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// A delta that was found in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp<'a> {
    pub number: u64,
    /// On the clock of [`clock::monotonic_ns`].
    pub made_ns: u64,
    /// The whole delta.
    pub text: &'a [u8],
}

/// Writes the next delta, with the current time, at least [`MINIMUM`] bytes long.
pub fn write(text: &mut String, number: u64, size: usize) {
    let at = clock::monotonic_ns();
    // Writing to a string cannot fail.
    let _ = write!(text, "~{:0NUMBER$x}{at:0TIME$x}", number & 0xff_ffff);
    let offset = usize::try_from(number).unwrap_or_default();
    text.extend((MINIMUM..size).map(|index| char::from(FILLER[(offset + index) % FILLER.len()])));
}

/// The deltas in some bytes, in order. Text that only resembles a delta is skipped.
pub fn find(bytes: &[u8]) -> impl Iterator<Item = Stamp<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        loop {
            let at = memchr(MARK, rest)?;
            let from = &rest[at..];
            let length = 1 + from[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            rest = &from[length..];
            if let Some(stamp) = read(&from[..length]) {
                return Some(stamp);
            }
        }
    })
}

fn read(text: &[u8]) -> Option<Stamp<'_>> {
    let hex = |from: usize, to: usize| {
        let digits = std::str::from_utf8(text.get(from..to)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    Some(Stamp { number: hex(1, 1 + NUMBER)?, made_ns: hex(1 + NUMBER, MINIMUM)?, text })
}

/// A checksum of a text, which does not depend on how the text is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextSum(pub u64);

impl Default for TextSum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TextSum {
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub fn of(bytes: &[u8]) -> Self {
        let mut sum = Self::default();
        sum.add(bytes);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_deltas_are_found_in_any_text() {
        let mut text = String::new();
        for number in 0..3 {
            write(&mut text, number, 30);
        }
        assert_eq!(text.len(), 90);
        let line = format!("data: {{\"text\":\"{text}\"}} ~nothing ~");
        let found: Vec<_> = find(line.as_bytes()).collect();
        assert_eq!(found.iter().map(|stamp| stamp.number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(found.windows(2).all(|pair| pair[0].made_ns <= pair[1].made_ns));
        let joined: Vec<u8> = found.iter().flat_map(|stamp| stamp.text).copied().collect();
        assert_eq!(joined, text.as_bytes());
        assert_eq!(find(b"~00000g0000000000000000").count(), 0);
    }

    #[test]
    fn a_delta_is_never_shorter_than_its_stamp() {
        let mut text = String::new();
        write(&mut text, 0xab_cdef, 1);
        assert_eq!(text.len(), MINIMUM);
        assert_eq!(find(text.as_bytes()).next().map(|stamp| stamp.number), Some(0xab_cdef));
    }

    #[test]
    fn the_checksum_does_not_depend_on_how_the_text_is_split() {
        let mut sum = TextSum::default();
        sum.add(b"one ");
        sum.add(b"two");
        assert_eq!(sum, TextSum::of(b"one two"));
        assert_ne!(sum, TextSum::of(b"one twp"));
    }
}
