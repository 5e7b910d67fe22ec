//! The kinds of OpenCode's ids.

use crate::methods::IdKind;

const fn kind(name: &'static str, prefix: &'static str) -> IdKind {
    IdKind { name, prefix, agent: "OpenCode" }
}

pub const SESSION: IdKind = kind("Session", "ses");
pub const MESSAGE: IdKind = kind("Message", "msg");
pub const PART: IdKind = kind("Part", "prt");
pub const WORKSPACE: IdKind = kind("Workspace", "wrk");
