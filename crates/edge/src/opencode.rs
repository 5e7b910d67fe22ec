//! The additions of a gateway with the agent OpenCode to the protocol, for the configuration and the reference page.

pub use longshore_wire::opencode::reference::page as methods_reference;
pub use longshore_wire::opencode::{DEFAULT_DESCRIPTION, NAME, SURFACE};
