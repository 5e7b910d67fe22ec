//! Where the gateway listens, and who may call.

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Group, Kind, Setting};

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

pub const ALLOWED_ORIGINS: Setting = Setting {
    key: "serve.allowed_origins",
    flag: Some("allowed-origins"),
    env: Some("A2A_ALLOWED_ORIGINS"),
    group: Group::Listener,
    kind: Kind::List,
    fallback: Nothing,
    help: "Sites whose pages may call, such as https://app.example.com, beside that of the public URL. A request that a browser \
           sends for another site is answered with 403, before any credential is looked at. Requests that name no site, as \
           programs send them, are not asked. Nothing is said to browsers about what they may read (CORS): that is for a proxy.",
};

pub const ALLOWED_HOSTS: Setting = Setting {
    key: "serve.allowed_hosts",
    flag: Some("allowed-hosts"),
    env: Some("A2A_ALLOWED_HOSTS"),
    group: Group::Listener,
    kind: Kind::List,
    fallback: Nothing,
    help: "The only hosts that requests may name: example.com, example.com:8000, 127.0.0.1, or *.example.com for all below it (not \
           itself). Any other, or none, is answered with 403. Without a list every name is taken. What a health check or a \
           proxy calls the gateway, often an address, must be in the list too.",
};

pub const MAX_BODY: Setting = Setting {
    key: "serve.max_request_body_bytes",
    flag: Some("max-request-body-bytes"),
    env: Some("A2A_MAX_REQUEST_BODY_BYTES"),
    group: Group::Listener,
    kind: Kind::Bytes,
    fallback: Value("10485760"),
    help: "The largest request body. A larger one is answered with 413. Files that come with a message count in base64, which is a \
           third more.",
};

pub const GZIP_MINIMUM: Setting = Setting {
    key: "serve.gzip_minimum_bytes",
    flag: Some("gzip-minimum-bytes"),
    env: Some("A2A_HTTP_GZIP_MINIMUM_SIZE"),
    group: Group::Listener,
    kind: Kind::Threshold,
    fallback: Value("8192"),
    help: "From which length on an answer is compressed for clients that accept gzip. Streams and files never are.",
};

pub const SHUTDOWN_GRACE: Setting = Setting {
    key: "serve.shutdown_grace",
    flag: Some("shutdown-grace"),
    env: Some("LONGSHORE_SHUTDOWN_GRACE"),
    group: Group::Listener,
    kind: Kind::Seconds,
    fallback: Value("10"),
    help: "How long after SIGTERM open requests may take to end. Streams end at once and tell their clients to come back; whoever \
           does not take that in, or still sends or reads something else by then, is cut off. The process ends at most six \
           seconds later.",
};

pub const THREADS: Setting = Setting {
    key: "serve.threads",
    flag: Some("threads"),
    env: Some("LONGSHORE_THREADS"),
    group: Group::Listener,
    kind: Kind::Threads,
    fallback: Value("0"),
    help: "How many threads serve callers and follow agents. 0 is half as many as the machine has cores, and one at least: the \
           store has threads of its own, and OpenCode mostly runs on the same machine.",
};

pub const MISSING_VERSION: Setting = Setting {
    key: "protocol.missing_version",
    flag: Some("missing-version"),
    env: Some("LONGSHORE_MISSING_VERSION"),
    group: Group::Listener,
    kind: Kind::Choice(&["by-request", "0.3"]),
    fallback: Value("by-request"),
    help: "Which version of A2A a request without A2A-Version speaks: the one that has its method or path, or always 0.3, as the \
           specification of 1.0 has it.",
};

pub const REQUIRED_EXTENSIONS: Setting = Setting {
    key: "protocol.required_extensions",
    flag: Some("required-extensions"),
    env: Some("LONGSHORE_REQUIRED_EXTENSIONS"),
    group: Group::Listener,
    kind: Kind::List,
    fallback: Nothing,
    help: "Extensions that every caller of A2A 1.0 must activate, by URI. A call without them is refused, and the card says so. On \
           0.3 nothing has to be activated.",
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
