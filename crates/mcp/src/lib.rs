//! An MCP server that offers [`longshore_peers::Tools`]: the tools `a2a_*`, with which an agent or an editor calls A2A agents.
//!
//! The protocol itself (lifecycle, versions, framing) is that of the official SDK, `rmcp`. This crate adds what the tools are
//! (`catalog`), how their arguments are read (`arguments`), how reports are shown to a model (`results`), and bounds on everything
//! that a client can send or leave unread.

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
