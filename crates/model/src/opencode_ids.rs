//! Prefixes of OpenCode's ids: one definition for the code that reads them, checks them and builds ids from them.

/// Followed by a session id, the id of the context that always stands for that session.
pub const CONTEXT_OF_SESSION: &str = "ctx:opencode-session:";

pub const SESSION_ID: &str = "ses";
pub const MESSAGE_ID: &str = "msg";
pub const PART_ID: &str = "prt";
pub const WORKSPACE_ID: &str = "wrk";
