//! Prefixes of OpenCode's ids: one definition for the code that reads them, checks them and builds ids from them.

/// This prefix and a session id are the id of the context that always stands for that session.
pub const SESSION_CONTEXT_PREFIX: &str = "ctx:opencode-session:";

pub const SESSION_PREFIX: &str = "ses";
pub const MESSAGE_PREFIX: &str = "msg";
pub const PART_PREFIX: &str = "prt";
pub const WORKSPACE_PREFIX: &str = "wrk";
