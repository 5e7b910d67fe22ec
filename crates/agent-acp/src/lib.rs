//! Drives coding agents that speak the Agent Client Protocol (ACP): JSON-RPC 2.0 over the standard input and output of a child
//! process, one JSON object per line.
//!
//! A line comes from [`process`] through [`frame`] (which message is it?) and [`connection`] (which request or session does it
//! belong to?) to the pure [`translate`], which makes [`longshore_model::AgentEvent`]s of it. [`schema`] has the types of the
//! messages, [`permission`] the choice of an answer, and [`content`] the blocks of a prompt. [`client`] has the files and commands
//! that an agent may ask for, and [`ignored`] counts what is not understood. [`launch`] starts an agent and [`turn`] follows one prompt. [`AcpAgent`] implements
//! [`longshore_engine::port::Agent`] with all of these.

mod agent;
pub mod client;
pub mod connection;
pub mod content;
pub mod frame;
pub mod ignored;
pub mod launch;
#[cfg(test)]
mod peer;
pub mod permission;
pub mod process;
mod record;
pub mod schema;
pub mod translate;
pub mod turn;

pub use crate::agent::{AcpAgent, AcpConfig, AgentFacts, Capabilities, SessionServers};
pub use crate::client::FileAccess;
