//! Which OpenCode to use, its workspace, and the options of every prompt.

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const BASE_URL: Setting = Setting {
    key: "opencode.base_url",
    flag: Some("opencode-url"),
    env: Some("OPENCODE_BASE_URL"),
    kind: Kind::BaseUrl,
    fallback: Computed("Longshore starts an OpenCode of its own"),
    help: "The URL of a running OpenCode server to attach to.",
};

pub const USERNAME: Setting = Setting {
    key: "opencode.auth_username",
    flag: None,
    env: Some("OPENCODE_AUTH_USERNAME"),
    kind: Kind::Text,
    fallback: Value("opencode"),
    help: "The user name for the OpenCode server that Longshore attaches to.",
};

pub const PASSWORD: Setting = Setting {
    key: "opencode.auth_password",
    flag: None,
    env: Some("OPENCODE_AUTH_PASSWORD"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The password for the OpenCode server that Longshore attaches to. Without a password, no credential is sent.",
};

pub const PROGRAM: Setting = Setting {
    key: "opencode.program",
    flag: Some("opencode"),
    env: Some("LONGSHORE_OPENCODE"),
    kind: Kind::Path,
    fallback: Value("opencode"),
    help: "The OpenCode program to start. A bare name is looked up on the PATH.",
};

pub const DEMO: Setting = Setting {
    key: "opencode.demo",
    flag: Some("demo"),
    env: Some("LONGSHORE_DEMO"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Use the built-in demo model. OpenCode then runs in its own home under the data directory, needs no account \
           and no network, and ends with the gateway.",
};

pub const WORKSPACE: Setting = Setting {
    key: "opencode.workspace_root",
    flag: Some("workspace"),
    env: Some("OPENCODE_WORKSPACE_ROOT"),
    kind: Kind::Path,
    fallback: Computed("the current directory"),
    help: "The directory that the agent works in. Its path must be UTF-8, and must not contain a percent sign followed \
           by two hexadecimal digits, which OpenCode would misread.",
};

pub const ALLOWED_ROOTS: Setting = Setting {
    key: "opencode.allowed_roots",
    flag: Some("allowed-roots"),
    env: Some("IACCODE_A2A_ALLOWED_CWDS"),
    kind: Kind::Paths,
    fallback: Nothing,
    help: "Further directories that callers may work in, besides the workspace: each with everything below it. They must \
           exist. opencode.allow_directory_override must be on.",
};

pub const STREAM_SILENCE: Setting = Setting {
    key: "opencode.stream_silence",
    flag: Some("stream-silence"),
    env: Some("LONGSHORE_STREAM_SILENCE"),
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long OpenCode's event stream may be silent before Longshore considers the connection dead and \
           reconnects. OpenCode sends a heartbeat every 10 s, so a shorter time causes constant reconnects.",
};

pub const MODEL: Setting = Setting {
    key: "opencode.model",
    flag: Some("model"),
    env: Some("LONGSHORE_MODEL"),
    kind: Kind::Model,
    fallback: Computed("OpenCode's own choice"),
    help: "The model for every prompt whose sender names none.",
};

pub const AGENT: Setting = Setting {
    key: "opencode.agent",
    flag: Some("opencode-agent"),
    env: Some("OPENCODE_AGENT"),
    kind: Kind::Text,
    fallback: Computed("OpenCode's own choice"),
    help: "The OpenCode agent for every prompt whose sender names none, for example `build` or `plan`.",
};

pub const SYSTEM: Setting = Setting {
    key: "opencode.system",
    flag: Some("system"),
    env: Some("OPENCODE_SYSTEM"),
    kind: Kind::Text,
    fallback: Nothing,
    help: "Text that is added to the system prompt of every turn. Text of the caller comes after it. OpenCode takes no such \
           text with its own commands (opencode.sessions.command).",
};

pub const VARIANT: Setting = Setting {
    key: "opencode.variant",
    flag: Some("variant"),
    env: Some("OPENCODE_VARIANT"),
    kind: Kind::Text,
    fallback: Computed("the model's own"),
    help: "The variant of the model for every prompt whose sender names none, for example a reasoning effort.",
};

pub const PIN: Setting = Setting {
    key: "opencode.pin",
    flag: Some("pin"),
    env: Some("LONGSHORE_PIN"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Options that callers may not choose: model, agent, variant, system. Each has the value of its own setting, or \
           else OpenCode's own. A pinned agent and model also hold for subtasks, for the shell, for summaries, and for \
           commands of OpenCode that name an agent or a model of their own.",
};

pub const ALLOWED_MODELS: Setting = Setting {
    key: "opencode.allowed_models",
    flag: Some("allowed-models"),
    env: Some("LONGSHORE_ALLOWED_MODELS"),
    kind: Kind::List,
    fallback: Computed("all"),
    help: "The models that callers may name besides opencode.model, for example `anthropic/*`. `*` stands for any text. An \
           empty list in the file allows none.",
};

pub const ALLOWED_AGENTS: Setting = Setting {
    key: "opencode.allowed_agents",
    flag: Some("allowed-agents"),
    env: Some("LONGSHORE_ALLOWED_AGENTS"),
    kind: Kind::List,
    fallback: Computed("all"),
    help: "The OpenCode agents that callers may name besides opencode.agent, also for subtasks. `*` stands for any text. An \
           empty list in the file allows none.",
};

pub const DIRECTORY_OVERRIDE: Setting = Setting {
    key: "opencode.allow_directory_override",
    flag: Some("allow-directory-override"),
    env: Some("A2A_ALLOW_DIRECTORY_OVERRIDE"),
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Whether callers may choose a directory: one below the workspace or opencode.allowed_roots, or a worktree or \
           OpenCode workspace of its project. Otherwise every context works in the workspace itself.",
};
