//! A2A 1.0. JSON-RPC and REST share these shapes: ProtoJSON of `lf.a2a.v1`.

pub mod card;
pub mod decode;
pub mod encode;
pub mod error;
pub mod extension;
pub mod method;
mod names;
pub mod output;

#[cfg(test)]
mod properties;
