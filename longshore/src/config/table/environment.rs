//! Declarations of the operator about where the agent works. Clients see them; Longshore does not enforce them.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const SANDBOX_MODE: Setting = Setting {
    key: "environment.sandbox_mode",
    flag: Some("sandbox-mode"),
    env: Some("A2A_SANDBOX_MODE"),
    kind: Kind::Choice(&["unknown", "read-only", "workspace-write", "danger-full-access", "custom"]),
    fallback: Value("unknown"),
    help: "The sandbox of the agent.",
};

pub const FILESYSTEM_SCOPE: Setting = Setting {
    key: "environment.filesystem_scope",
    flag: Some("filesystem-scope"),
    env: Some("A2A_SANDBOX_FILESYSTEM_SCOPE"),
    kind: Kind::Choice(&[
        "unknown",
        "workspace_only",
        "workspace_and_declared_roots",
        "unrestricted",
        "custom",
    ]),
    fallback: Value("unknown"),
    help: "Which files the agent can access.",
};

pub const WRITABLE_ROOTS: Setting = Setting {
    key: "environment.writable_roots",
    flag: Some("writable-roots"),
    env: Some("A2A_SANDBOX_WRITABLE_ROOTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Directories that the agent can write to. Callers see them exactly as written here. They must be in the \
           workspace when environment.filesystem_scope or environment.write_scope is workspace_only, and the list must \
           be empty when environment.write_scope is none.",
};

pub const NETWORK_ACCESS: Setting = Setting {
    key: "environment.network_access",
    flag: Some("network-access"),
    env: Some("A2A_NETWORK_ACCESS"),
    kind: Kind::Choice(&["unknown", "disabled", "enabled", "restricted", "custom"]),
    fallback: Value("unknown"),
    help: "Whether the agent can access the network.",
};

pub const ALLOWED_DOMAINS: Setting = Setting {
    key: "environment.allowed_domains",
    flag: Some("allowed-domains"),
    env: Some("A2A_NETWORK_ALLOWED_DOMAINS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "The domains that the agent can access.",
};

pub const APPROVAL_POLICY: Setting = Setting {
    key: "environment.approval_policy",
    flag: Some("approval-policy"),
    env: Some("A2A_APPROVAL_POLICY"),
    kind: Kind::Choice(&["unknown", "never", "on-request", "on-failure", "untrusted", "custom"]),
    fallback: Value("unknown"),
    help: "When the agent asks for permission.",
};

pub const ESCALATION_BEHAVIOR: Setting = Setting {
    key: "environment.escalation_behavior",
    flag: Some("escalation-behavior"),
    env: Some("A2A_APPROVAL_ESCALATION_BEHAVIOR"),
    kind: Kind::Choice(&["unknown", "manual", "automatic", "unsupported", "custom"]),
    fallback: Value("unknown"),
    help: "Who decides about the agent's permission requests.",
};

pub const WRITE_SCOPE: Setting = Setting {
    key: "environment.write_scope",
    flag: Some("write-scope"),
    env: Some("A2A_WRITE_ACCESS_SCOPE"),
    kind: Kind::Choice(&[
        "unknown",
        "none",
        "workspace_only",
        "workspace_and_declared_roots",
        "unrestricted",
        "custom",
    ]),
    fallback: Value("unknown"),
    help: "Which files the agent can write.",
};

pub const OUTSIDE_WORKSPACE: Setting = Setting {
    key: "environment.outside_workspace",
    flag: Some("outside-workspace"),
    env: Some("A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE"),
    kind: Kind::Choice(&["unknown", "allowed", "disallowed", "custom"]),
    fallback: Value("unknown"),
    help: "Whether the agent can write outside the workspace.",
};
