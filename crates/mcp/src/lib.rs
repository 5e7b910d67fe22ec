//! An MCP server that offers [`longshore_peers::Tools`]: the tools `a2a_*`, with which an agent or an editor calls A2A agents.
//!
//! The official SDK, `rmcp`, implements the protocol itself (lifecycle, versions, framing). This crate adds the definitions of the
//! tools (`catalog`), reads their arguments (`arguments`), formats reports for a model (`results`), and bounds everything that a
//! client can send or leave unread.

mod arguments;
mod callers;
mod catalog;
mod connection;
mod fence;
mod http;
mod own_agent;
mod progress;
mod results;
mod server;

pub use callers::{CALL_KEY, Callers, IncomingCall};
pub use connection::serve;
pub use http::Http;
