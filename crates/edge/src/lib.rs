//! Where callers come in: sockets, credentials, the protocol line, and the two bindings of A2A 1.0.
//!
//! A request passes these stages, each of which may end it: [`listen`](crate::listen) (a connection, its timeouts),
//! `dispatch` (the path, [`auth`], the verb, the line), a binding (`jsonrpc` or `rest`: media type, body, the wire's
//! decoder), and `operation`, which asks the engine. What comes back is one JSON body or a stream of events (`log`, `sse`).
//! Beside the bindings, `file` serves what tasks keep.
//!
//! Errors are told in the shape of the binding and logged once, in `reply`.

pub mod auth;
mod body;
mod card;
mod conditional;
mod dispatch;
mod extensions;
mod file;
mod jsonrpc;
mod line;
mod listen;
mod log;
mod media;
mod operation;
mod query;
mod reply;
mod rest;
mod route;
mod sse;

use std::io;
use std::time::Duration;

use longshore_engine::{Engine, Tasks};
use longshore_model::card::{Card, CardExtension};
use longshore_wire::extension;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use auth::{
    Caller, Capabilities, Capability, Credential, Credentials, CredentialsBuilder, CredentialsError, Rights,
};
pub use longshore_wire::extension::{Exposure, Extension};

/// What the card says about the extensions that the edge serves to everybody. Those that are required are in it in any
/// case: where else would a client learn of them?
pub fn public_extensions(exposure: Exposure, required: &[Extension]) -> Vec<CardExtension> {
    let mut entries = extension::declared(&Extension::PUBLIC);
    entries.extend(extension::declared_exposure(exposure));
    entries.extend(extension::declared(&[Extension::ArtifactMetadata]));
    for extension in required {
        if entries.iter().all(|entry| entry.uri != extension.uri()) {
            entries.extend(extension::declared(&[*extension]));
        }
    }
    extension::mark_required(&mut entries, required);
    entries
}

/// What the edge is told by the configuration.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    pub card: Card,
    pub credentials: Credentials,
    /// How much of the agent's thinking callers see whose credential does not say.
    pub exposure: Exposure,
    /// Every operation must activate these.
    pub required_extensions: Vec<Extension>,
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
    /// More connections wait in the kernel's queue until one of these is closed.
    pub max_connections: usize,
}

impl EdgeConfig {
    pub fn new(card: Card, credentials: Credentials) -> Self {
        Self {
            card,
            credentials,
            exposure: Exposure::default(),
            required_extensions: Vec::new(),
            max_body_bytes: 1024 * 1024,
            keep_alive: Duration::from_secs(15),
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(2),
            shutdown_grace: Duration::from_secs(10),
            max_connections: 8192,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_declares_what_is_shown_and_what_is_required() {
        use Extension::{ArtifactMetadata, InterruptRecovery, SessionBinding, StreamHints, ThinkingExposure};

        let nothing = Exposure { raw_thinking: false, tool_trace: false };
        let always: Vec<Extension> = Extension::PUBLIC.into_iter().chain([ArtifactMetadata]).collect();
        let cases: [(Exposure, &[Extension], &[Extension]); 5] = [
            (nothing, &[], &[]),
            (Exposure::default(), &[], &[ThinkingExposure]),
            (nothing, &[StreamHints, SessionBinding], &[]),
            (nothing, &[ThinkingExposure, InterruptRecovery], &[ThinkingExposure, InterruptRecovery]),
            (Exposure::default(), &[ThinkingExposure], &[ThinkingExposure]),
        ];
        for (exposure, required, more) in cases {
            let declared = public_extensions(exposure, required);
            let expected = always.iter().chain(more).map(|extension| extension.uri());
            let mut uris: Vec<&str> = declared.iter().map(|entry| entry.uri.as_str()).collect();
            let mut expected: Vec<&str> = expected.collect();
            uris.sort_unstable();
            expected.sort_unstable();
            assert_eq!(uris, expected);
            for entry in &declared {
                let is_required = required.iter().any(|extension| extension.uri() == entry.uri);
                assert_eq!(entry.required, is_required, "{}", entry.uri);
            }
        }
    }
}
