//! What sends a request, so that tests can replace it.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_outbound::{Answer, ErrorKind, Outbound, Post};

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    /// Names the host at most, never the rest of the URL.
    pub text: String,
}

pub trait Transport: Send + Sync + Debug {
    fn post<'a>(&'a self, post: Post<'a>) -> BoxFuture<'a, Result<Answer, Failure>>;
}

impl Transport for Outbound {
    fn post<'a>(&'a self, post: Post<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let sent = Self::post(self, post).await;
            sent.map_err(|error| Failure { kind: error.kind(), text: error.to_string() })
        })
    }
}
