//! The table of all settings. Flags, help, checks and `docs/configuration.md` are generated from these rows.

mod agents;
mod client;
mod content;
mod control;
mod environment;
mod grpc;
mod limits;
mod listener;
mod opencode;
mod peers;
mod push;
mod rest;
mod turns;

pub use agents::*;
pub use client::*;
pub use content::*;
pub use control::*;
pub use environment::*;
pub use grpc::*;
pub use limits::*;
pub use listener::*;
pub use opencode::*;
pub use peers::*;
pub use push::*;
pub use rest::*;
pub use turns::*;

use super::setting::Setting;

/// All rows, by group, in the order of the help text.
pub const ALL: &[&Setting] = &[
    &HOST,
    &PORT,
    &TLS_CERTIFICATE,
    &TLS_KEY,
    &TLS_CLIENT_CA,
    &TLS_CLIENT_CERTIFICATES,
    &REQUIRE_TLS,
    &UNIX_SOCKET,
    &UNIX_SOCKET_MODE,
    &UNIX_SOCKET_PRINCIPAL,
    &WEBSOCKET_PATH,
    &WEBSOCKET_IDLE,
    &MCP_PATH,
    &PUBLIC_URL,
    &ALLOWED_ORIGINS,
    &ALLOWED_HOSTS,
    &MAX_BODY,
    &BODY_TIMEOUT,
    &WRITE_TIMEOUT,
    &GZIP_MINIMUM,
    &SHUTDOWN_GRACE,
    &THREADS,
    &GRPC,
    &GRPC_PORT,
    &GRPC_PUBLIC_URL,
    &GRPC_REFLECTION,
    &GRPC_HEALTH,
    &MISSING_VERSION,
    &REQUIRED_EXTENSIONS,
    &BEARER_TOKEN,
    &API_KEY,
    &CREDENTIALS,
    &AGENTS,
    &BASE_URL,
    &USERNAME,
    &PASSWORD,
    &PROGRAM,
    &DEMO,
    &WORKSPACE,
    &ALLOWED_ROOTS,
    &STREAM_SILENCE,
    &MODEL,
    &AGENT,
    &SYSTEM,
    &VARIANT,
    &PIN,
    &ALLOWED_MODELS,
    &ALLOWED_AGENTS,
    &DIRECTORY_OVERRIDE,
    &TIMEOUT,
    &TURN_TIMEOUT,
    &SILENCE,
    &MAX_STEPS,
    &WAIT_FOR_OTHERS,
    &CANCEL_TIMEOUT,
    &IDEMPOTENCY,
    &ASK_TTL,
    &ASK_TOMBSTONE,
    &ASK_DEADLINE,
    &SESSION_SHELL,
    &WORKSPACE_MUTATIONS,
    &SESSION_SHARE,
    &SESSION_DELETE,
    &SESSION_GUARD,
    &ALWAYS_SCOPE,
    &CLAIM_TTL,
    &WATCH_DIRECTORIES,
    &RATE_LIMIT,
    &RATE_REQUESTS,
    &RATE_WINDOW,
    &FAILED_LOGINS,
    &STREAMS,
    &STREAMS_PER_PRINCIPAL,
    &STREAM_BYTES,
    &STREAM_DURATION,
    &STREAM_IDLE,
    &MAX_TURNS,
    &TURNS_PER_PRINCIPAL,
    &UPSTREAM_CALLS,
    &DIRECTORIES,
    &DIRECTORIES_PER_PRINCIPAL,
    &DIRECTORY_IDLE,
    &UNFINISHED,
    &UNFINISHED_PER_PRINCIPAL,
    &UNFINISHED_PER_CONTEXT,
    &CONNECTIONS,
    &CONNECTIONS_PER_ADDRESS,
    &REQUESTS_PER_CONNECTION,
    &BODY_BYTES,
    &UNFINISHED_BYTES,
    &UNFINISHED_BYTES_PER_PRINCIPAL,
    &STORED_BYTES,
    &STORED_BYTES_PER_PRINCIPAL,
    &TASK_BYTES,
    &DATA_PARTS,
    &TEXT_TYPES,
    &MEDIA_TYPES,
    &MAX_TEXT,
    &MAX_INLINE,
    &MAX_FILE,
    &MAX_METADATA,
    &MAX_EXTENSIONS,
    &MAX_REFERENCES,
    &REMOTE_HOSTS,
    &THINKING,
    &WRITTEN_FILES,
    &MAX_KEPT,
    &PUSH,
    &PUSH_EVENTS,
    &PUSH_CONFIGS_PER_TASK,
    &PUSH_CONFIGS_PER_PRINCIPAL,
    &PUSH_CONFIGS,
    &PUSH_SECRET_BYTES,
    &PUSH_HTTP,
    &PUSH_PORTS,
    &PUSH_HOSTS,
    &PUSH_INTERNAL_HOSTS,
    &PUSH_INTERNAL_NETWORKS,
    &PUSH_ATTEMPTS,
    &PUSH_MAX_AGE,
    &PUSH_CALLS,
    &PUSH_CALLS_PER_HOST,
    &PUSH_CONNECT_TIMEOUT,
    &PUSH_RESPONSE_TIMEOUT,
    &PUSH_BODY_BYTES,
    &KEYS,
    &DATA_DIR,
    &DATA_DIR_IN_WORKSPACE,
    &LOCK_WAIT,
    &STORE,
    &DATABASE,
    &DURABILITY,
    &MIN_FREE_DISK,
    &FOLD_AFTER,
    &KEEP_TASKS,
    &TITLE,
    &DESCRIPTION,
    &CARD_VERSION,
    &PROJECT,
    &DOCUMENTATION,
    &EXPOSE_ROOT,
    &SANDBOX_MODE,
    &FILESYSTEM_SCOPE,
    &WRITABLE_ROOTS,
    &NETWORK_ACCESS,
    &ALLOWED_DOMAINS,
    &APPROVAL_POLICY,
    &ESCALATION_BEHAVIOR,
    &WRITE_SCOPE,
    &OUTSIDE_WORKSPACE,
    &LOG_LEVEL,
    &LOG_FORMAT,
    &LOG_PAYLOADS,
    &LOG_BODY_LIMIT,
    &METRICS,
    &OTLP_ENDPOINT,
    &OTLP_HEADERS,
    &SERVICE_NAME,
    &SAMPLE_RATIO,
    &PEERS,
    &CALLS_URLS,
    &CALLS_HOSTS,
    &CALLS_PRIVATE_HOSTS,
    &CALLS_AT_ONCE,
    &CALLS_PER_TASK,
    &CALLS_DURATION,
    &CALLS_RESULT_BYTES,
    &CALLS_ASKS,
    &CALLS_HOPS,
    &CALLS_RETURNS,
    &CLIENT_TIMEOUT,
    &CLIENT_CARD_TIMEOUT,
    &CLIENT_BEARER_TOKEN,
    &CLIENT_BASIC_AUTH,
    &CLIENT_API_KEY,
    &CLIENT_TRANSPORTS,
    &CLIENT_OWN_ORDER,
    &CLIENT_PROTOCOL_VERSION,
    &CLIENT_POLLING,
    &CLIENT_POLLING_INITIAL,
    &CLIENT_POLLING_LONGEST,
    &CLIENT_POLLING_FACTOR,
    &CLIENT_POLLING_TIMEOUT,
    &CLIENT_CACHE_LIFETIME,
    &CLIENT_CACHE_SIZE,
];

/// Further variables, each with the key of its setting. They are used only if the setting's own variable is not set.
pub const ALIASES: &[(&str, &str)] = &[
    ("IACCODE_A2A_HTTP_TOKEN", BEARER_TOKEN.key),
    // The variables of OpenCode's own server, because it often runs with the same environment.
    ("OPENCODE_SERVER_USERNAME", USERNAME.key),
    ("OPENCODE_SERVER_PASSWORD", PASSWORD.key),
];

/// The settings that select the data directory, for commands that use no other settings.
pub const DATA_DIR_SETTINGS: &[&Setting] = &[&DATA_DIR, &WORKSPACE, &DEMO, &AGENTS];

/// All variables of a setting, in order of priority.
pub fn variables(setting: &Setting) -> impl Iterator<Item = &'static str> {
    let (own, key) = (setting.env, setting.key);
    let others = ALIASES.iter().filter(move |(_, of)| *of == key).map(|(name, _)| *name);
    own.into_iter().chain(others)
}

pub fn by_key(key: &str) -> Option<&'static Setting> {
    ALL.iter().copied().find(|setting| setting.key == key)
}
