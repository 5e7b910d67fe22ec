//! A2A 1.0. JSON-RPC and REST share one format: the ProtoJSON of `lf.a2a.v1`.

pub mod card;
pub mod decode;
pub mod encode;
pub mod error;
pub mod extension;
pub mod method;
mod names;

pub use crate::output;
use crate::spelling::Spelling;
pub(crate) use names::{role, role_name, state_from_text, state_name};

#[cfg(test)]
mod properties;

pub(crate) const SPELLING: Spelling = Spelling {
    role_name: names::role_name,
    state_name: names::state_name,
    role: names::role,
    state: names::state,
    state_from_text: names::state_from_text,
    read_part: decode::part::part,
    write_part: encode::write_part,
    parts: &["parts"],
    has_kinds: false,
    has_references: true,
};
