//! The limits for callers.

use super::super::setting::Fallback::Value;
use super::super::setting::{Kind, Setting};

pub const RATE_LIMIT: Setting = Setting {
    key: "limits.rate_limit",
    flag: Some("rate-limit"),
    env: Some("A2A_RATE_LIMIT_ENABLED"),
    kind: Kind::Choice(&["auto", "on", "off", "true", "false"]),
    fallback: Value("auto"),
    help: "Whether requests and wrong credentials are counted and limited. auto: yes, unless the gateway listens on a \
           loopback address only. Callers from anywhere can reach such a gateway through a proxy on this machine: set \
           it to on there.",
};

pub const RATE_REQUESTS: Setting = Setting {
    key: "limits.rate_requests",
    flag: Some("rate-requests"),
    env: Some("A2A_RATE_LIMIT_MAX_REQUESTS"),
    kind: Kind::Count,
    fallback: Value("120"),
    help: "How many requests one caller may send per limits.rate_window. A caller is a credential with a credential_id, \
           else a principal, else an address. Further requests get status 429 with Retry-After, before their body is \
           read. All requests of a window may come at once. After that, one more is allowed each time that a share of \
           the window has passed: limits.rate_window divided by this number. A stream counts as one request. The card, \
           /livez, /metrics and OPTIONS do not count.",
};

pub const RATE_WINDOW: Setting = Setting {
    key: "limits.rate_window",
    flag: Some("rate-window"),
    env: Some("A2A_RATE_LIMIT_WINDOW_SECONDS"),
    kind: Kind::Seconds,
    fallback: Value("60"),
    help: "The time window of limits.rate_requests and limits.failed_logins.",
};

pub const FAILED_LOGINS: Setting = Setting {
    key: "limits.failed_logins",
    flag: Some("failed-logins"),
    env: Some("LONGSHORE_FAILED_LOGINS"),
    kind: Kind::Count,
    fallback: Value("20"),
    help: "How many wrong credentials one address (for IPv6: one /64 network) may send per limits.rate_window. After \
           that, all its requests with a credential, even a correct one, get status 429 with Retry-After for a while. \
           Wrong credentials are counted only when limits.rate_limit applies, and never for loopback addresses. All \
           clients behind a proxy or NAT share its address, so one of them could lock out all the others: set 0 there, \
           and let the proxy limit wrong credentials.",
};

pub const STREAMS: Setting = Setting {
    key: "limits.streams",
    flag: Some("max-streams"),
    env: Some("LONGSHORE_MAX_STREAMS"),
    kind: Kind::Count,
    fallback: Value("4096"),
    help: "How many event streams may be open at the same time. Further ones are refused with status 429, before a \
           prompt is sent.",
};

pub const STREAMS_PER_PRINCIPAL: Setting = Setting {
    key: "limits.streams_per_principal",
    flag: Some("max-streams-per-principal"),
    env: Some("LONGSHORE_MAX_STREAMS_PER_PRINCIPAL"),
    kind: Kind::Count,
    fallback: Value("1024"),
    help: "How many event streams one principal may have open at the same time.",
};

pub const STREAM_BYTES: Setting = Setting {
    key: "limits.stream_bytes",
    flag: Some("stream-max-bytes"),
    env: Some("A2A_STREAM_MAX_BYTES"),
    kind: Kind::Bytes,
    fallback: Value("67108864"),
    help: "How many bytes one event stream may send before it ends with an error (STREAM_BUDGET_EXCEEDED). The task \
           continues, and a client that reconnects with Last-Event-ID resumes where the stream ended.",
};

pub const STREAM_DURATION: Setting = Setting {
    key: "limits.stream_duration",
    flag: Some("stream-max-duration"),
    env: Some("A2A_STREAM_MAX_DURATION_SECONDS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("3600"),
    help: "How long one event stream may stay open before it ends in the same way as with limits.stream_bytes.",
};

pub const STREAM_IDLE: Setting = Setting {
    key: "limits.stream_idle",
    flag: Some("stream-idle"),
    env: Some("A2A_STREAM_IDLE_TIMEOUT_SECONDS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("600"),
    help: "How long one event stream may be without an event before it ends in the same way as with \
           limits.stream_bytes. Keep-alives do not count as events. The time does not count while an ask is open, a \
           tool runs, OpenCode pauses before a retry, or the turn waits in a queue. The time does count while OpenCode \
           is unreachable in the middle of a turn. The default is more than turns.silence, so that a turn whose model \
           is silent for too long fails first, and its stream reports why.",
};

pub const MAX_TURNS: Setting = Setting {
    key: "limits.turns",
    flag: Some("max-turns"),
    env: Some("OPENCODE_MAX_CONCURRENT_STREAMS"),
    kind: Kind::Count,
    fallback: Value("256"),
    help: "How many turns may run at the same time. Further tasks are accepted and wait in state submitted, before \
           their prompt is sent. The principals take turns in the queue, so that no principal waits behind all tasks of \
           another. A turn that waits for the answer to an ask does not count.",
};

pub const TURNS_PER_PRINCIPAL: Setting = Setting {
    key: "limits.turns_per_principal",
    flag: Some("max-turns-per-principal"),
    env: Some("LONGSHORE_MAX_TURNS_PER_PRINCIPAL"),
    kind: Kind::Count,
    fallback: Value("128"),
    help: "How many turns of one principal may run at the same time.",
};

pub const UPSTREAM_CALLS: Setting = Setting {
    key: "limits.upstream_calls",
    flag: Some("upstream-calls"),
    env: Some("OPENCODE_MAX_CONCURRENT_REQUESTS"),
    kind: Kind::Count,
    fallback: Value("32"),
    help: "How many short calls to OpenCode may run at the same time. Further calls wait; a request that would wait \
           longer than a second is refused with status 429 (UPSTREAM_BACKPRESSURE), before a prompt is sent. Aborts and \
           the calls of running turns are never refused.",
};

pub const DIRECTORIES: Setting = Setting {
    key: "limits.directories",
    flag: Some("max-directories"),
    env: Some("LONGSHORE_MAX_DIRECTORIES"),
    kind: Kind::Count,
    fallback: Value("32"),
    help: "How many directories besides the workspace itself OpenCode may have open for callers. Each costs OpenCode 50 to \
           75 MB of memory. When another is needed, Longshore makes OpenCode close the one that was not used for the longest \
           time. If a turn runs in each of them, the request is refused with status 429 and Retry-After.",
};

pub const DIRECTORIES_PER_PRINCIPAL: Setting = Setting {
    key: "limits.directories_per_principal",
    flag: Some("max-directories-per-principal"),
    env: Some("LONGSHORE_MAX_DIRECTORIES_PER_PRINCIPAL"),
    kind: Kind::Count,
    fallback: Value("16"),
    help: "How many of these directories one principal may use.",
};

pub const DIRECTORY_IDLE: Setting = Setting {
    key: "limits.directory_idle",
    flag: Some("directory-idle"),
    env: Some("LONGSHORE_DIRECTORY_IDLE"),
    kind: Kind::SecondsOrOff,
    fallback: Value("600"),
    help: "After this time without use, Longshore makes OpenCode close a directory, unless a turn runs there, also of another \
           client, or the directory is watched (control.watch_directories). The next message opens it again. 0: directories are \
           closed only when another is needed.",
};

pub const UNFINISHED: Setting = Setting {
    key: "limits.unfinished",
    flag: Some("max-unfinished"),
    env: Some("LONGSHORE_MAX_UNFINISHED"),
    kind: Kind::Count,
    fallback: Value("10000"),
    help: "How many tasks may be unfinished at the same time: running, waiting, or with an open ask. A message that \
           would start another task is refused with status 429 and Retry-After.",
};

pub const UNFINISHED_PER_PRINCIPAL: Setting = Setting {
    key: "limits.unfinished_per_principal",
    flag: Some("max-unfinished-per-principal"),
    env: Some("LONGSHORE_MAX_UNFINISHED_PER_PRINCIPAL"),
    kind: Kind::Count,
    fallback: Value("2000"),
    help: "How many unfinished tasks one principal may have at the same time.",
};

pub const UNFINISHED_PER_CONTEXT: Setting = Setting {
    key: "limits.unfinished_per_context",
    flag: Some("max-unfinished-per-context"),
    env: Some("LONGSHORE_MAX_UNFINISHED_PER_CONTEXT"),
    kind: Kind::Count,
    fallback: Value("100"),
    help: "How many unfinished tasks one context may have at the same time. The turns of a context run one after the \
           other.",
};

pub const CONNECTIONS: Setting = Setting {
    key: "limits.connections",
    flag: Some("max-connections"),
    env: Some("LONGSHORE_MAX_CONNECTIONS"),
    kind: Kind::Count,
    fallback: Value("8192"),
    help: "How many connections may be open at the same time, for all callers together. For each further one, the \
           oldest connection without an open request of an authenticated caller is closed: first those that never \
           had a valid credential, then idle ones. 64 places (at most half) are reserved for this: a caller whose \
           request would need one of them gets status 429 with Retry-After. The limit is lowered to the number of \
           files that the process may open, minus 256 for its own; a warning at the start reports that.",
};

pub const CONNECTIONS_PER_ADDRESS: Setting = Setting {
    key: "limits.connections_per_address",
    flag: Some("max-connections-per-address"),
    env: Some("LONGSHORE_MAX_CONNECTIONS_PER_ADDRESS"),
    kind: Kind::Count,
    fallback: Value("2048"),
    help: "How many connections one address (for IPv6: one /64 network) may have open at the same time. Further ones are \
           closed at once. Never counted for loopback addresses. A proxy or NAT looks like one address: set it to 0 or \
           to limits.connections there.",
};

pub const REQUESTS_PER_CONNECTION: Setting = Setting {
    key: "limits.requests_per_connection",
    flag: Some("max-requests-per-connection"),
    env: Some("LONGSHORE_MAX_REQUESTS_PER_CONNECTION"),
    kind: Kind::Count,
    fallback: Value("128"),
    help: "How many requests, streams included, may be open at the same time on one WebSocket, or on the standard input of \
           `longshore stdio`. Further ones are refused. HTTP/2 connections have 1024, and their clients wait.",
};

pub const BODY_BYTES: Setting = Setting {
    key: "limits.body_bytes",
    flag: Some("max-body-bytes"),
    env: Some("LONGSHORE_MAX_BODY_BYTES"),
    kind: Kind::Bytes,
    fallback: Value("268435456"),
    help: "How many bytes of request bodies that have not arrived completely may be in memory, for all callers together; \
           one principal gets at most half. Each such body counts with 16 KiB more than its bytes. A request whose body \
           does not fit is refused with status 429 and Retry-After. serve.max_request_body_bytes limits one body.",
};

pub const UNFINISHED_BYTES: Setting = Setting {
    key: "limits.unfinished_bytes",
    flag: Some("max-unfinished-bytes"),
    env: Some("LONGSHORE_MAX_UNFINISHED_BYTES"),
    kind: Kind::Bytes,
    fallback: Value("2147483648"),
    help: "How many bytes the unfinished tasks of all callers may have together: their messages with metadata, and the output of \
           running turns. A message that would exceed the limit is refused with status 429 and Retry-After. A running turn is \
           never ended by this limit. A task that waits for its turn is not kept in memory, only on disk.",
};

pub const UNFINISHED_BYTES_PER_PRINCIPAL: Setting = Setting {
    key: "limits.unfinished_bytes_per_principal",
    flag: Some("max-unfinished-bytes-per-principal"),
    env: Some("LONGSHORE_MAX_UNFINISHED_BYTES_PER_PRINCIPAL"),
    kind: Kind::Bytes,
    fallback: Value("1073741824"),
    help: "How many bytes the unfinished tasks of one principal may have together, as with limits.unfinished_bytes.",
};

pub const STORED_BYTES: Setting = Setting {
    key: "limits.stored_bytes",
    flag: Some("max-stored-bytes"),
    env: Some("LONGSHORE_MAX_STORED_BYTES"),
    kind: Kind::Bytes,
    fallback: Value("68719476736"),
    help: "How many bytes the store may hold before new messages are refused with status 429 and Retry-After. Counts the events, \
           tasks and files of all callers, not SQLite's own needs; after a start it is known when the check of the store is done. \
           Running turns, answers to asks and cancels are never refused. data.keep_tasks decides when space becomes free.",
};

pub const STORED_BYTES_PER_PRINCIPAL: Setting = Setting {
    key: "limits.stored_bytes_per_principal",
    flag: Some("max-stored-bytes-per-principal"),
    env: Some("LONGSHORE_MAX_STORED_BYTES_PER_PRINCIPAL"),
    kind: Kind::Bytes,
    fallback: Value("34359738368"),
    help: "How many bytes the store may hold for one principal, as with limits.stored_bytes.",
};

pub const TASK_BYTES: Setting = Setting {
    key: "limits.task_bytes",
    flag: Some("max-task-bytes"),
    env: Some("LONGSHORE_MAX_TASK_BYTES"),
    kind: Kind::TaskSize,
    fallback: Value("134217728"),
    help: "How many bytes one task may have: its messages with metadata, and every event of its output. A message that would \
           exceed the limit is refused with status 429. A turn whose output exceeds it is aborted, and its task fails and says so.",
};
