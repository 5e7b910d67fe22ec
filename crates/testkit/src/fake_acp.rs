//! A fake ACP agent for tests: a process that does what the test scripts.
//!
//! The program `fake-acp` calls [`run`]. It gets its script in one of two ways:
//!
//! - A prompt whose text is a JSON array is the script of its own turn: `[{"text":"hello "},{"die":null}]`. See [`Action`].
//! - Otherwise a [`FakeAcp`] in the test's process gives the script, knows what the agent received, and opens its gates.
//!
//! A prompt without a script is echoed. Sessions are kept in the state directory and can be loaded by a later process.

mod action;
mod process;
mod remote;
mod turn;

pub use action::{Action, Options};
pub use process::run;
pub use remote::FakeAcp;

/// The variables of the process: [`Options`] as JSON, the directory for sessions, and the socket of the [`FakeAcp`].
pub const OPTIONS: &str = "FAKE_ACP_OPTIONS";
pub const STATE: &str = "FAKE_ACP_STATE";
pub const SOCKET: &str = "FAKE_ACP_SOCKET";
