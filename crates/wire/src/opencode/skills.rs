//! The skills that only the card of an OpenCode gateway has.

use crate::contract::{PRIVATE_SKILL as PRIVATE, SkillRow};
use crate::extension::Extension;

pub(super) static TABLE: [SkillRow; 3] = [
    SkillRow {
        id: "opencode.sessions.management",
        name: "OpenCode Session Management",
        description: "Reads OpenCode sessions with their messages and changes, modifies them, and runs the agent in \
                      them.",
        tags: &["opencode", "sessions", "history", "provider-private"],
        extension: Some(Extension::SessionManagement),
        ..PRIVATE
    },
    SkillRow {
        id: "opencode.providers.query",
        name: "OpenCode Provider Catalog",
        description: "Lists the providers and models that OpenCode knows.",
        tags: &["opencode", "providers", "models", "provider-private"],
        extension: Some(Extension::ProviderDiscovery),
        ..PRIVATE
    },
    SkillRow {
        id: "opencode.workspace.control",
        name: "OpenCode Workspace Control",
        description: "Reads projects, workspaces and worktrees, and changes them if the operator allows it.",
        tags: &["opencode", "project", "workspace", "worktree", "provider-private"],
        extension: Some(Extension::WorkspaceControl),
        ..PRIVATE
    },
];
