//! Every setting. Flags, help, checks and `docs/configuration.md` all come from these rows.

use super::setting::Fallback::{Computed, Nothing, Value};
use super::setting::{Group, Kind, Setting};

pub const HOST: Setting = Setting {
    key: "serve.host",
    flag: Some("host"),
    env: Some("A2A_HOST"),
    group: Group::Listener,
    kind: Kind::Host,
    fallback: Value("127.0.0.1"),
    help: "Where to listen. 0.0.0.0 is every IPv4 interface; set the public URL too, then.",
};

pub const PORT: Setting = Setting {
    key: "serve.port",
    flag: Some("port"),
    env: Some("A2A_PORT"),
    group: Group::Listener,
    kind: Kind::Port,
    fallback: Value("8000"),
    help: "The port to listen on. 0 takes a free one, which is then shown.",
};

pub const PUBLIC_URL: Setting = Setting {
    key: "serve.public_url",
    flag: Some("public-url"),
    env: Some("A2A_PUBLIC_URL"),
    group: Group::Listener,
    kind: Kind::BaseUrl,
    fallback: Computed("the address that it listens on"),
    help: "The URL that clients use, as the agent card says it. Set it behind a proxy.",
};

pub const MAX_BODY: Setting = Setting {
    key: "serve.max_request_body_bytes",
    flag: Some("max-request-body-bytes"),
    env: Some("A2A_MAX_REQUEST_BODY_BYTES"),
    group: Group::Listener,
    kind: Kind::Bytes,
    fallback: Value("1048576"),
    help: "The largest request body. A larger one is answered with 413.",
};

pub const BEARER_TOKEN: Setting = Setting {
    key: "auth.bearer_token",
    flag: None,
    env: Some("A2A_BEARER_TOKEN"),
    group: Group::Auth,
    kind: Kind::Secret,
    fallback: Computed("a token made on the first start, when no other credential is set"),
    help: "One bearer token, for the principal `default`.",
};

pub const CREDENTIALS: Setting = Setting {
    key: "auth.credentials",
    flag: None,
    env: Some("A2A_STATIC_AUTH_CREDENTIALS"),
    group: Group::Auth,
    kind: Kind::Credentials,
    fallback: Nothing,
    help: "Who may call: bearer tokens, user names with passwords, and API keys, each with a principal.",
};

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

pub const TIMEOUT: Setting = Setting {
    key: "turns.control_timeout",
    flag: Some("control-timeout"),
    env: Some("OPENCODE_TIMEOUT"),
    group: Group::Turns,
    kind: Kind::Seconds,
    fallback: Value("120"),
    help: "How long one call to OpenCode may take, other than the turn itself.",
};

pub const TURN_TIMEOUT: Setting = Setting {
    key: "turns.timeout",
    flag: Some("turn-timeout"),
    env: Some("OPENCODE_TIMEOUT_STREAM"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("900"),
    help: "How long a turn may take. A longer one is aborted, and its task fails.",
};

pub const CANCEL_TIMEOUT: Setting = Setting {
    key: "turns.cancel_abort_timeout",
    flag: Some("cancel-abort-timeout"),
    env: Some("A2A_CANCEL_ABORT_TIMEOUT_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("2"),
    help: "How long a cancel waits for OpenCode to abort. The task is canceled in any case.",
};

pub const IDEMPOTENCY: Setting = Setting {
    key: "turns.idempotency_window",
    flag: Some("idempotency-window"),
    env: Some("LONGSHORE_IDEMPOTENCY_WINDOW"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "How long a message that is sent again leads to the task that it made the first time.",
};

pub const ASK_TTL: Setting = Setting {
    key: "turns.ask_ttl",
    flag: Some("ask-ttl"),
    env: Some("A2A_INTERRUPT_REQUEST_TTL_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("10800"),
    help: "How long a permission or question of the agent can be answered. The time does not count for the turn's limit.",
};

pub const ASK_TOMBSTONE: Setting = Setting {
    key: "turns.ask_tombstone",
    flag: Some("ask-tombstone"),
    env: Some("A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "How long an answer that comes too late is told that it is late.",
};

pub const ASK_DEADLINE: Setting = Setting {
    key: "turns.ask_deadline",
    flag: Some("ask-deadline"),
    env: Some("LONGSHORE_ASK_DEADLINE"),
    group: Group::Turns,
    kind: Kind::Choice(&["reject", "once", "keep"]),
    fallback: Value("reject"),
    help: "What happens to an ask that nobody answered in time: it is rejected, a permission is given once, or it is kept \
           open for as long as its turn runs.",
};

pub const DATA_DIR: Setting = Setting {
    key: "data.directory",
    flag: Some("data-dir"),
    env: Some("LONGSHORE_DATA_DIR"),
    group: Group::Data,
    kind: Kind::Path,
    fallback: Computed(
        "a directory per workspace under $XDG_DATA_HOME/longshore or ~/.local/share/longshore",
    ),
    help: "Where the store, the token and the files of a managed OpenCode are. Only its owner may read it, and it serves \
           one workspace only.",
};

pub const STORE: Setting = Setting {
    key: "data.store",
    flag: Some("store"),
    env: Some("A2A_TASK_STORE_BACKEND"),
    group: Group::Data,
    kind: Kind::Choice(&["sqlite", "memory", "database"]),
    fallback: Value("sqlite"),
    help: "Where tasks are kept. `memory` forgets them at the end; `database` is another word for `sqlite`.",
};

pub const DATABASE: Setting = Setting {
    key: "data.database",
    flag: Some("database"),
    env: Some("A2A_TASK_STORE_DATABASE_URL"),
    group: Group::Data,
    kind: Kind::Database,
    fallback: Computed("longshore.db in the data directory"),
    help: "The SQLite file.",
};

pub const DURABILITY: Setting = Setting {
    key: "data.durability",
    flag: Some("durability"),
    env: Some("LONGSHORE_DURABILITY"),
    group: Group::Data,
    kind: Kind::Choice(&["process", "power"]),
    fallback: Value("process"),
    help: "What an event that a client has seen survives: a crash of the process, or a loss of power too \
           (slower: each write waits for the disk).",
};

pub const TITLE: Setting = Setting {
    key: "card.title",
    flag: Some("title"),
    env: Some("A2A_TITLE"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Value("Longshore"),
    help: "The name on the agent card.",
};

pub const DESCRIPTION: Setting = Setting {
    key: "card.description",
    flag: Some("description"),
    env: Some("A2A_DESCRIPTION"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Value("A coding agent (OpenCode) that works in one directory."),
    help: "The description on the agent card.",
};

pub const CARD_VERSION: Setting = Setting {
    key: "card.version",
    flag: Some("agent-version"),
    env: Some("A2A_VERSION"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Computed("the version of Longshore"),
    help: "The version on the agent card.",
};

pub const PROJECT: Setting = Setting {
    key: "card.project",
    flag: Some("project"),
    env: Some("A2A_PROJECT"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Nothing,
    help: "The project that the agent works on, added to the description.",
};

pub const DOCUMENTATION: Setting = Setting {
    key: "card.documentation_url",
    flag: Some("documentation-url"),
    env: Some("A2A_DOCUMENTATION_URL"),
    group: Group::Card,
    kind: Kind::Link,
    fallback: Nothing,
    help: "Where people read about this agent.",
};

pub const LOG_LEVEL: Setting = Setting {
    key: "log.level",
    flag: Some("log-level"),
    env: Some("A2A_LOG_LEVEL"),
    group: Group::Log,
    kind: Kind::Choice(&["critical", "error", "warning", "info", "debug", "trace"]),
    fallback: Value("warning"),
    help: "How much is written to standard error. No level writes secrets or the text of messages.",
};

pub const LOG_FORMAT: Setting = Setting {
    key: "log.format",
    flag: Some("log-format"),
    env: Some("LONGSHORE_LOG_FORMAT"),
    group: Group::Log,
    kind: Kind::Choice(&["text", "json"]),
    fallback: Value("text"),
    help: "For people, or one JSON object a line.",
};

/// All rows, by group, in the order of the help text.
pub const ALL: &[&Setting] = &[
    &HOST,
    &PORT,
    &PUBLIC_URL,
    &MAX_BODY,
    &BEARER_TOKEN,
    &CREDENTIALS,
    &BASE_URL,
    &USERNAME,
    &PASSWORD,
    &PROGRAM,
    &DEMO,
    &WORKSPACE,
    &MODEL,
    &AGENT,
    &SYSTEM,
    &VARIANT,
    &TIMEOUT,
    &TURN_TIMEOUT,
    &CANCEL_TIMEOUT,
    &IDEMPOTENCY,
    &ASK_TTL,
    &ASK_TOMBSTONE,
    &ASK_DEADLINE,
    &DATA_DIR,
    &STORE,
    &DATABASE,
    &DURABILITY,
    &TITLE,
    &DESCRIPTION,
    &CARD_VERSION,
    &PROJECT,
    &DOCUMENTATION,
    &LOG_LEVEL,
    &LOG_FORMAT,
];

/// The settings that say which data directory is meant, for the commands that only look into it.
pub const PLACE: &[&Setting] = &[&DATA_DIR, &WORKSPACE, &DEMO];

pub fn by_key(key: &str) -> Option<&'static Setting> {
    ALL.iter().copied().find(|setting| setting.key == key)
}
