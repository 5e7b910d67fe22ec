//! A2A 0.3. In 0.3, JSON-RPC and REST have different formats with the same meaning. So there is one encoder and one decoder, with
//! the dialect as a parameter.
//!
//! The output only loses what 0.3 cannot express. A task has a single stream artifact for all blocks. Of a tool call, only the last
//! state is written. Data is always an object. Only files have a media type and a name.

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

/// The two formats of 0.3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// JSON-RPC: objects have a `kind`, and enums are words.
    Rpc,
    /// REST: ProtoJSON of `a2a.v1`. The parts of a message are in `content`.
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

/// The spelling of REST. ProtoJSON readers may refuse unknown fields, so no fields of other dialects are written.
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
