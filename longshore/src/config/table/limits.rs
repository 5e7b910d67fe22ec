//! How much callers may ask for, and what they are told beyond it.

use super::super::setting::Fallback::Value;
use super::super::setting::{Group, Kind, Setting};

pub const RATE_LIMIT: Setting = Setting {
    key: "limits.rate_limit",
    flag: Some("rate-limit"),
    env: Some("A2A_RATE_LIMIT_ENABLED"),
    group: Group::Limits,
    kind: Kind::Choice(&["auto", "on", "off", "true", "false"]),
    fallback: Value("auto"),
    help: "Whether requests and wrong credentials are counted. auto: unless the gateway listens on a loopback address \
           only. Behind a proxy on this machine callers are from anywhere: set it to on there.",
};

pub const RATE_REQUESTS: Setting = Setting {
    key: "limits.rate_requests",
    flag: Some("rate-requests"),
    env: Some("A2A_RATE_LIMIT_MAX_REQUESTS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("120"),
    help: "How many requests one caller may send in each limits.rate_window: a credential that has a credential_id, else \
           a principal, else an address. One more is answered with 429 and Retry-After, before its body is read. They may \
           come all at once; then one more is free each time that its share of the window has passed. A stream is one \
           request. The card, /livez, /metrics and OPTIONS are not counted.",
};

pub const RATE_WINDOW: Setting = Setting {
    key: "limits.rate_window",
    flag: Some("rate-window"),
    env: Some("A2A_RATE_LIMIT_WINDOW_SECONDS"),
    group: Group::Limits,
    kind: Kind::Seconds,
    fallback: Value("60"),
    help: "The time for which limits.rate_requests and limits.failed_logins count.",
};

pub const FAILED_LOGINS: Setting = Setting {
    key: "limits.failed_logins",
    flag: Some("failed-logins"),
    env: Some("LONGSHORE_FAILED_LOGINS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("20"),
    help: "How many wrong credentials one address (of IPv6: one /64) may show in each limits.rate_window. Then all its \
           requests that show a credential, also a right one, are answered with 429 and Retry-After for a while. Counted \
           when limits.rate_limit is, and never for loopback addresses. A proxy or NAT with another address looks like one \
           caller, and anybody behind it could lock out all others: set 0 there, and let the proxy count.",
};

pub const STREAMS: Setting = Setting {
    key: "limits.streams",
    flag: Some("max-streams"),
    env: Some("LONGSHORE_MAX_STREAMS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("4096"),
    help: "How many event streams may be open at once. One more is refused with 429, before anything is prompted.",
};

pub const STREAMS_PER_PRINCIPAL: Setting = Setting {
    key: "limits.streams_per_principal",
    flag: Some("max-streams-per-principal"),
    env: Some("LONGSHORE_MAX_STREAMS_PER_PRINCIPAL"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("1024"),
    help: "The same for one principal.",
};

pub const STREAM_BYTES: Setting = Setting {
    key: "limits.stream_bytes",
    flag: Some("stream-max-bytes"),
    env: Some("A2A_STREAM_MAX_BYTES"),
    group: Group::Limits,
    kind: Kind::Bytes,
    fallback: Value("67108864"),
    help: "How much one event stream may send. Then it ends with an error (STREAM_BUDGET_EXCEEDED). Its task goes on, and \
           a client that comes back with Last-Event-ID reads on from there.",
};

pub const STREAM_DURATION: Setting = Setting {
    key: "limits.stream_duration",
    flag: Some("stream-max-duration"),
    env: Some("A2A_STREAM_MAX_DURATION_SECONDS"),
    group: Group::Limits,
    kind: Kind::SecondsOrOff,
    fallback: Value("3600"),
    help: "How long one event stream may be open. Then it ends as with limits.stream_bytes.",
};

pub const STREAM_IDLE: Setting = Setting {
    key: "limits.stream_idle",
    flag: Some("stream-idle"),
    env: Some("A2A_STREAM_IDLE_TIMEOUT_SECONDS"),
    group: Group::Limits,
    kind: Kind::SecondsOrOff,
    fallback: Value("600"),
    help: "How long one event stream may be without an event. Then it ends as with limits.stream_bytes. Keep-alives are no events; \
           open asks, running tools, the pauses before OpenCode tries again and turns that wait for their place excuse any silence. \
           An OpenCode that cannot be reached in the middle of a turn does not. More than turns.silence by default: a turn whose \
           model is silent for too long fails first, and its stream says why.",
};

pub const MAX_TURNS: Setting = Setting {
    key: "limits.turns",
    flag: Some("max-turns"),
    env: Some("OPENCODE_MAX_CONCURRENT_STREAMS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("256"),
    help: "How many turns may run at once. Further ones are taken and wait as submitted, without being prompted; each \
           principal's in turn, so that nobody waits behind all of another's. A turn that waits for an answer to an ask \
           does not count.",
};

pub const TURNS_PER_PRINCIPAL: Setting = Setting {
    key: "limits.turns_per_principal",
    flag: Some("max-turns-per-principal"),
    env: Some("LONGSHORE_MAX_TURNS_PER_PRINCIPAL"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("128"),
    help: "The same for one principal.",
};

pub const UPSTREAM_CALLS: Setting = Setting {
    key: "limits.upstream_calls",
    flag: Some("upstream-calls"),
    env: Some("OPENCODE_MAX_CONCURRENT_REQUESTS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("32"),
    help: "How many short calls to OpenCode may be under way at once. Further ones wait; a request that would wait for \
           more than a second is refused with 429 (UPSTREAM_BACKPRESSURE), before anything is prompted. Aborts and what \
           running turns need are never refused.",
};

pub const UNFINISHED: Setting = Setting {
    key: "limits.unfinished",
    flag: Some("max-unfinished"),
    env: Some("LONGSHORE_MAX_UNFINISHED"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("10000"),
    help: "How many tasks may be unfinished at once: running, waiting, or with an ask open. A message that would begin one \
           more is refused with 429 and Retry-After.",
};

pub const UNFINISHED_PER_PRINCIPAL: Setting = Setting {
    key: "limits.unfinished_per_principal",
    flag: Some("max-unfinished-per-principal"),
    env: Some("LONGSHORE_MAX_UNFINISHED_PER_PRINCIPAL"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("2000"),
    help: "The same for one principal.",
};

pub const UNFINISHED_PER_CONTEXT: Setting = Setting {
    key: "limits.unfinished_per_context",
    flag: Some("max-unfinished-per-context"),
    env: Some("LONGSHORE_MAX_UNFINISHED_PER_CONTEXT"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("100"),
    help: "The same for one context, whose turns run one after the other.",
};

pub const CONNECTIONS: Setting = Setting {
    key: "limits.connections",
    flag: Some("max-connections"),
    env: Some("LONGSHORE_MAX_CONNECTIONS"),
    group: Group::Limits,
    kind: Kind::Count,
    fallback: Value("8192"),
    help: "How many connections may be open at once, of all callers together. Further ones wait until one is closed. Never \
           more than the process may open files, less 256 for its own: a start says so.",
};
