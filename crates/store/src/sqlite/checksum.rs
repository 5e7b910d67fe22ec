//! Checksums of rows. They are needed because SQLite does not notice an overwritten byte inside a value.
//!
//! A checksum includes the keys of the row, so that content under a wrong key is noticed too. It is computed from eight bytes at a
//! time, to be fast, because every event has one.

use longshore_model::Epoch;

pub(super) fn of_event(task: i64, seq: i64, epoch: Epoch, kind: &str, body: &[u8]) -> i64 {
    Sum(1).number(task).number(seq).number(epoch.0.into()).text(kind.as_bytes()).text(body).end()
}

pub(super) fn of_snapshot(task: i64, seq: i64, summary: &[u8], artifacts: &[u8]) -> i64 {
    Sum(2).number(task).number(seq).text(summary).text(artifacts).end()
}

/// Each step is a bijection of the state, so a change in one word is never lost before the end.
struct Sum(u64);

impl Sum {
    fn word(self, word: u64) -> Self {
        Self((self.0 ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
    }

    fn number(self, number: i64) -> Self {
        self.word(number.cast_unsigned())
    }

    fn text(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum =
            words.iter().fold(self.word(bytes.len() as u64), |sum, word| sum.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum.word(u64::from_le_bytes(last))
    }

    /// Returns 32 bits only, because each byte counts in a row that is written for every event.
    fn end(self) -> i64 {
        (self.word(0).word(0).0 >> 32).cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_changes_the_sum() {
        let body = (0..100_u8).map(|number| number.wrapping_mul(7)).collect::<Vec<u8>>();
        let sum = |body: &[u8]| of_event(3, 4, Epoch(5), "status", body);
        for index in 0..body.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut other = body.clone();
                other[index] ^= change;
                assert_ne!(sum(&other), sum(&body), "{index} {change}");
            }
            assert_ne!(sum(&body[..index]), sum(&body), "{index}");
        }
        assert_ne!(of_event(4, 3, Epoch(5), "status", &body), sum(&body));
        assert!(u32::try_from(sum(&body)).is_ok());
    }
}
