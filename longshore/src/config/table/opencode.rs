//! Which OpenCode, where it works, and what every prompt asks for.

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Group, Kind, Setting};

pub const BASE_URL: Setting = Setting {
    key: "opencode.base_url",
    flag: Some("opencode-url"),
    env: Some("OPENCODE_BASE_URL"),
    group: Group::OpenCode,
    kind: Kind::BaseUrl,
    fallback: Computed("Longshore starts an OpenCode of its own"),
    help: "The OpenCode server to attach to, for one that runs already.",
};

pub const USERNAME: Setting = Setting {
    key: "opencode.auth_username",
    flag: None,
    env: Some("OPENCODE_AUTH_USERNAME"),
    group: Group::OpenCode,
    kind: Kind::Text,
    fallback: Value("opencode"),
    help: "The user name for the OpenCode that Longshore attaches to.",
};

pub const PASSWORD: Setting = Setting {
    key: "opencode.auth_password",
    flag: None,
    env: Some("OPENCODE_AUTH_PASSWORD"),
    group: Group::OpenCode,
    kind: Kind::Secret,
    fallback: Nothing,
    help: "The password for the OpenCode that Longshore attaches to. Without one, no credential is sent.",
};

pub const PROGRAM: Setting = Setting {
    key: "opencode.program",
    flag: Some("opencode"),
    env: Some("LONGSHORE_OPENCODE"),
    group: Group::OpenCode,
    kind: Kind::Path,
    fallback: Value("opencode"),
    help: "The OpenCode program to start. A bare name is looked up on the PATH.",
};

pub const DEMO: Setting = Setting {
    key: "opencode.demo",
    flag: Some("demo"),
    env: Some("LONGSHORE_DEMO"),
    group: Group::OpenCode,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Answer with the built-in demo model: OpenCode runs in a home of its own under the data directory, \
           needs no account and no network, and ends with the gateway.",
};

pub const WORKSPACE: Setting = Setting {
    key: "opencode.workspace_root",
    flag: Some("workspace"),
    env: Some("OPENCODE_WORKSPACE_ROOT"),
    group: Group::OpenCode,
    kind: Kind::Path,
    fallback: Computed("the current directory"),
    help: "The directory that the agent works in. Its path must be UTF-8 without a percent sign before two hexadecimal \
           digits, which OpenCode would misread.",
};

pub const STREAM_SILENCE: Setting = Setting {
    key: "opencode.stream_silence",
    flag: Some("stream-silence"),
    env: Some("LONGSHORE_STREAM_SILENCE"),
    group: Group::OpenCode,
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long OpenCode's event stream may be silent before the connection is taken for dead and made anew. OpenCode \
           says every 10 s that it is there, so a shorter time makes the connection anew again and again.",
};

pub const MODEL: Setting = Setting {
    key: "opencode.model",
    flag: Some("model"),
    env: Some("LONGSHORE_MODEL"),
    group: Group::OpenCode,
    kind: Kind::Model,
    fallback: Computed("OpenCode's own choice"),
    help: "The model for every prompt.",
};

pub const AGENT: Setting = Setting {
    key: "opencode.agent",
    flag: Some("agent"),
    env: Some("OPENCODE_AGENT"),
    group: Group::OpenCode,
    kind: Kind::Text,
    fallback: Computed("OpenCode's own choice"),
    help: "The OpenCode agent for every prompt, for example `build` or `plan`.",
};

pub const SYSTEM: Setting = Setting {
    key: "opencode.system",
    flag: Some("system"),
    env: Some("OPENCODE_SYSTEM"),
    group: Group::OpenCode,
    kind: Kind::Text,
    fallback: Nothing,
    help: "Text that is added to the system prompt of every prompt.",
};

pub const VARIANT: Setting = Setting {
    key: "opencode.variant",
    flag: Some("variant"),
    env: Some("OPENCODE_VARIANT"),
    group: Group::OpenCode,
    kind: Kind::Text,
    fallback: Computed("the model's own"),
    help: "The variant of the model for every prompt, for example a reasoning effort.",
};

pub const DIRECTORY_OVERRIDE: Setting = Setting {
    key: "opencode.allow_directory_override",
    flag: Some("allow-directory-override"),
    env: Some("A2A_ALLOW_DIRECTORY_OVERRIDE"),
    group: Group::OpenCode,
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Whether callers may choose a directory: one below the workspace, or a worktree or workspace of its project. \
           Otherwise every context works in the workspace itself.",
};
