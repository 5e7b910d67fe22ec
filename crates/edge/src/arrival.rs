//! Facts about the connection of a request that the request itself does not contain.
//!
//! A request on plain TCP has no such facts. On a TLS connection with a client certificate, on a unix socket and on a port that
//! serves only gRPC, each request carries the facts in its extensions.

use std::sync::Arc;

use http::request::Parts;

use crate::auth::Caller;

#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The caller that the connection authenticates. Used for requests without a credential of their own.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The connection is on a unix socket, which no web page and no other machine can reach.
    pub(crate) is_on_unix_socket: bool,
    /// The listener serves only gRPC.
    pub(crate) only_grpc: bool,
}

impl Arrival {
    pub(crate) fn of(parts: &Parts) -> Option<&Self> {
        parts.extensions.get::<Arc<Self>>().map(AsRef::as_ref)
    }
}
