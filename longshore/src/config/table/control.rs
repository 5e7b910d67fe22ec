//! What callers who know OpenCode may look at and change there beside turns.

use super::super::setting::Fallback::Value;
use super::super::setting::{Group, Kind, Setting};

pub const SESSION_SHELL: Setting = Setting {
    key: "control.session_shell",
    flag: Some("session-shell"),
    env: Some("A2A_ENABLE_SESSION_SHELL"),
    group: Group::Control,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability session_shell run shell commands in their sessions (opencode.sessions.shell), and when a \
           worktree is made. OpenCode asks nobody before it runs them. Off in any case where environment.sandbox_mode is \
           read-only or environment.write_scope is none.",
};

pub const WORKSPACE_MUTATIONS: Setting = Setting {
    key: "control.workspace_mutations",
    flag: Some("workspace-mutations"),
    env: Some("A2A_ENABLE_WORKSPACE_MUTATIONS"),
    group: Group::Control,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability workspace_mutation make, reset and remove worktrees and workspaces of the project \
           (opencode.worktrees.*, opencode.workspaces.*). What is removed or reset is lost with all that was not committed. Off in \
           any case where environment.sandbox_mode is read-only or environment.write_scope is none.",
};

pub const SESSION_GUARD: Setting = Setting {
    key: "control.session_guard",
    flag: Some("session-guard"),
    env: Some("LONGSHORE_SESSION_GUARD"),
    group: Group::Control,
    kind: Kind::Choice(&["owner", "shared-reads", "shared"]),
    fallback: Value("owner"),
    help: "Whom sessions of OpenCode are for. owner: the caller that a session was made for, or who took it with the capability \
           session_claim. shared-reads: everybody may look at all sessions. shared: everybody may change them, too, but for \
           turns. Tasks are their owner's whatever this says.",
};

pub const CLAIM_TTL: Setting = Setting {
    key: "control.claim_ttl",
    flag: Some("claim-ttl"),
    env: Some("A2A_PENDING_SESSION_CLAIM_TTL_SECONDS"),
    group: Group::Control,
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long others are kept from a session that is nobody's while a call is under way that makes it the caller's.",
};

pub const WATCH_DIRECTORIES: Setting = Setting {
    key: "control.watch_directories",
    flag: Some("watch-directories"),
    env: Some("LONGSHORE_WATCH_DIRECTORIES"),
    group: Group::Control,
    kind: Kind::CountOrNone,
    fallback: Value("16"),
    help: "In how many directories sessions are watched for what is typed in other clients of OpenCode, so that it becomes a task of \
           the session's owner. The workspace itself is one of them. Each costs OpenCode 50 to 75 MB.",
};
