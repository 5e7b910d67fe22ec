//! Determines which session of an agent makes a tool call.
//!
//! The agent starts `longshore mcp` as an MCP server. That process is a *bridge*: it passes messages on to the gateway over the
//! unix socket [`SOCKET`] in the data directory, and connects again after a restart of the gateway.
//!
//! | agent | the session of a tool call |
//! |---|---|
//! | OpenCode, over HTTP or ACP | is an argument of the call. A plugin in OpenCode adds it, with a proof that the model cannot make |
//! | another ACP agent | belongs to the token of the bridge: each session gets a bridge with a token of its own |
//!
//! OpenCode needs the plugin for two reasons: its requests name no session, and it uses one bridge for all sessions of a directory,
//! over ACP too. The gateway refuses a call whose session it does not know.

mod bridge;
mod identify;
mod lines;
mod listen;
mod opencode;
mod secret;
mod socket;
mod tickets;
mod token;

pub use bridge::{BridgeError, bridge};
pub use listen::{Connections, Listener};
pub use opencode::{CONFIGURATION, OpenCodeFiles, PLUGIN, SERVER, merged};
pub use secret::Secret;
pub use socket::SOCKET;
pub use tickets::Tickets;
pub use token::Token;

/// The environment variables of a bridge: the path of the gateway's socket, and the token of the bridge.
pub const SOCKET_VARIABLE: &str = "LONGSHORE_MCP_SOCKET";
pub const TOKEN_VARIABLE: &str = "LONGSHORE_MCP_TOKEN";
