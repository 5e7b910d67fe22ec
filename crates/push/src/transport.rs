//! The trait that sends requests. Tests replace its implementation.

use std::fmt::Debug;

use longshore_engine::port::BoxFuture;
use longshore_outbound::{Answer, ErrorKind, Outbound, Post};

/// A call without a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    /// The error text. It may name the host, but never the rest of the URL.
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
