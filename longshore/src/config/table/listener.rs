//! The listener, the protocol and the credentials.

use super::super::setting::Fallback::{Computed, Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const HOST: Setting = Setting {
    key: "serve.host",
    flag: Some("host"),
    env: Some("A2A_HOST"),
    kind: Kind::Host,
    fallback: Value("127.0.0.1"),
    help: "The address to listen on. 0.0.0.0 means every IPv4 interface; then also set the public URL.",
};

pub const PORT: Setting = Setting {
    key: "serve.port",
    flag: Some("port"),
    env: Some("A2A_PORT"),
    kind: Kind::Port,
    fallback: Value("8000"),
    help: "The port to listen on. 0 takes a free port, which is shown at the start. `off`: no port; then set a unix socket.",
};

pub const TLS_CERTIFICATE: Setting = Setting {
    key: "serve.tls_certificate",
    flag: Some("tls-certificate"),
    env: Some("LONGSHORE_TLS_CERTIFICATE"),
    kind: Kind::Path,
    fallback: Nothing,
    help: "The file of the gateway's certificate, in PEM, with the intermediate certificates after it. With a certificate \
           and a key, the port serves HTTPS only: TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2. When the files change, and on \
           SIGHUP, they are read again; open connections continue. If the new files cannot be used, the log says why, and \
           the previous certificate stays in use.",
};

pub const TLS_KEY: Setting = Setting {
    key: "serve.tls_key",
    flag: Some("tls-key"),
    env: Some("LONGSHORE_TLS_KEY"),
    kind: Kind::Path,
    fallback: Nothing,
    help: "The file of the private key of the certificate, in PEM, without a passphrase. Only the user who runs Longshore may \
           be able to read it; a file of root may also be readable by its group.",
};

pub const TLS_CLIENT_CA: Setting = Setting {
    key: "serve.tls_client_ca",
    flag: Some("tls-client-ca"),
    env: Some("LONGSHORE_TLS_CLIENT_CA"),
    kind: Kind::Path,
    fallback: Nothing,
    help: "The file of the authorities whose client certificates are accepted (mTLS), in PEM. Clients are asked for a \
           certificate, and one that is expired or of another authority is refused in the TLS handshake. The credentials \
           with the scheme mtls say which certificate belongs to which principal.",
};

pub const TLS_CLIENT_CERTIFICATES: Setting = Setting {
    key: "serve.tls_client_certificates",
    flag: Some("tls-client-certificates"),
    env: Some("LONGSHORE_TLS_CLIENT_CERTIFICATES"),
    kind: Kind::Choice(&["optional", "required"]),
    fallback: Value("optional"),
    help: "Whether every client needs a certificate. optional: a client without one uses another credential. required: a \
           client without one is refused in the TLS handshake, so also for the card and health checks.",
};

pub const REQUIRE_TLS: Setting = Setting {
    key: "serve.require_tls",
    flag: Some("require-tls"),
    env: Some("LONGSHORE_REQUIRE_TLS"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Whether the gateway refuses to start on an address that other machines can reach when it has no TLS. Otherwise it \
           starts with a warning.",
};

pub const UNIX_SOCKET: Setting = Setting {
    key: "serve.unix_socket",
    flag: Some("unix-socket"),
    env: Some("LONGSHORE_UNIX_SOCKET"),
    kind: Kind::Path,
    fallback: Nothing,
    help: "The path of a unix socket that serves the same as the port, without TLS. A socket file that an earlier process left \
           behind is replaced; one on which a process listens is not.",
};

pub const UNIX_SOCKET_MODE: Setting = Setting {
    key: "serve.unix_socket_mode",
    flag: Some("unix-socket-mode"),
    env: Some("LONGSHORE_UNIX_SOCKET_MODE"),
    kind: Kind::FileMode,
    fallback: Value("600"),
    help: "The permissions of the unix socket. Users with the permission to write can connect.",
};

pub const UNIX_SOCKET_PRINCIPAL: Setting = Setting {
    key: "serve.unix_socket_principal",
    flag: Some("unix-socket-principal"),
    env: Some("LONGSHORE_UNIX_SOCKET_PRINCIPAL"),
    kind: Kind::Text,
    fallback: Nothing,
    help: "The principal of processes of the user who runs Longshore, when they connect to the unix socket and send no \
           credential: `default` is that of the generated token. They have all capabilities. Without this setting they need \
           a credential. Do not set it if a proxy that runs as this user forwards the requests of others to the socket.",
};

pub const WEBSOCKET_PATH: Setting = Setting {
    key: "serve.websocket_path",
    flag: Some("websocket-path"),
    env: Some("LONGSHORE_WEBSOCKET_PATH"),
    kind: Kind::Text,
    fallback: Value("/ws"),
    help: "The path of WebSockets, which carry JSON-RPC in messages. `off`: no WebSockets.",
};

pub const WEBSOCKET_IDLE: Setting = Setting {
    key: "serve.websocket_idle",
    flag: Some("websocket-idle"),
    env: Some("LONGSHORE_WEBSOCKET_IDLE"),
    kind: Kind::SecondsOrOff,
    fallback: Value("600"),
    help: "How long a WebSocket may have no open request and no open stream. Then it is closed. A client that does not answer \
           a ping within 30 seconds is disconnected in any case.",
};

pub const MCP_PATH: Setting = Setting {
    key: "serve.mcp_path",
    flag: Some("mcp-path"),
    env: Some("LONGSHORE_MCP_PATH"),
    kind: Kind::Text,
    fallback: Value("/mcp"),
    help: "The path at which clients of MCP, such as editors, find the agent as tools. They need a credential. `off`: no MCP over \
           HTTP.",
};

pub const PUBLIC_URL: Setting = Setting {
    key: "serve.public_url",
    flag: Some("public-url"),
    env: Some("A2A_PUBLIC_URL"),
    kind: Kind::BaseUrl,
    fallback: Computed("the address that it listens on"),
    help: "The URL that clients use, as shown in the agent card. Set it when the gateway is behind a proxy.",
};

pub const ALLOWED_ORIGINS: Setting = Setting {
    key: "serve.allowed_origins",
    flag: Some("allowed-origins"),
    env: Some("A2A_ALLOWED_ORIGINS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Further sites whose pages may call the gateway, such as https://app.example.com, besides the site of the \
           public URL. A request that a browser sends for another site gets status 403, before its credential is \
           checked. Requests that name no site, as programs send them, are not affected. Longshore sends no CORS \
           headers: that is the task of a proxy.",
};

pub const ALLOWED_HOSTS: Setting = Setting {
    key: "serve.allowed_hosts",
    flag: Some("allowed-hosts"),
    env: Some("A2A_ALLOWED_HOSTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "The only hosts that requests may name: example.com, example.com:8000, 127.0.0.1, or *.example.com for every \
           host below example.com (not itself). A request for another host, or without one, gets status 403. The list \
           must also contain the name, often an address, that health checks and proxies use. Without a list, a gateway \
           on a loopback address accepts the loopback names and the host of the public URL, and any other gateway \
           accepts every host.",
};

pub const MAX_BODY: Setting = Setting {
    key: "serve.max_request_body_bytes",
    flag: Some("max-request-body-bytes"),
    env: Some("A2A_MAX_REQUEST_BODY_BYTES"),
    kind: Kind::Bytes,
    fallback: Value("10485760"),
    help: "The maximum size of a request body. A larger one gets status 413. Files inside a message count with their \
           base64 size, which is a third larger.",
};

pub const BODY_TIMEOUT: Setting = Setting {
    key: "serve.body_timeout",
    flag: Some("body-timeout"),
    env: Some("LONGSHORE_BODY_TIMEOUT"),
    kind: Kind::Seconds,
    fallback: Value("120"),
    help: "How long the body of a request may take to arrive. A slower request is refused with status 400.",
};

pub const WRITE_TIMEOUT: Setting = Setting {
    key: "serve.write_timeout",
    flag: Some("write-timeout"),
    env: Some("LONGSHORE_WRITE_TIMEOUT"),
    kind: Kind::Seconds,
    fallback: Value("30"),
    help: "How long a client may take no byte while bytes wait for it. After that its connection is closed; one request \
           of an HTTP/2 connection whose other requests proceed is reset. A stream without events is not affected, \
           because nothing waits.",
};

pub const GZIP_MINIMUM: Setting = Setting {
    key: "serve.gzip_minimum_bytes",
    flag: Some("gzip-minimum-bytes"),
    env: Some("A2A_HTTP_GZIP_MINIMUM_SIZE"),
    kind: Kind::Threshold,
    fallback: Value("8192"),
    help: "The minimum size of a response that is compressed for clients that accept gzip. Streams and files are never \
           compressed.",
};

pub const SHUTDOWN_GRACE: Setting = Setting {
    key: "serve.shutdown_grace",
    flag: Some("shutdown-grace"),
    env: Some("LONGSHORE_SHUTDOWN_GRACE"),
    kind: Kind::Seconds,
    fallback: Value("10"),
    help: "How long open requests may take to end after SIGTERM. Streams end at once and ask their clients to \
           reconnect. A connection that is still sending or receiving at the end of this time is closed. The process \
           ends at most six seconds later, or eight if it exports traces.",
};

pub const THREADS: Setting = Setting {
    key: "serve.threads",
    flag: Some("threads"),
    env: Some("LONGSHORE_THREADS"),
    kind: Kind::Threads,
    fallback: Value("0"),
    help: "How many threads serve callers and follow agents. 0 means half the number of CPU cores, at least one: the \
           store has its own threads, and OpenCode usually runs on the same machine.",
};

pub const MISSING_VERSION: Setting = Setting {
    key: "protocol.missing_version",
    flag: Some("missing-version"),
    env: Some("LONGSHORE_MISSING_VERSION"),
    kind: Kind::Choice(&["by-request", "0.3"]),
    fallback: Value("by-request"),
    help: "Which version of A2A is assumed for a request without A2A-Version. by-request: the version that has the \
           method or path of the request. 0.3: always 0.3, as the specification of 1.0 requires.",
};

pub const REQUIRED_EXTENSIONS: Setting = Setting {
    key: "protocol.required_extensions",
    flag: Some("required-extensions"),
    env: Some("LONGSHORE_REQUIRED_EXTENSIONS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Extensions, by URI, that every caller of A2A 1.0 must activate. A call without them is refused, and the card \
           lists them as required. Callers of 0.3 need not activate anything.",
};

pub const BEARER_TOKEN: Setting = Setting {
    key: "auth.bearer_token",
    flag: None,
    env: Some("A2A_BEARER_TOKEN"),
    kind: Kind::Secret,
    fallback: Computed("a token made on the first start, when no other credential is set"),
    help: "One bearer token, for the principal `default`.",
};

pub const API_KEY: Setting = Setting {
    key: "auth.api_key",
    flag: None,
    env: Some("IACCODE_A2A_API_KEY"),
    kind: Kind::Secret,
    fallback: Nothing,
    help: "One API key (`X-API-Key`), for the principal `default`.",
};

pub const CREDENTIALS: Setting = Setting {
    key: "auth.credentials",
    flag: None,
    env: Some("A2A_STATIC_AUTH_CREDENTIALS"),
    kind: Kind::Credentials,
    fallback: Nothing,
    help: "The credentials that callers may use: bearer tokens, user names with passwords, API keys, client \
           certificates, and users of this machine on the unix socket, each with a principal.",
};
