//! Random damage to valid JSON.

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) enum Damage {
    Replace(prop::sample::Index, u8),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, &'static str),
    Repeat(prop::sample::Index, prop::sample::Index),
}

impl Damage {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let position = |index: &prop::sample::Index, bytes: &[u8]| index.index(bytes.len() + 1);
        match self {
            Self::Replace(at, byte) => {
                let at = position(at, bytes);
                bytes.splice(at..(at + 1).min(bytes.len()), [*byte]);
            }
            Self::Remove(at, count) => {
                let at = position(at, bytes);
                bytes.drain(at..(at + count).min(bytes.len()));
            }
            Self::Insert(at, token) => {
                let at = position(at, bytes);
                bytes.splice(at..at, token.bytes());
            }
            Self::Repeat(from, to) => {
                let (from, to) = (position(from, bytes), position(to, bytes));
                let piece = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let tokens =
        vec!["{", "}", "[", "]", ",", "\"", "\\", "null", "\\ud800", "1e999", "\n", "é", "\"id\":", "-", " "];
    prop_oneof![
        (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (index(), 1..20_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        (index(), prop::sample::select(tokens)).prop_map(|(at, token)| Damage::Insert(at, token)),
        (index(), index()).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}
