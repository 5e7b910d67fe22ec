//! Providers, projects, workspaces and worktrees of the real OpenCode.
