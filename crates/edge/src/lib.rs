//! Where callers come in: sockets, credentials, the protocol line, and the two bindings of A2A.
//!
//! A request passes these stages, each of which may end it: [`listen`](crate::listen) (a connection, its timeouts),
//! `dispatch` (the `guard` of origins and hosts, the path, [`auth`], the `limits`, the verb, the line), a binding
//! (`jsonrpc` or `rest`: media type, body, the wire's decoder), and `operation`, which asks the engine. What comes back is
//! one JSON body or a stream of events (`log`, `sse`). Beside the bindings, `documents` tells what is served and how it is,
//! `file` serves what tasks keep, and `audit` notes who called for a change beside tasks.
//!
//! Errors are told in the shape of the binding and logged once, in `reply`.

mod audit;
pub mod auth;
mod body;
mod compress;
mod conditional;
mod count;
mod dispatch;
mod documents;
mod extensions;
mod file;
mod guard;
mod health;
mod jsonrpc;
mod limits;
mod line;
#[cfg(test)]
#[path = "../tests/http/support/lines.rs"]
mod lines;
mod listen;
mod log;
mod media;
mod metrics;
mod operation;
mod payload;
mod query;
mod reply;
mod rest;
mod route;
mod rules;
mod shape;
mod sse;
mod trace;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{Engine, Tasks};
use longshore_meter::Metrics;
use longshore_wire::contract::Deployment;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use auth::{
    Caller, Capabilities, Capability, Credential, Credentials, CredentialsBuilder, CredentialsError, Rights,
};
pub use limits::{Limits, Rate};
pub use longshore_wire::contract;
pub use longshore_wire::extension::{Exposure, Extension};
pub use longshore_wire::methods::reference::page as methods_reference;

/// What the edge is told by the configuration.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// What the documents say, and what is done accordingly.
    pub deployment: Deployment,
    pub credentials: Credentials,
    /// A whole answer that is not shorter than this is compressed for clients that take it.
    pub gzip_minimum: usize,
    /// A longer request is refused with 413. 0: no limit.
    pub max_body_bytes: usize,
    /// A stream without events carries a comment this often, so that nobody on the way takes it for dead.
    pub keep_alive: Duration,
    /// A connection without an open request is closed when no whole request head has come for this long.
    pub header_timeout: Duration,
    /// A request whose body takes longer to arrive is refused.
    pub body_timeout: Duration,
    /// How long requests may go on after the shutdown began. Those that have not ended by then are cut.
    pub shutdown_grace: Duration,
    pub limits: Limits,
    pub payload_log: PayloadLog,
    /// What is counted here, and elsewhere in the process. Whether callers may read it is in the deployment.
    pub metrics: Arc<Metrics>,
}

/// Whether the bodies of requests and answers are written to the log, at level debug and without what looks like a secret.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PayloadLog {
    pub enabled: bool,
    /// Longer bodies, and those of unknown length, are not written. 0: no limit.
    pub body_limit: usize,
}

impl EdgeConfig {
    /// The documents name the schemes that the credentials have.
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
            shutdown_grace: Duration::from_secs(10),
            limits: Limits::default(),
            payload_log: PayloadLog::default(),
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

    /// Serves until `shutdown`, then stops accepting, ends open streams, and lets requests finish within the grace.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        listen::run(self, listener, shutdown).await
    }
}
