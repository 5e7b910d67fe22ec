//! The HTTP side of the gateway: sockets, credentials, the protocol version, and the two bindings of A2A.
//!
//! A request passes these stages, each of which may refuse it: [`listen`](crate::listen) (the connection and its timeouts), `gate`
//! (origin, host, [`auth`], the `limits`), `route` (the row of the table for the path), a binding (`jsonrpc` or `rest`: media type,
//! body, decoding by `wire` into a `command`), and `operation`, which calls the engine. The reply is a value or a reader of
//! events, which the binding encodes as one JSON body or as a stream (`log`, `sse`). A `websocket`, or `stdio`, carries many
//! requests as messages, which a `multiplexer` answers like JSON-RPC requests. Besides the bindings, `dispatch` calls
//! `documents`, which serves cards, the `OpenAPI` document and health, and `file`, which serves the files of tasks. `audit` counts
//! the calls of extension methods and logs those that change something.
//!
//! Errors are encoded in the format of the binding, and logged once, in `reply`. `request_line` writes one log line per request.

mod arrival;
mod audit;
pub mod auth;
mod binding;
mod body;
mod command;
mod compress;
mod conditional;
mod count;
mod cursor;
mod dispatch;
mod documents;
mod extensions;
mod file;
mod gate;
mod grpc;
mod guard;
mod health;
mod incoming;
mod jsonrpc;
mod limits;
mod listen;
mod log;
#[cfg(test)]
#[path = "../tests/http/support/log_lines.rs"]
mod log_lines;
mod mcp;
mod media;
mod metrics;
mod multiplexer;
pub mod opencode;
mod operation;
mod page;
mod payload;
mod query;
mod reply;
mod request_line;
mod response_format;
mod rest;
mod route;
mod rules;
mod sse;
mod stdio;
#[cfg(test)]
mod test_engine;
mod trace;
mod version;
mod websocket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{Engine, Tasks, WireNames};
use longshore_meter::Metrics;
use longshore_wire::contract::Deployment;
use longshore_wire::names::{CONTEXT_PREFIX, DIRECTORY_FIELD};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

pub use auth::{
    Caller, Capabilities, Capability, CertificateMatch, Credential, Credentials, CredentialsBuilder,
    CredentialsError, Rights,
};
pub use grpc::{GrpcBody, GrpcServices, Protobuf};
pub use limits::{Limits, Rate};
pub use listen::{ClientAuthority, Listeners, Tls, TlsError, TlsParts};
pub use longshore_wire::agent::AgentSurface;
pub use longshore_wire::contract;
pub use longshore_wire::extension::{Exposure, Extension};
pub use longshore_wire::sessions;
pub use mcp::{AgentSummary, McpBody, McpService, OwnAgent};
pub use route::is_free_path;

/// The names in requests and responses that the engine also uses.
pub fn wire_names() -> WireNames {
    WireNames { session_context_prefix: CONTEXT_PREFIX, directory_field: DIRECTORY_FIELD }
}

/// The configuration of the edge.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Describes what the gateway offers. The edge serves exactly this, and the cards and other documents are generated from it.
    pub deployment: Deployment,
    pub credentials: Credentials,
    /// A response of at least this many bytes is compressed for clients that accept gzip. Streams and files are never compressed.
    pub gzip_minimum: usize,
    /// A longer request is refused with 413. 0: no limit.
    pub max_body_bytes: usize,
    /// How long a stream may be without events before it sends a comment, so that no proxy considers the connection dead.
    pub keep_alive: Duration,
    /// How long a connection without an open request may take to send a complete request head before it is closed.
    pub header_timeout: Duration,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may take no byte, while bytes wait for it, before its connection is closed.
    pub write_timeout: Duration,
    /// How long a WebSocket without an open request stays open. `None`: for ever.
    pub websocket_idle: Option<Duration>,
    /// How long requests may continue after the shutdown has begun. Then the remaining connections are closed.
    pub shutdown_grace: Duration,
    pub limits: Limits,
    pub payload_log: PayloadLog,
    /// Converts the messages of gRPC. `None`: gRPC is not served.
    pub grpc: Option<&'static dyn Protobuf>,
    /// Further gRPC services, served at the same listeners as A2A.
    pub grpc_services: Option<Arc<dyn GrpcServices>>,
    /// The path of MCP and its implementation. `None`: MCP is not served.
    pub mcp: Option<(String, Arc<dyn McpService>)>,
    /// The metrics of the whole process. The deployment says whether callers may read them.
    pub metrics: Arc<Metrics>,
}

/// Which bodies of requests and responses are logged at level debug. Values that may be secret are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PayloadLog {
    pub enabled: bool,
    /// The largest body that is logged. Bodies of unknown length are not logged. 0: no limit.
    pub body_limit: usize,
}

impl EdgeConfig {
    /// Creates a configuration with default limits. Adds the authentication schemes of the credentials to the documents.
    pub fn new(deployment: Deployment, credentials: Credentials) -> Self {
        Self {
            metrics: Arc::new(Metrics::new(&deployment.version)),
            deployment: Deployment { schemes: credentials.schemes(), ..deployment },
            credentials,
            gzip_minimum: 8192,
            max_body_bytes: 1024 * 1024,
            keep_alive: Duration::from_secs(15),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(2),
            write_timeout: Duration::from_secs(30),
            websocket_idle: Some(Duration::from_mins(10)),
            shutdown_grace: Duration::from_secs(10),
            limits: Limits::default(),
            payload_log: PayloadLog::default(),
            grpc: None,
            grpc_services: None,
            mcp: None,
        }
    }
}

/// The HTTP side of a gateway.
#[derive(Debug)]
pub struct Edge {
    engine: Engine,
    config: EdgeConfig,
    tasks: Tasks,
}

impl Edge {
    pub fn new(engine: Engine, config: EdgeConfig, tasks: Tasks) -> Self {
        Self { engine, config, tasks }
    }

    /// Serves until `shutdown` is canceled. Then stops accepting, ends open streams, and lets requests finish within the grace
    /// period.
    pub async fn serve(self, listeners: impl Into<Listeners>, shutdown: CancellationToken) -> io::Result<()> {
        listen::run(self, listeners.into(), shutdown).await
    }

    /// Serves one client, which needs no credential, with one JSON-RPC message per line, until the input ends or `shutdown` is
    /// canceled. The end of the input cancels `shutdown`.
    pub async fn serve_stdio(
        self,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin,
        caller: Caller,
        shutdown: CancellationToken,
    ) -> io::Result<()> {
        stdio::serve(self, input, output, caller, shutdown).await
    }
}
