//! A2A 0.3. Its JSON-RPC and its REST have the same meaning and different shapes: one encoder and one decoder, with the
//! dialect as a parameter.
//!
//! What 0.3 cannot say is lost on the way out, and only that: a task has one stream artifact for all blocks, of a tool
//! call the last state is told, data is an object, and only files have a media type and a name. No chunk of the stream
//! artifact is called its last one: the last is known to be so only when the task is over, and then nothing is left to say.

pub mod card;
pub mod decode;
pub mod encode;
pub mod error;
pub mod method;
mod names;
mod part;

#[cfg(test)]
mod properties;

use crate::spelling::Spelling;

/// As the card and the header `A2A-Version` spell this version.
pub const VERSION: &str = "0.3";

/// The two shapes of 0.3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// JSON-RPC: objects say their `kind`, enums are words.
    Rpc,
    /// REST: ProtoJSON of `a2a.v1`. The parts of a message stand under `content`.
    Rest,
}

impl Dialect {
    pub const ALL: [Self; 2] = [Self::Rpc, Self::Rest];

    pub(crate) fn spelling(self) -> &'static Spelling {
        match self {
            Self::Rpc => &RPC,
            Self::Rest => &REST,
        }
    }
}

const RPC: Spelling = Spelling {
    role_name: names::role_word,
    state_name: names::state_word,
    role: names::role,
    state: names::state,
    state_from_text: names::state_from_text,
    read_part: part::read_rpc,
    write_part: part::write_rpc,
    parts: &["parts", "content"],
    has_kinds: true,
    has_references: true,
};

/// Readers of ProtoJSON may refuse a field that they do not know, so nothing else is written.
const REST: Spelling = Spelling {
    role_name: crate::v1::role_name,
    state_name: names::state_enum,
    read_part: part::read_rest,
    write_part: part::write_rest,
    parts: &["content", "parts"],
    has_kinds: false,
    has_references: false,
    ..RPC
};
