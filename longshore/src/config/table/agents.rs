//! The agent that is served instead of OpenCode over HTTP.

use super::super::setting::Fallback::Computed;
use super::super::setting::{Kind, Setting};

pub const AGENTS: Setting = Setting {
    key: "agents",
    flag: Some("agent"),
    env: Some("LONGSHORE_AGENT"),
    kind: Kind::Agents,
    fallback: Computed("OpenCode over HTTP"),
    help: "The agent to serve, if it speaks the Agent Client Protocol (ACP): a preset, or the command line that starts it, for \
           example `qwen --acp`. No shell reads the line. `longshore agents` lists the presets.",
};
