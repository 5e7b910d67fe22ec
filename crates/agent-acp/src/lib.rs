//! Drives coding agents that speak the Agent Client Protocol (ACP): JSON-RPC 2.0 over the standard input and output of a child
//! process, one JSON object per line.
//!
//! A line comes from [`process`] through [`frame`] (which kind of message is it?) and [`connection`] (to which request or session
//! does it belong?) to [`translate`], which does no IO and converts it into [`longshore_model::AgentEvent`]s. [`schema`] has the
//! types of the messages, [`permission`] chooses the option for an answer, and [`content`] builds the blocks of a prompt.
//! [`client`] serves the agent's requests for files and commands, and [`ignored`] counts content that is not understood. [`launch`]
//! starts an agent, and [`turn`] follows one prompt. [`AcpAgent`] implements [`longshore_engine::port::Agent`] with all of these.

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
