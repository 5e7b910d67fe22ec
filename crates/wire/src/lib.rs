//! Converts between the bytes of A2A and the gateway's own model: decodes requests into commands, and encodes model values as
//! responses.
//!
//! This crate opens no socket, reads no clock and keeps no state. The readers accept everything that ProtoJSON permits (camelCase
//! and `snake_case`, enum names and numbers, both base64 alphabets, `null` for an absent value). The writers produce canonical,
//! compact JSON on one line. Content that the gateway only passes on (metadata, data parts) keeps its original text, so no number
//! loses a digit.

pub mod agent;
mod base64;
mod card;
pub mod contract;
pub mod extension;
mod json;
pub mod jsonrpc;
pub mod methods;
pub mod names;
/// The metadata fields of the only agent that has such fields. The decoders read them for every agent, and other agents
/// refuse them.
use opencode::message_options as agent_options;
pub mod openapi;
pub mod opencode;
pub mod output;
mod read;
pub mod sessions;
mod spelling;
pub mod surface;
mod time;
pub mod v03;
pub mod v1;
mod write;

#[cfg(test)]
mod testing;
