//! Where data is kept, what the card says, and what is logged.

use longshore_edge::contract::{DEFAULT_DESCRIPTION, DEFAULT_TITLE};

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Group, Kind, Setting};

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

pub const LOCK_WAIT: Setting = Setting {
    key: "data.lock_wait",
    flag: Some("lock-wait"),
    env: Some("LONGSHORE_LOCK_WAIT"),
    group: Group::Data,
    kind: Kind::SecondsOrNone,
    fallback: Value("0"),
    help: "How long to wait for the data directory while another gateway has it. 0 refuses to start at once: whoever starts a second \
           one by mistake should see it, and what supervises a gateway waits for its end before it starts the next. Where the \
           two may overlap, set it to more than the grace of the first.",
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

pub const FOLD_AFTER: Setting = Setting {
    key: "data.fold_after",
    flag: Some("fold-after"),
    env: Some("LONGSHORE_FOLD_AFTER"),
    group: Group::Data,
    kind: Kind::SecondsOrOff,
    fallback: Value("604800"),
    help: "How long after its end the events of a task are kept. Then only the last one is: the task can still be read, and \
           whoever comes back with an older Last-Event-ID gets it whole, marked as a gap.",
};

pub const KEEP_TASKS: Setting = Setting {
    key: "data.keep_tasks",
    flag: Some("keep-tasks"),
    env: Some("LONGSHORE_KEEP_TASKS"),
    group: Group::Data,
    kind: Kind::SecondsOrOff,
    fallback: Value("0"),
    help: "How long after its end a task is kept. Then it goes, with its files and those of its sub-agents, and a context of \
           which no task is left is forgotten. It is kept for turns.idempotency_window in any case.",
};

pub const TITLE: Setting = Setting {
    key: "card.title",
    flag: Some("title"),
    env: Some("A2A_TITLE"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Value(DEFAULT_TITLE),
    help: "The name on the agent card.",
};

pub const DESCRIPTION: Setting = Setting {
    key: "card.description",
    flag: Some("description"),
    env: Some("A2A_DESCRIPTION"),
    group: Group::Card,
    kind: Kind::Text,
    fallback: Value(DEFAULT_DESCRIPTION),
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

pub const EXPOSE_ROOT: Setting = Setting {
    key: "card.expose_workspace_root",
    flag: Some("expose-workspace-root"),
    env: Some("A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD"),
    group: Group::Card,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Tell callers with a credential the path of the workspace.",
};

pub const LOG_LEVEL: Setting = Setting {
    key: "log.level",
    flag: Some("log-level"),
    env: Some("A2A_LOG_LEVEL"),
    group: Group::Log,
    kind: Kind::Choice(&["critical", "error", "warning", "info", "debug", "trace"]),
    fallback: Value("warning"),
    help: "How much is written to standard error. No level writes secrets, and none the text of messages unless \
           log.payloads is on. Every level has one line (target longshore::audit) for each call of a method of docs/methods.md that \
           changes something: who called what, about what, and what became of it.",
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

pub const LOG_PAYLOADS: Setting = Setting {
    key: "log.payloads",
    flag: Some("log-payloads"),
    env: Some("A2A_LOG_PAYLOADS"),
    group: Group::Log,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Write the JSON of requests and answers to the log, at level debug. What is under a name that looks like a secret's, and \
           what looks like a key, is left out; the text of messages is not. Streams are never written, nor are calls of the \
           methods that docs/methods.md describes.",
};

pub const LOG_BODY_LIMIT: Setting = Setting {
    key: "log.body_limit",
    flag: Some("log-body-limit"),
    env: Some("A2A_LOG_BODY_LIMIT"),
    group: Group::Log,
    kind: Kind::Bytes,
    fallback: Value("0"),
    help: "The longest body that log.payloads writes. A longer one, or one that does not say its length, is left out as a whole.",
};

pub const METRICS: Setting = Setting {
    key: "metrics.enabled",
    flag: Some("metrics"),
    env: Some("A2A_METRICS_ENABLED"),
    group: Group::Log,
    kind: Kind::Switch,
    fallback: Value("true"),
    help: "Serve /metrics, for Prometheus, to callers with a credential. No rate limit counts it. When off, it is answered with 404.",
};

pub const OTLP_ENDPOINT: Setting = Setting {
    key: "trace.otlp_endpoint",
    flag: Some("otlp-endpoint"),
    env: Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
    group: Group::Log,
    kind: Kind::BaseUrl,
    fallback: Nothing,
    help: "The collector that is told of turns and of the calls of tools: OTLP over HTTP, as JSON, at /v1/traces below this address, \
           such as http://127.0.0.1:4318. Names, ids, times and counts of tokens are told (by OpenTelemetry's conventions for \
           generative AI, v1.41), and no text of messages or tools. When nothing is set, nothing is told. No proxy is \
           used, and a collector that is away costs spans and nothing else.",
};

pub const OTLP_HEADERS: Setting = Setting {
    key: "trace.otlp_headers",
    flag: None,
    env: Some("OTEL_EXPORTER_OTLP_HEADERS"),
    group: Group::Log,
    kind: Kind::Secret,
    fallback: Nothing,
    help: "Headers for the collector, as name=value with commas between them, such as api-key=... Values may be percent-encoded. A \
           managed OpenCode does not get this variable.",
};

pub const SERVICE_NAME: Setting = Setting {
    key: "trace.service_name",
    flag: Some("service-name"),
    env: Some("OTEL_SERVICE_NAME"),
    group: Group::Log,
    kind: Kind::Text,
    fallback: Value("longshore"),
    help: "What the gateway is called in traces.",
};

pub const SAMPLE_RATIO: Setting = Setting {
    key: "trace.sample_ratio",
    flag: Some("trace-sample-ratio"),
    env: Some("LONGSHORE_TRACE_SAMPLE_RATIO"),
    group: Group::Log,
    kind: Kind::Ratio,
    fallback: Value("1"),
    help: "The part of the turns that the collector is told of. A caller who sends a traceparent decides for its own: what it \
           samples is told, and nothing else.",
};
