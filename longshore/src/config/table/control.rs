//! What callers may query and change in OpenCode besides turns.

use super::super::setting::Fallback::Value;
use super::super::setting::{Kind, Setting};

pub const SESSION_SHELL: Setting = Setting {
    key: "control.session_shell",
    flag: Some("session-shell"),
    env: Some("A2A_ENABLE_SESSION_SHELL"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability session_shell run shell commands: in their sessions \
           (opencode.sessions.shell), as the start command of a new worktree (opencode.worktrees.create), and by the text \
           that a message adds to a command of an agent over ACP. The agent runs these commands without asking for \
           permission. Always off when environment.sandbox_mode is read-only or \
           environment.write_scope is none.",
};

pub const WORKSPACE_MUTATIONS: Setting = Setting {
    key: "control.workspace_mutations",
    flag: Some("workspace-mutations"),
    env: Some("A2A_ENABLE_WORKSPACE_MUTATIONS"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability workspace_mutation create and remove worktrees and OpenCode workspaces of \
           the project, and reset worktrees (opencode.worktrees.*, opencode.workspaces.*). Everything in them that was \
           not committed is lost when they are removed or reset. Always off when environment.sandbox_mode is read-only \
           or environment.write_scope is none.",
};

pub const SESSION_SHARE: Setting = Setting {
    key: "control.session_share",
    flag: Some("session-share"),
    env: Some("LONGSHORE_SESSION_SHARE"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability session_share publish their sessions, with all messages and diffs, under a public \
           address of OpenCode's sharing service, and end that (opencode.sessions.share, opencode.sessions.unshare).",
};

pub const SESSION_DELETE: Setting = Setting {
    key: "control.session_delete",
    flag: Some("session-delete"),
    env: Some("LONGSHORE_SESSION_DELETE"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Let callers with the capability session_delete delete their sessions from the agent, with all messages \
           (a2a.sessions.delete; for OpenCode opencode.sessions.delete, also with the sessions of sub-agents).",
};

pub const SESSION_GUARD: Setting = Setting {
    key: "control.session_guard",
    flag: Some("session-guard"),
    env: Some("LONGSHORE_SESSION_GUARD"),
    kind: Kind::Choice(&["owner", "shared-reads", "shared"]),
    fallback: Value("owner"),
    help: "Who may use a session of OpenCode. owner: the caller for whom the session was created, or who claimed it \
           with the capability session_claim. shared-reads: every caller may read all sessions. shared: every caller \
           may also change all sessions, except for starting turns. Tasks always belong to their owner alone.",
};

pub const CLAIM_TTL: Setting = Setting {
    key: "control.claim_ttl",
    flag: Some("claim-ttl"),
    env: Some("A2A_PENDING_SESSION_CLAIM_TTL_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long other callers are kept away from an unowned session while a call that claims it is running.",
};

pub const WATCH_DIRECTORIES: Setting = Setting {
    key: "control.watch_directories",
    flag: Some("watch-directories"),
    env: Some("LONGSHORE_WATCH_DIRECTORIES"),
    kind: Kind::CountOrNone,
    fallback: Value("16"),
    help: "The number of directories in which Longshore watches sessions for prompts from other clients of OpenCode. \
           Such a prompt becomes a task of the session's owner. The workspace itself is one of these directories. Each \
           directory costs OpenCode 50 to 75 MB of memory. 0: none.",
};

pub const ALWAYS_SCOPE: Setting = Setting {
    key: "control.always_scope",
    flag: Some("always-scope"),
    env: Some("LONGSHORE_ALWAYS_SCOPE"),
    kind: Kind::Choice(&["session", "agent", "opencode"]),
    fallback: Value("session"),
    help: "Where the answer always to a permission of the agent applies. session: in the session that asked and its \
           sub-agents, for the caller who answered, until the approval is revoked \
           (opencode.permissions.approvals.revoke). agent: the agent keeps the approval itself, and callers may name those of \
           its options that allow or reject always. OpenCode keeps it for all sessions in the directory, also those of other \
           callers, until it ends; then one caller's approval lets the agent act for others without asking them. opencode: the \
           older name of agent.",
};
