//! Data, the agent card, log, metrics and traces.

use longshore_edge::contract::DEFAULT_TITLE;
use longshore_edge::opencode::DEFAULT_DESCRIPTION;

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const DATA_DIR: Setting = Setting {
    key: "data.directory",
    flag: Some("data-dir"),
    env: Some("LONGSHORE_DATA_DIR"),
    kind: Kind::Path,
    fallback: Computed(
        "a directory per workspace under $XDG_DATA_HOME/longshore or ~/.local/share/longshore",
    ),
    help: "The directory of the store, the token and the files of a managed OpenCode. Only the owner can read it, and \
           it serves only one workspace. It must be outside the workspace and the allowed roots, unless \
           data.directory_in_workspace allows one inside.",
};

pub const DATA_DIR_IN_WORKSPACE: Setting = Setting {
    key: "data.directory_in_workspace",
    flag: Some("data-dir-in-workspace"),
    env: Some("LONGSHORE_DATA_DIR_IN_WORKSPACE"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Allow a data directory in the workspace or in one of opencode.allowed_roots. The start then writes a .gitignore \
           into the data directory, so that git and OpenCode's snapshots leave it out. Callers never reach the data, but \
           the agent does: its tools can read every file there.",
};

pub const LOCK_WAIT: Setting = Setting {
    key: "data.lock_wait",
    flag: Some("lock-wait"),
    env: Some("LONGSHORE_LOCK_WAIT"),
    kind: Kind::SecondsOrNone,
    fallback: Value("0"),
    help: "How long to wait for the data directory while another gateway uses it. 0: do not wait, but exit with an \
           error. That is right for a gateway that was started twice by mistake, and for a supervisor that waits for \
           the end of the first gateway before it starts the next. If the two may overlap, set more than the \
           serve.shutdown_grace of the first gateway plus eight seconds.",
};

pub const STORE: Setting = Setting {
    key: "data.store",
    flag: Some("store"),
    env: Some("A2A_TASK_STORE_BACKEND"),
    kind: Kind::Choice(&["sqlite", "memory", "database"]),
    fallback: Value("sqlite"),
    help: "Where tasks are kept. `memory` loses them when the gateway ends; `database` means the same as `sqlite`.",
};

pub const DATABASE: Setting = Setting {
    key: "data.database",
    flag: Some("database"),
    env: Some("A2A_TASK_STORE_DATABASE_URL"),
    kind: Kind::Database,
    fallback: Computed("longshore.db in the data directory"),
    help: "The SQLite database file.",
};

pub const DURABILITY: Setting = Setting {
    key: "data.durability",
    flag: Some("durability"),
    env: Some("LONGSHORE_DURABILITY"),
    kind: Kind::Choice(&["process", "power"]),
    fallback: Value("process"),
    help: "Which failures an event that a client has seen survives: a crash of the gateway (`process`), or also a power \
           failure (`power`; slower, because each write waits for the disk).",
};

pub const MIN_FREE_DISK: Setting = Setting {
    key: "data.min_free_disk",
    flag: Some("min-free-disk"),
    env: Some("LONGSHORE_MIN_FREE_DISK"),
    kind: Kind::Bytes,
    fallback: Value("67108864"),
    help: "How many bytes must be free on the disk that holds the store. With less, messages that would start a task are \
           refused with status 503 and Retry-After, and running turns go on for as long as there is any space.",
};

pub const FOLD_AFTER: Setting = Setting {
    key: "data.fold_after",
    flag: Some("fold-after"),
    env: Some("LONGSHORE_FOLD_AFTER"),
    kind: Kind::SecondsOrOff,
    fallback: Value("604800"),
    help: "How long the events of a task are kept after its end. After that only the last event remains: the task can \
           still be read, and a client that reconnects with an older Last-Event-ID gets the whole task, marked as a \
           gap.",
};

pub const KEEP_TASKS: Setting = Setting {
    key: "data.keep_tasks",
    flag: Some("keep-tasks"),
    env: Some("LONGSHORE_KEEP_TASKS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("7776000"),
    help: "How long a task is kept after its end: 90 days, unless set otherwise; 0 keeps it for ever. Then the task is deleted, with its files and with the tasks of its \
           sub-agents, and a context without tasks is forgotten. A task is kept at least for turns.idempotency_window.",
};

pub const TITLE: Setting = Setting {
    key: "card.title",
    flag: Some("title"),
    env: Some("A2A_TITLE"),
    kind: Kind::Text,
    fallback: Value(DEFAULT_TITLE),
    help: "The name on the agent card.",
};

pub const DESCRIPTION: Setting = Setting {
    key: "card.description",
    flag: Some("description"),
    env: Some("A2A_DESCRIPTION"),
    kind: Kind::Text,
    fallback: Value(DEFAULT_DESCRIPTION),
    help: "The description on the agent card.",
};

pub const CARD_VERSION: Setting = Setting {
    key: "card.version",
    flag: Some("agent-version"),
    env: Some("A2A_VERSION"),
    kind: Kind::Text,
    fallback: Computed("the version of Longshore"),
    help: "The version on the agent card.",
};

pub const PROJECT: Setting = Setting {
    key: "card.project",
    flag: Some("project"),
    env: Some("A2A_PROJECT"),
    kind: Kind::Text,
    fallback: Nothing,
    help: "The name of the project that the agent works on. It is added to the description.",
};

pub const DOCUMENTATION: Setting = Setting {
    key: "card.documentation_url",
    flag: Some("documentation-url"),
    env: Some("A2A_DOCUMENTATION_URL"),
    kind: Kind::Link,
    fallback: Nothing,
    help: "The URL of the documentation of this agent.",
};

pub const EXPOSE_ROOT: Setting = Setting {
    key: "card.expose_workspace_root",
    flag: Some("expose-workspace-root"),
    env: Some("A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Show the path of the workspace to callers with a credential.",
};

pub const LOG_LEVEL: Setting = Setting {
    key: "log.level",
    flag: Some("log-level"),
    env: Some("A2A_LOG_LEVEL"),
    kind: Kind::Choice(&["critical", "error", "warning", "info", "debug", "trace"]),
    fallback: Value("info"),
    help: "How much is written to standard error. `info` writes one line per request (log target longshore::request): \
           method, principal, task, state, status and time; requests for /health, /livez and /metrics have none. `debug` \
           adds every event of OpenCode, with all texts replaced by their length. No level writes secrets or the text of \
           messages. Every level writes one line (log target longshore::audit) for each call of a method of docs/methods.md that changes something: \
           the caller, the method, the object that was changed and the outcome. The same target has a line for each file that an \
           agent has Longshore write, and for each command that it has Longshore run.",
};

pub const LOG_FORMAT: Setting = Setting {
    key: "log.format",
    flag: Some("log-format"),
    env: Some("LONGSHORE_LOG_FORMAT"),
    kind: Kind::Choice(&["text", "json"]),
    fallback: Value("text"),
    help: "`text` for people, or `json` with one JSON object per line.",
};

pub const LOG_PAYLOADS: Setting = Setting {
    key: "log.payloads",
    flag: Some("log-payloads"),
    env: Some("A2A_LOG_PAYLOADS"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Write the JSON of requests and responses to the log, at level debug. Ids, roles, states, kinds, error codes, \
           counts and times are written with their values. Every other value is replaced by its length. Streams and \
           calls of the methods in docs/methods.md are never written.",
};

pub const LOG_BODY_LIMIT: Setting = Setting {
    key: "log.body_limit",
    flag: Some("log-body-limit"),
    env: Some("A2A_LOG_BODY_LIMIT"),
    kind: Kind::Bytes,
    fallback: Value("0"),
    help: "The longest body that log.payloads writes. A longer body, or one of unknown length, is left out completely.",
};

pub const METRICS: Setting = Setting {
    key: "metrics.enabled",
    flag: Some("metrics"),
    env: Some("A2A_METRICS_ENABLED"),
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Serve /metrics, for Prometheus, to callers with a credential. Requests for it do not count for the rate \
           limit. When off, /metrics gets status 404.",
};

pub const OTLP_ENDPOINT: Setting = Setting {
    key: "trace.otlp_endpoint",
    flag: Some("otlp-endpoint"),
    env: Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
    kind: Kind::BaseUrl,
    fallback: Nothing,
    help: "The collector that gets a trace of each turn and its tool calls: OTLP over HTTP, as JSON, at /v1/traces \
           below this URL, such as http://127.0.0.1:4318. Traces contain names, ids, times and token counts (by \
           OpenTelemetry's conventions for generative AI, v1.41), and no text of messages or tools. Without an endpoint \
           no traces are sent. No proxy is used. An unreachable collector loses spans, and has no other effect.",
};

pub const OTLP_HEADERS: Setting = Setting {
    key: "trace.otlp_headers",
    flag: None,
    env: Some("OTEL_EXPORTER_OTLP_HEADERS"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "Headers for the collector, as name=value pairs separated by commas, such as api-key=... Values may be \
           percent-encoded. A managed OpenCode does not get this variable.",
};

pub const SERVICE_NAME: Setting = Setting {
    key: "trace.service_name",
    flag: Some("service-name"),
    env: Some("OTEL_SERVICE_NAME"),
    kind: Kind::Text,
    fallback: Value("longshore"),
    help: "The name of the gateway in traces.",
};

pub const SAMPLE_RATIO: Setting = Setting {
    key: "trace.sample_ratio",
    flag: Some("trace-sample-ratio"),
    env: Some("LONGSHORE_TRACE_SAMPLE_RATIO"),
    kind: Kind::Ratio,
    fallback: Value("1"),
    help: "The share of turns whose traces are sent to the collector. For a turn whose request has a traceparent, the \
           caller decides instead: the trace is sent if the traceparent says that it is sampled.",
};
