//! The spellings of A2A: bytes in, model commands out; model values in, bytes out.
//!
//! Nothing here opens a socket, reads a clock or keeps state. Input is read as ProtoJSON allows it to be written
//! (camelCase and `snake_case`, enum names and numbers, both base64 alphabets, `null` for nothing); output is
//! canonical, compact and on one line. What the gateway only carries (metadata, data parts) stays the text that
//! came in, so no number loses a digit on the way.

mod base64;
mod card;
pub mod contract;
pub mod extension;
mod json;
pub mod jsonrpc;
pub mod methods;
pub mod openapi;
pub mod output;
mod read;
mod spelling;
pub mod surface;
mod time;
pub mod v03;
pub mod v1;
mod write;

#[cfg(test)]
mod arbitrary;
