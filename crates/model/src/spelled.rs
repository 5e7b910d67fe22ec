//! How OpenCode's own names are spelled: in one place for whoever reads them, checks them or makes names of them.

/// What stands before the name of a session in that of the context which always stands for it.
pub const CONTEXT_OF_SESSION: &str = "ctx:opencode-session:";

/// What the ids of sessions begin with.
pub const SESSION_ID: &str = "ses";
pub const MESSAGE_ID: &str = "msg";
pub const PART_ID: &str = "prt";
pub const WORKSPACE_ID: &str = "wrk";
